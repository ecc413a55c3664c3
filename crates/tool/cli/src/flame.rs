//! `heapledger flame`: a picture, or the lines that it is drawn from.

use std::io::{self, Write};

use heapledger_analysis::{Amount, CallTree, Direction, Layer, Metric, Moment, Profile};
use heapledger_profiles::collapsed::Lines;
use heapledger_profiles::{self as profiles, Figure};
use heapledger_reports::escape;
use inferno::flamegraph::{self, Options, color};

use crate::args::Flame;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::bytes;
use crate::label::{Labels, shown_command};
use crate::output::{Output, tell};
use crate::question::Question;
use crate::sampled;
use crate::tree::{self, Limits, layers};

pub(crate) fn run(arguments: &Flame, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find(out)?;
    let recording = input.open()?;
    if !arguments.collapsed && !arguments.input.json {
        out.draw_beside(&input, "flame", &arguments.input.written)?;
    }
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let profile = question.profile()?;
    let layers = layers(&arguments.by);
    if arguments.input.json {
        let tree = CallTree::new(&profile, &mut question.labels.names, &layers, Direction::TopDown, metric);
        return out.json(&tree::json(&question, &profile, &tree, &Limits::NONE, false));
    }
    let lines = folded(&profile, &mut question.labels, &layers, metric);
    if lines.is_empty() {
        return Err(Failure::new(
            Exit::NothingRecorded,
            "there is nothing to draw: no such memory was in use at that moment",
        )
        .hint("all that was ever allocated: add --total"));
    }

    let what = question.what();
    let command = recording.images().first().map(shown_command).unwrap_or_default();
    let unit = match (metric, question.selection.moment) {
        (Metric::Bytes, _) => "bytes",
        (Metric::Blocks, Moment::Total) => "allocations",
        (Metric::Blocks, _) => "blocks",
        (Metric::Temporaries, _) => "temporary allocations",
    };
    let notice = sampled::notice(&recording);
    if let Some(notice) = &notice {
        tell(format_args!("heapledger: {} {what}: {notice}", amount_of(&profile.whole, metric)));
    }
    let out = out.stream();
    match arguments.collapsed {
        true => lines.write(out)?,
        false => draw(&lines, format!("{command}: {unit} {what}"), notice, unit, out)?,
    }
    Ok(())
}

/// The picture of what a profile shows.
pub(crate) fn write(profile: &profiles::Profile, out: &mut dyn Write) -> io::Result<()> {
    let unit = profile.shown.counted();
    let what = match profile.shown {
        Figure::LiveBytes | Figure::LiveBlocks => &*profile.moment,
        Figure::AllocatedBytes | Figure::Allocations | Figure::Temporaries => "allocated in all",
    };
    let notice =
        profile.sampling_bytes.map(|mean| format!("a sample, of one point in {}: figures are estimates", bytes(mean)));
    draw(&Lines::of(profile), format!("{}: {unit} {what}", escape(&profile.command)), notice, unit, out)
}

/// `412.6 MiB ± 9.1 MiB`, `1,234 ± 55 blocks`.
fn amount_of(whole: &Amount, metric: Metric) -> String {
    match metric {
        Metric::Bytes => sampled::bytes_of(whole),
        Metric::Blocks => sampled::blocks_of(whole, "block", "blocks"),
        Metric::Temporaries => format!("{} temporary", sampled::figure(whole, metric)),
    }
}

fn draw(lines: &Lines, title: String, notice: Option<String>, unit: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut options = Options::default();
    options.title = title;
    options.subtitle = notice;
    options.count_name = unit.to_owned();
    options.colors = color::Palette::Basic(color::BasicPalette::Mem);
    options.hash = true;
    let lines: Vec<String> = lines.iter().collect();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
}

/// Each stack as `outer;…;inner`, and its figure.
fn folded(profile: &Profile, labels: &mut Labels<'_, '_>, layers: &[Layer], metric: Metric) -> Lines {
    let mut lines = Lines::default();
    for site in &profile.sites {
        let frames = labels.names.layers(&profile.stacks, site.stack, layers, Direction::TopDown);
        let names = frames.iter().map(|frame| labels.function(frame.function));
        lines.add(names.map(|name| escape(&name).into_owned()), site.amount.by(metric));
    }
    lines
}
