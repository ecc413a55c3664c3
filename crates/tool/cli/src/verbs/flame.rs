//! `heapledger flame`: a picture, or the lines that it is drawn from.

use heapledger_analysis::{Amount, CallTree, Direction, Frame, Layer, Metric, Moment, Profile};
use heapledger_dmd::CodeClass;
use heapledger_profile_formats::collapsed::Lines;
use heapledger_report_format::escape;

use crate::args::{Flame, Frames};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::label::Labels;
use crate::messages::notify;
use crate::output::Output;
use crate::question::Question;
use crate::text::shown_command;
use crate::views::call_tree::{self, Levels, Limits};
use crate::views::flame_graph::{Picture, title};
use crate::views::palette::{self, Paint};
use crate::views::sampled;

/// The number of crates, namespaces or modules that a folded box names.
const AREAS_MAX: usize = 3;

pub(crate) fn run(arguments: &Flame, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find_as(arguments.what.counts_mappings(), out)?;
    let recording = input.open()?;
    if !arguments.collapsed && arguments.input.form().is_none() {
        out.draw_to_default(&input, "flame", &arguments.input.written)?;
    }
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let levels = Levels::new(&arguments.by)?;
    let profile = levels.profile(&mut question)?;
    let (shape, layers) = (levels.shape(false), levels.layers);
    if let Some(form) = arguments.input.form() {
        let tree = CallTree::new(&profile, &mut question.labels.names, &layers, Direction::TopDown, metric);
        return out.document(&call_tree::json(&question, &profile, &tree, &Limits::NONE, shape), form);
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
    let slop = question.slop_source.as_ref().map(|source| format!("slop {source}"));
    let notices: Vec<String> = sampled::notice(&recording).into_iter().chain(slop).collect();
    let notice = (!notices.is_empty()).then(|| notices.join("; "));
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
        (Metric::Slop, _) => "bytes of slop",
    };
    let frames = stacks.iter().flat_map(|(frames, _)| frames);
    let colors = palette::of(frames.map(|shown| (&*shown.name, &*shown.area, shown.paint)));
    let picture = Picture { title: title(&command, &total, &what), below: notice.unwrap_or(command), unit, colors };
    Ok(picture.draw(&lines, out)?)
}

/// Returns text such as `412.6 MiB ± 9.1 MiB` or `1,234 ± 55 blocks`.
fn amount_of(whole: &Amount, metric: Metric) -> String {
    match metric {
        Metric::Bytes => sampled::bytes_of(whole),
        Metric::Blocks => sampled::blocks_of(whole, "block", "blocks"),
        Metric::Temporaries => format!("{} temporary", sampled::figure(whole, metric)),
        Metric::Slop => format!("{} of slop", sampled::figure(whole, metric)),
    }
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
