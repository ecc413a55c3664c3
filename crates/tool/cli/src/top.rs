//! `heapledger top`: who holds or allocates the most.

use heapledger_analysis::{Amount, Breakdown, By as Parts, Metric, Part, RankBy, Selection, breakdown, rank};
use heapledger_recording::Recording;
use heapledger_reports::Row;
use serde::Serialize;

use crate::args::{By, Top};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count};
use crate::input::Input;
use crate::label::{Labels, command};
use crate::output::Output;
use crate::progress::Progress;
use crate::ranks::{AmountJson, Columns, Depth, RankJson, TableJson, expect_something, headline, limit, load, row};

pub(crate) fn run(arguments: &Top, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve().map_err(|why| Failure::new(Exit::Usage, why))?;
    let input = Input::find(arguments.input.file.as_deref())?;
    let recording = input.open()?;
    expect_something(&recording)?;
    let (by, depth) = match arguments.by {
        By::Function => (RankBy::Function, Depth::Function),
        By::Site => (RankBy::Site, Depth::Callers),
        By::Stack => (RankBy::Site, Depth::Stack(usize::MAX)),
        By::Module => (RankBy::Module, Depth::Function),
        By::Thread => return parts(arguments, &input, &recording, Parts::Thread, selection, metric, out),
        By::Size => return parts(arguments, &input, &recording, Parts::Size, selection, metric, out),
    };
    let profile = load(&input, &recording, selection)?;
    let mut labels = Labels::new(&recording, &arguments.symbols);
    let ranks = rank(&profile, &mut labels.names, by, metric);
    let shown = &ranks[..ranks.len().min(limit(arguments.rows))];

    if arguments.input.json {
        let mut table = TableJson::new(name(arguments.by), selection, metric, &profile.whole, ranks.len());
        for rank in shown {
            table.push(RankJson::new(&mut labels, &profile, rank, metric, selection.moment));
        }
        return out.json(&table);
    }
    let columns = Columns::new(metric, selection.moment);
    let mut table = columns.table();
    for rank in shown {
        table.push(0, row(&mut labels, &profile, rank, depth).cells(columns.cells(&rank.amount, &profile.whole)));
    }
    out.title(headline(&recording, &profile.whole, selection))?;
    out.line("")?;
    out.tree(&table)?;
    left_out(out, ranks.len() - shown.len(), ranks[shown.len()..].iter().map(|rank| &rank.amount))?;
    out.hint(labels.hint_for_unnamed(shown.iter().map(|rank| rank.frame.function)));
    Ok(())
}

/// By thread or size.
fn parts(
    arguments: &Top,
    input: &Input,
    recording: &Recording<'_>,
    by: Parts,
    selection: Selection,
    metric: Metric,
    out: &mut Output,
) -> Result<()> {
    let mut progress = Progress::new();
    let broken_down = breakdown(recording, by, selection, &mut |done, all| progress.events(done, all));
    drop(progress);
    let Breakdown { mut parts, whole, damage } = broken_down.map_err(|error| input.unanswered(error))?;
    input.warn_of(&damage);
    parts.sort_by_key(|(part, amount)| (std::cmp::Reverse(amount.by(metric)), *part));
    if metric != Metric::Bytes {
        parts.retain(|(_, amount)| amount.by(metric) > 0);
    }
    let shown = &parts[..parts.len().min(limit(arguments.rows))];

    if arguments.input.json {
        let mut table = TableJson::new(name(arguments.by), selection, metric, &whole, parts.len());
        for (part, amount) in shown {
            table.push(PartJson {
                amount: AmountJson::new(amount, selection.moment),
                share: amount.share(&whole, metric),
                part: part_json(recording, *part),
            });
        }
        return out.json(&table);
    }
    let columns = Columns::new(metric, selection.moment);
    let mut table = columns.table();
    let several = recording.images().len() > 1;
    for (part, amount) in shown {
        table.push(0, part_row(recording, *part, several).cells(columns.cells(amount, &whole)));
    }
    out.title(headline(recording, &whole, selection))?;
    out.line("")?;
    out.tree(&table)?;
    left_out(out, parts.len() - shown.len(), parts[shown.len()..].iter().map(|(_, amount)| amount))
}

/// Says what a limit left out.
pub(crate) fn left_out<'p>(out: &mut Output, rows: usize, amounts: impl Iterator<Item = &'p Amount>) -> Result<()> {
    if rows > 0 {
        let mut sum = Amount::default();
        amounts.for_each(|amount| sum += *amount);
        out.aside(format_args!("and {} more with {} in all: -n 0 shows them", count(rows as u64), bytes(sum.bytes.0)))?;
    }
    Ok(())
}

fn part_row(recording: &Recording<'_>, part: Part, several_images: bool) -> Row {
    match part {
        Part::Size(size) => Row::new(if size.0 < 1024 {
            format!("{} bytes", size.0)
        } else {
            format!("{} bytes ({})", count(size.0), bytes(size.0))
        }),
        Part::Rest => Row::new("others"),
        Part::Thread(image, thread) => {
            let name = recording.thread(image, thread).map(|thread| {
                let name = String::from_utf8_lossy(&thread.name);
                if name.is_empty() { format!("thread {}", thread.tid) } else { format!("{name} ({})", thread.tid) }
            });
            let row = Row::new(name.unwrap_or_else(|| format!("thread number {}", thread.0)));
            match recording.image(image).filter(|_| several_images) {
                Some(image) => row.note(format!("of {}: {}", image.pid, command(image))),
                None => row,
            }
        }
    }
}

#[derive(Debug, Serialize)]
struct PartJson {
    #[serde(flatten)]
    amount: AmountJson,
    share: f64,
    #[serde(flatten)]
    part: PartName,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum PartName {
    Thread { pid: Option<u32>, image: u32, thread: u32, tid: Option<u32>, name: Option<String> },
    Size { size: u64 },
    Rest { others: bool },
}

fn part_json(recording: &Recording<'_>, part: Part) -> PartName {
    match part {
        Part::Size(size) => PartName::Size { size: size.0 },
        Part::Rest => PartName::Rest { others: true },
        Part::Thread(image, thread) => {
            let known = recording.thread(image, thread);
            PartName::Thread {
                pid: recording.image(image).map(|image| image.pid),
                image: image.0,
                thread: thread.0,
                tid: known.map(|thread| thread.tid),
                name: known.map(|thread| String::from_utf8_lossy(&thread.name).into_owned()),
            }
        }
    }
}

fn name(by: By) -> &'static str {
    match by {
        By::Function => "function",
        By::Site => "site",
        By::Stack => "stack",
        By::Module => "module",
        By::Thread => "thread",
        By::Size => "size",
    }
}
