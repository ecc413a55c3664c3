//! `heapledger top`: who holds or allocates the most.

use heapledger_analysis::{Amount, By as Parts, Metric, Part, RankBy, breakdown};
use heapledger_recording::Recording;
use heapledger_reports::Row;
use serde::Serialize;

use crate::args::{By, Top};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count};
use crate::input::Input;
use crate::label::command;
use crate::output::Output;
use crate::question::Question;
use crate::ranks::{AmountJson, Columns, Depth, Listing, TableJson, limit, print_rows};

pub(crate) fn run(arguments: &Top, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve().map_err(|why| Failure::new(Exit::Usage, why))?;
    let input = Input::find(arguments.input.file.as_deref())?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let (by, depth) = match arguments.by {
        By::Function => (RankBy::Function, Depth::Function),
        By::Site => (RankBy::Site, Depth::Callers),
        By::Stack => (RankBy::Site, Depth::Stack(usize::MAX)),
        By::Module => (RankBy::Module, Depth::Function),
        By::Thread => return parts(arguments, &mut question, Parts::Thread, out),
        By::Size => return parts(arguments, &mut question, Parts::Size, out),
    };
    let profile = question.profile()?;
    let listing = Listing { name: name(arguments.by), by, depth, rows: arguments.rows };
    if arguments.input.json {
        return listing.json(&mut question, &profile, out);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(&profile, out)?;
    listing.print(&mut question, &profile, out)
}

/// By thread or size.
fn parts(arguments: &Top, question: &mut Question<'_, '_>, by: Parts, out: &mut Output) -> Result<()> {
    let answer = question.answer(|names, selection, progress| breakdown(names, by, selection, progress))?;
    question.input.warn_of(&answer.damage);
    let (moment, metric) = (question.selection.moment, question.metric);
    let (whole, left_out) = (answer.whole.at(moment), answer.left_out.at(moment));
    let mut parts: Vec<(Part, Amount)> =
        answer.parts.into_iter().map(|(part, holding)| (part, holding.at(moment))).collect();
    parts.retain(|(_, amount)| if metric == Metric::Bytes { !amount.is_nothing() } else { amount.by(metric) > 0 });
    parts.sort_by_key(|(part, amount)| (std::cmp::Reverse(amount.by(metric)), *part));
    let (shown, rest) = parts.split_at(parts.len().min(limit(arguments.rows)));
    let recording = question.recording;

    if arguments.input.json {
        let mut table = TableJson::new(name(arguments.by), question, &whole, &left_out, parts.len());
        let row = |(part, amount): &(Part, Amount)| PartJson {
            amount: AmountJson::new(amount, moment),
            share: amount.share(&whole, metric),
            part: part_json(recording, *part),
        };
        table.rows = shown.iter().map(row).collect();
        return out.json(&table);
    }
    let several = recording.images().len() > 1;
    question.headline(&whole, &left_out, out)?;
    let rows = shown.iter().map(|(part, amount)| (part_row(recording, *part, several), *amount));
    print_rows(Columns::new(metric, moment), &whole, rows, rest.iter().map(|(_, amount)| *amount), out)
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
