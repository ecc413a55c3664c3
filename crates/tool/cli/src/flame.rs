//! `heapledger flame`: a picture, or the lines that it is drawn from.

use std::collections::BTreeMap;

use heapledger_analysis::{Direction, Layer, Metric, Moment, Profile};
use heapledger_reports::escape;
use inferno::flamegraph::{self, Options, color};

use crate::args::Flame;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::label::{Labels, shown_command};
use crate::output::Output;
use crate::question::Question;
use crate::tree::layers;

pub(crate) fn run(arguments: &Flame, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve().map_err(|why| Failure::new(Exit::Usage, why))?;
    let input = Input::find(arguments.file.as_deref())?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let profile = question.profile()?;
    let lines = folded(&profile, &mut question.labels, &layers(&arguments.by), metric);
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
    out.save(&arguments.output, |mut out| {
        if arguments.collapsed {
            return lines.iter().try_for_each(|(stack, figure)| writeln!(out, "{stack} {figure}"));
        }
        let mut options = Options::default();
        options.title = format!("{command}: {unit} {what}");
        options.count_name = unit.to_owned();
        options.colors = color::Palette::Basic(color::BasicPalette::Mem);
        options.hash = true;
        let lines: Vec<String> = lines.iter().map(|(stack, figure)| format!("{stack} {figure}")).collect();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut out)
    })
}

/// Each stack as `outer;…;inner`, and its figure.
fn folded(profile: &Profile, labels: &mut Labels<'_, '_>, layers: &[Layer], metric: Metric) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for site in &profile.sites {
        let figure = site.amount.by(metric);
        if figure == 0 {
            continue;
        }
        let frames = labels.names.layers(&profile.stacks, site.stack, layers, Direction::TopDown);
        let mut line = String::new();
        for frame in &frames {
            if !line.is_empty() {
                line.push(';');
            }
            // Semicolons separate functions, spaces the figure.
            let name = labels.function(frame.function).replace(';', ":");
            line.push_str(&escape(&name));
        }
        *lines.entry(line).or_insert(0) += figure;
    }
    lines
}
