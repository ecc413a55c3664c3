//! Tables of the amounts that parts hold.

use std::cmp::Reverse;

use heapledger_analysis::{Amount, Metric, Part, PartBy, parts};
use heapledger_recording::{ImageId, ImageStart, Recording};
use heapledger_report_format::Row;

use crate::error::Result;
use crate::format::{bytes, count};
use crate::json::parts::PartJson;
use crate::json::table::TableJson;
use crate::output::Output;
use crate::question::Question;
use crate::text::command;
use crate::views::table::{Columns, limit, print_rows};

/// The blocks that a question selects, divided into parts.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The parts, the largest first.
    pub(crate) parts: Vec<(Part, Amount)>,
    pub(crate) whole: Amount,
    pub(crate) left_out: Amount,
    pub(crate) allocated: Option<Amount>,
}

pub(crate) fn load(question: &mut Question<'_, '_>, by: PartBy) -> Result<Parts> {
    let answer = question.answer(|names, selection, progress| parts(names, by, selection, progress))?;
    question.input.warn_of(&answer.damage);
    question.expect_match(answer.whole.is_nothing())?;
    let (moment, metric) = (question.selection.moment, question.metric);
    let parts = answer.parts.into_iter().map(|(part, moment_amounts)| (part, moment_amounts.at(moment)));
    let is_there = |amount: &Amount| if metric == Metric::Bytes { !amount.is_nothing() } else { amount.by(metric) > 0 };
    let mut parts: Vec<(Part, Amount)> = parts.filter(|(_, amount)| is_there(amount)).collect();
    parts.sort_by_key(|(part, amount)| (Reverse(amount.by(metric)), *part));
    Ok(Parts {
        parts,
        whole: answer.whole.at(moment),
        left_out: answer.left_out.at(moment),
        allocated: question.selection.filter.allocated.as_ref().map(|_| answer.whole.total),
    })
}

/// Returns the document that `--json` prints.
pub(crate) fn document(
    question: &Question<'_, '_>,
    parts: &Parts,
    name: &'static str,
    rows: usize,
) -> TableJson<PartJson> {
    let mut table = TableJson::new(name, question, &parts.whole, &parts.left_out, parts.parts.len());
    table.allocated(parts.allocated);
    let row = |(part, amount): &(Part, Amount)| PartJson::new(question, *part, amount, &parts.whole);
    table.rows = parts.parts.iter().take(limit(rows)).map(row).collect();
    table
}

pub(crate) fn print(question: &Question<'_, '_>, parts: &Parts, rows: usize, out: &mut Output) -> Result<()> {
    let (shown, rest) = parts.parts.split_at(parts.parts.len().min(limit(rows)));
    let recording = question.recording;
    let several = recording.images().len() > 1;
    question.headline(&parts.whole, &parts.left_out, out)?;
    question.allocated(parts.allocated, out)?;
    let columns = Columns::of(question);
    let rows = shown.iter().map(|(part, amount)| (part_row(recording, *part, several), *amount));
    print_rows(columns, &parts.whole, rows, rest.iter().map(|(_, amount)| *amount), out)
}

pub(crate) fn part_row(recording: &Recording<'_>, part: Part, several_images: bool) -> Row {
    let (name, note) = part_name(recording, part, several_images);
    Row::new(name).note(note)
}

/// Returns a function that names parts, for tables whose rows may also be functions.
pub(crate) fn part_labels(recording: &Recording<'_>) -> impl Fn(Part) -> String {
    let several_images = recording.images().len() > 1;
    move |part| {
        let (name, note) = part_name(recording, part, several_images);
        if note.is_empty() { name } else { format!("{name} {note}") }
    }
}

/// Returns a function that names parts independently of the run: threads and processes without
/// their numbers.
pub(crate) fn part_labels_of_any_run(recording: &Recording<'_>) -> impl Fn(Part) -> String {
    let program = |image: &ImageStart| {
        let path = String::from_utf8_lossy(&image.executable);
        path.rsplit('/').next().unwrap_or_default().to_owned()
    };
    move |part| match part {
        Part::Process(first) => last_image(recording, first).map(program).unwrap_or_default(),
        Part::Thread(image, thread) => {
            let name = recording.thread(image, thread).map(|thread| String::from_utf8_lossy(&thread.name).into_owned());
            name.filter(|name| !name.is_empty()).unwrap_or_else(|| "(no name)".to_owned())
        }
        Part::Size(_) | Part::SizeClass(_) | Part::Rest => part_name(recording, part, false).0,
    }
}

/// Returns the last image of the process that begins with this one: the program that the process
/// became in the end.
fn last_image<'r>(recording: &'r Recording<'_>, first: ImageId) -> Option<&'r ImageStart> {
    let process = recording.process_of(first)?;
    recording.image(*process.images.last()?)
}

/// Returns the name of a part, and a note of less importance.
fn part_name(recording: &Recording<'_>, part: Part, several_images: bool) -> (String, String) {
    let name = match part {
        Part::Size(size) if size.0 < 1024 => format!("{} bytes", size.0),
        Part::Size(size) => format!("{} bytes ({})", count(size.0), bytes(size.0)),
        Part::SizeClass(most) => format!("up to {}", bytes(most.0)),
        Part::Rest => "others".to_owned(),
        Part::Process(first) => {
            let image = last_image(recording, first);
            let name = image.map_or(String::new(), |image| {
                let is_reused = recording.processes().iter().filter(|process| process.pid == image.pid).count() > 1;
                // Rows of tables and trees are told apart by their names.
                if is_reused { format!("{} (from image {})", image.pid, first.0) } else { image.pid.to_string() }
            });
            return (name, image.map_or(String::new(), command));
        }
        Part::Thread(image, thread) => {
            let name = recording.thread(image, thread).map(|thread| {
                let name = String::from_utf8_lossy(&thread.name);
                if name.is_empty() { format!("thread {}", thread.tid) } else { format!("{name} ({})", thread.tid) }
            });
            let name = name.unwrap_or_else(|| format!("thread number {}", thread.0));
            let image = recording.image(image).filter(|_| several_images);
            return (name, image.map_or(String::new(), |image| format!("of {}: {}", image.pid, command(image))));
        }
    };
    (name, String::new())
}
