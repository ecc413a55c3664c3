//! The rows of groups of sites and of stacks.

use heapledger_analysis::{Frame, Key, NodeId, Rank, Stacks};
use heapledger_report_format::Row;

use crate::args::Depth;
use crate::label::Labels;

/// The most callers in the line of callers.
const CALLERS: usize = 6;

/// Returns the row of a group.
pub(crate) fn row(labels: &mut Labels<'_, '_>, stacks: &Stacks, rank: &Rank, depth: Depth) -> Row {
    if let Key::Module(module) = rank.key {
        let name = labels.module(module);
        return Row::new(if name.is_empty() { "(unknown module)".to_owned() } else { name });
    }
    if let Key::Context(context) = rank.key {
        return Row::new(labels.context(stacks, context));
    }
    if matches!(rank.key, Key::Scope(_) | Key::Task(_) | Key::Heap(_) | Key::Type(_) | Key::Part(_)) {
        return Row::new(labels.function(rank.frame.function));
    }
    if let Key::Line(id) | Key::File(id) = rank.key
        && labels.names.function(id).is_label
    {
        let called = labels.file(&labels.names.function(id).short).into_owned();
        let function = matches!(rank.key, Key::Line(_)).then(|| labels.function(rank.frame.function));
        return Row::default().line(called, function.unwrap_or_default());
    }
    match (rank.key, depth) {
        (Key::Owner(_) | Key::Line(_), _) => {
            let via = labels.names.owner(stacks, rank.largest).via;
            Row::default().line(labels.function(rank.frame.function), labels.place_via(&rank.frame, via))
        }
        (_, Depth::Function) => line(labels, Row::default(), &rank.frame),
        _ => stack_row(labels, stacks, rank.largest, depth),
    }
}

fn line(labels: &Labels<'_, '_>, row: Row, frame: &Frame) -> Row {
    row.line(labels.function(frame.function), labels.place(frame.function, frame.location.as_ref()))
}

/// Returns the row of a stack.
pub(crate) fn stack_row(labels: &mut Labels<'_, '_>, stacks: &Stacks, stack: NodeId, depth: Depth) -> Row {
    let (frames, via) = match depth {
        Depth::Stack(usize::MAX) => (labels.names.useful_frames(stacks, stack), None),
        _ => labels.frames(stacks, stack),
    };
    let first = |frame: &Frame| Row::default().line(labels.function(frame.function), labels.place_via(frame, via));
    let row = frames.first().map_or_else(Row::default, first);
    let callers = &frames[1.min(frames.len())..];
    let row = match depth {
        Depth::Stack(usize::MAX) => callers.iter().fold(row, |row, frame| line(labels, row, frame)),
        Depth::Stack(most) => {
            let (mut row, mut lines, mut at) = (row, 1, 0);
            while at < callers.len() && lines < most {
                let unnamed = labels.unnamed(callers[at..].iter().map(|frame| frame.function));
                let length = unnamed.as_ref().map_or(1, |(_, length)| *length);
                row = match unnamed {
                    Some((name, _)) => row.line("", name),
                    None => line(labels, row, &callers[at]),
                };
                at += length;
                lines += 1;
            }
            if at < callers.len() { row.line("", format!("⋮ {} more", callers.len() - at)) } else { row }
        }
        Depth::Function => return row,
        Depth::Callers if callers.is_empty() => row,
        Depth::Callers => row.line("", callers_in_line(labels, callers)),
    };
    let declared = labels.declared(stacks, stack);
    declared.into_iter().fold(row, |row, said| row.line("", said))
}

/// Formats callers as `← inner ← outer`, as far as they fit one line.
pub(crate) fn callers_in_line(labels: &Labels<'_, '_>, callers: &[Frame]) -> String {
    let (mut names, mut at) = (Vec::new(), 0);
    while at < callers.len() && names.len() < CALLERS {
        let rest = callers[at..].iter().map(|frame| frame.function);
        let (name, length) = labels.unnamed(rest).unwrap_or_else(|| (labels.function(callers[at].function), 1));
        names.push(name);
        at += length;
    }
    let more = if at < callers.len() { " ← …" } else { "" };
    format!("← {}{more}", names.join(" ← "))
}
