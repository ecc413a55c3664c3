//! `heapledger flame`: a picture, or the lines that it is drawn from.

use std::collections::BTreeSet;
use std::io::{self, Write};

use heapledger_analysis::{Amount, CallTree, Direction, Frame, Layer, Metric, Moment, Profile};
use heapledger_dmd::CodeClass;
use heapledger_profile_formats::collapsed::Lines;
use heapledger_profile_formats::{self as profiles, Figure};
use heapledger_report_format::escape;
use inferno::flamegraph::color::PaletteMap;
use inferno::flamegraph::{self, Options};

use crate::args::{Flame, Frames};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count};
use crate::label::{Labels, shown_command};
use crate::output::{Output, notify};
use crate::palette::{self, Paint};
use crate::question::Question;
use crate::sampled;
use crate::tree::{self, Levels, Limits};

/// The maximum length of the line below the title: each character takes 7 of the picture's 1,200
/// pixels.
const LINE_MAX: usize = 160;
/// The number of crates, namespaces or modules that a folded box names.
const AREAS_MAX: usize = 3;

pub(crate) fn run(arguments: &Flame, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find(out)?;
    let recording = input.open()?;
    if !arguments.collapsed && arguments.input.form().is_none() {
        out.draw_to_default(&input, "flame", &arguments.input.written)?;
    }
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let levels = Levels::new(&arguments.by)?;
    let profile = levels.profile(&mut question)?;
    let layers = levels.layers;
    if let Some(form) = arguments.input.form() {
        let tree = CallTree::new(&profile, &mut question.labels.names, &layers, Direction::TopDown, metric);
        return out.document(&tree::json(&question, &profile, &tree, &Limits::NONE, false), form);
    }
    let is_picture = !arguments.collapsed;
    let stacks = stacks(&profile, &mut question.labels, &layers, is_picture && arguments.symbols.frames == Frames::Own);
    let mut lines = Lines::default();
    for (frames, amount) in &stacks {
        lines.add(frames.iter().map(|shown| shown.name.clone()), amount.by(metric));
    }
    if lines.is_empty() {
        return Err(Failure::new(
            Exit::NothingRecorded,
            "there is nothing to draw: no such memory was in use at that moment",
        )
        .hint("all that was ever allocated: add --total"));
    }

    let what = question.what();
    let total = amount_of(&profile.whole, metric);
    let notice = sampled::notice(&recording);
    if let Some(notice) = &notice {
        notify(format_args!("heapledger: {total} {what}: {notice}"));
    }
    let out = out.stream();
    if arguments.collapsed {
        return Ok(lines.write(out)?);
    }
    let command = recording.images().first().map(shown_command).unwrap_or_default();
    let unit = match (metric, question.selection.moment) {
        (Metric::Bytes, _) => "bytes",
        (Metric::Blocks, Moment::Total) => "allocations",
        (Metric::Blocks, _) => "blocks",
        (Metric::Temporaries, _) => "temporary allocations",
    };
    let frames = stacks.iter().flat_map(|(frames, _)| frames);
    let colors = palette::of(frames.map(|shown| (&*shown.name, &*shown.area, shown.paint)));
    let picture = Picture { title: title(&command, &total, &what), below: notice.unwrap_or(command), unit, colors };
    Ok(picture.draw(&lines, out)?)
}

/// Returns a title such as `server: 412.6 MiB live at the peak (18.2 s)`.
fn title(command: &str, total: &str, what: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    if program.is_empty() { format!("{total} {what}") } else { format!("{program}: {total} {what}") }
}

/// Draws the picture of a profile.
pub(crate) fn write(profile: &profiles::Profile, out: &mut dyn Write) -> io::Result<()> {
    let unit = profile.shown.counted();
    let what = match profile.shown {
        Figure::LiveBytes | Figure::LiveBlocks => &*profile.moment,
        Figure::AllocatedBytes | Figure::Allocations | Figure::Temporaries => "allocated in all",
    };
    let notice =
        profile.sampling_bytes.map(|mean| format!("a sample, of one point in {}: figures are estimates", bytes(mean)));
    let lines = Lines::of(profile);
    let all: u64 = lines.stacks().map(|(_, figure)| figure).sum();
    let total = match profile.shown {
        Figure::LiveBytes | Figure::AllocatedBytes => bytes(all),
        Figure::LiveBlocks | Figure::Allocations | Figure::Temporaries => format!("{} {unit}", count(all)),
    };
    let names: BTreeSet<&str> = lines.stacks().flat_map(|(stack, _)| stack.split(';')).collect();
    // A profile does not say whose code a function is.
    let colors = palette::of(names.iter().map(|name| (*name, palette::area(name).unwrap_or(name), Paint::Own)));
    let command = escape(&profile.command).into_owned();
    let picture = Picture { title: title(&command, &total, what), below: notice.unwrap_or(command), unit, colors };
    picture.draw(&lines, out)
}

/// Returns text such as `412.6 MiB ± 9.1 MiB` or `1,234 ± 55 blocks`.
fn amount_of(whole: &Amount, metric: Metric) -> String {
    match metric {
        Metric::Bytes => sampled::bytes_of(whole),
        Metric::Blocks => sampled::blocks_of(whole, "block", "blocks"),
        Metric::Temporaries => format!("{} temporary", sampled::figure(whole, metric)),
    }
}

/// A flame graph without its boxes.
struct Picture<'p> {
    title: String,
    /// A line below the title.
    below: String,
    unit: &'p str,
    colors: PaletteMap,
}

impl Picture<'_> {
    fn draw(mut self, lines: &Lines, out: &mut dyn Write) -> io::Result<()> {
        let mut options = Options::default();
        options.title = self.title;
        options.subtitle = (!self.below.is_empty()).then(|| shortened(&self.below));
        options.count_name = self.unit.to_owned();
        options.palette_map = Some(&mut self.colors);
        let lines: Vec<String> = lines.iter().collect();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
    }
}

/// Returns the line, cut to what fits below the title.
fn shortened(line: &str) -> String {
    if line.chars().count() <= LINE_MAX {
        return line.to_owned();
    }
    line.chars().take(LINE_MAX - 1).chain(['…']).collect()
}

/// A box of the picture.
struct Shown {
    name: String,
    /// The crate, namespace or module, which has one colour.
    area: String,
    paint: Paint,
}

/// Returns each stack, from the outermost box to the innermost, and what it holds. If folded,
/// neighbouring frames outside of the owner that are not the program's own share one box.
fn stacks(
    profile: &Profile,
    labels: &mut Labels<'_, '_>,
    layers: &[Layer],
    is_folded: bool,
) -> Vec<(Vec<Shown>, Amount)> {
    let mut stacks = Vec::new();
    for site in &profile.sites {
        let frames = labels.names.layers(&profile.stacks, site, layers, Direction::TopDown);
        let owner = is_folded.then(|| labels.names.owner(&profile.stacks, site.stack).frame);
        let owner = frames.iter().rposition(|frame| owner.as_ref() == Some(frame));
        let mut shown: Vec<Shown> = Vec::new();
        let mut rest = &frames[..];
        while let [first, further @ ..] = rest {
            let outside = owner.map_or(0, |owner| (owner + rest.len()).saturating_sub(frames.len()));
            let folded = rest[..outside].iter().take_while(|frame| !is_own(labels, frame)).count();
            if folded > 0 {
                shown.push(run_of(labels, &rest[..folded]));
                rest = &rest[folded..];
                continue;
            }
            shown.push(shown_of(labels, first));
            rest = further;
        }
        stacks.push((shown, site.amount));
    }
    stacks
}

/// Returns the box of a function.
fn shown_of(labels: &Labels<'_, '_>, frame: &Frame) -> Shown {
    let name = labels.names.function(frame.function);
    let area = palette::area(&name.short).map_or_else(|| labels.module(name.module), str::to_owned);
    let paint = match () {
        () if name.is_label => Paint::Declared,
        () if is_own(labels, frame) => Paint::Own,
        () => Paint::Other,
    };
    Shown { name: Lines::name(&escape(&labels.function(frame.function))), area, paint }
}

/// Returns the one box of several functions: it names their crates or namespaces, or their modules
/// if no function name has one.
fn run_of(labels: &Labels<'_, '_>, frames: &[Frame]) -> Shown {
    let functions = || frames.iter().map(|frame| labels.names.function(frame.function));
    let mut areas: Vec<String> = Vec::new();
    let mut add = |area: String| {
        if !area.is_empty() && !areas.contains(&area) {
            areas.push(area);
        }
    };
    let in_names: Vec<String> = functions().filter_map(|name| palette::area(&name.short)).map(str::to_owned).collect();
    if in_names.is_empty() {
        functions().for_each(|name| add(labels.module(name.module)));
    }
    in_names.into_iter().for_each(add);
    let more = if areas.len() > AREAS_MAX { ", …" } else { "" };
    areas.truncate(AREAS_MAX);
    let name = Lines::name(&format!("[{}{more}]", escape(&areas.join(", "))));
    Shown { name, area: String::new(), paint: Paint::Folded }
}

fn is_own(labels: &Labels<'_, '_>, frame: &Frame) -> bool {
    let name = labels.names.function(frame.function);
    name.is_label || matches!(name.whose, CodeClass::Own | CodeClass::Helper)
}
