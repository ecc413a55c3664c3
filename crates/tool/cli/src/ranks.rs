//! Tables of sites and groups of sites: what `top`, `leaks`, `temporary` and the report after `record` share.

use heapledger_analysis::{Amount, Frame, Key, Metric, Moment, Profile, Rank, Selection};
use heapledger_recording::{ChunkKind, Recording};
use heapledger_reports::{Row, Tree};
use serde::Serialize;
use serde_json::Value;

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, counted, share};
use crate::input::Input;
use crate::label::{FrameJson, Labels, WhatIsShown, metric_json, moment_json};
use crate::progress::Progress;

/// The profile of a selection.
pub(crate) fn load(input: &Input, recording: &Recording<'_>, selection: Selection) -> Result<Profile> {
    let mut progress = Progress::new();
    let profile = Profile::load(recording, selection, &mut |done, all| progress.events(done, all));
    drop(progress);
    let profile = profile.map_err(|error| input.unanswered(error))?;
    input.warn_of(&profile.damage);
    Ok(profile)
}

/// Fails if the recording has no allocation at all: an empty table would say less.
pub(crate) fn expect_something(recording: &Recording<'_>) -> Result<()> {
    let tells = |kind| matches!(kind, ChunkKind::Events | ChunkKind::Sites);
    if recording.footer().is_none() || recording.chunks().iter().any(|chunk| tells(chunk.kind)) {
        return Ok(());
    }
    Err(Failure::new(Exit::NothingRecorded, "nothing was recorded: the program made no allocator call that was seen")
        .hint("a program that is statically linked cannot be recorded"))
}

/// `412.6 MiB in 1,234 blocks live at the peak (18.2 s)`.
pub(crate) fn headline(recording: &Recording<'_>, whole: &Amount, selection: Selection) -> String {
    let what = WhatIsShown(recording, selection);
    format!("{} in {} {what}", bytes(whole.bytes.0), counted(whole.blocks.0, "block", "blocks"))
}

/// The columns of a table of amounts: the metric first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    metric: Metric,
    moment: Moment,
}

impl Columns {
    pub(crate) fn new(metric: Metric, moment: Moment) -> Columns {
        Columns { metric, moment }
    }

    pub(crate) fn table(self) -> Tree {
        let blocks = if self.moment == Moment::Total { "allocations" } else { "blocks" };
        match self.metric {
            Metric::Bytes => Tree::new(["bytes", "share", blocks]),
            Metric::Blocks => Tree::new([blocks, "share", "bytes"]),
            Metric::Temporaries => Tree::new(["temporary", "share", "of own", "allocations"]),
        }
    }

    /// The cells of an amount, as part of the whole.
    pub(crate) fn cells(self, amount: &Amount, whole: &Amount) -> Vec<String> {
        let part = share(amount.share(whole, self.metric));
        let (size, blocks) = (bytes(amount.bytes.0), count(amount.blocks.0));
        match self.metric {
            Metric::Bytes => vec![size, part, blocks],
            Metric::Blocks => vec![blocks, part, size],
            Metric::Temporaries => {
                let own = amount.temporaries.0 as f64 / amount.blocks.0.max(1) as f64;
                vec![count(amount.temporaries.0), part, share(own), blocks]
            }
        }
    }
}

/// How much of a stack a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The function alone.
    Function,
    /// The function, and a line of callers.
    Callers,
    /// All of it; or, less than [`usize::MAX`], that many lines of it.
    Stack(usize),
}

/// Callers in the line of callers.
const CALLERS: usize = 6;

/// The row of a group.
pub(crate) fn row(labels: &mut Labels<'_, '_>, profile: &Profile, rank: &Rank, depth: Depth) -> Row {
    if let Key::Module(module) = rank.key {
        let name = labels.module(module);
        return Row::new(if name.is_empty() { "(unknown module)".to_owned() } else { name });
    }
    let line = |labels: &Labels<'_, '_>, row: Row, frame: &Frame| {
        row.line(labels.function(frame.function), labels.place(frame.function, frame.location.as_ref()))
    };
    let row = line(labels, Row::default(), &rank.frame);
    if depth == Depth::Function {
        return row;
    }
    let frames = labels.names.useful_frames(&profile.stacks, rank.largest);
    let callers = &frames[1.min(frames.len())..];
    match depth {
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
        _ if callers.is_empty() => row,
        _ => {
            let (mut names, mut at) = (Vec::new(), 0);
            while at < callers.len() && names.len() < CALLERS {
                let rest = callers[at..].iter().map(|frame| frame.function);
                let (name, length) = labels.unnamed(rest).unwrap_or_else(|| (labels.function(callers[at].function), 1));
                names.push(name);
                at += length;
            }
            let more = if at < callers.len() { " ← …" } else { "" };
            row.line("", format!("← {}{more}", names.join(" ← ")))
        }
    }
}

/// An amount for JSON.
#[derive(Debug, Serialize)]
pub(crate) struct AmountJson {
    bytes: u64,
    blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temporary: Option<u64>,
}

impl AmountJson {
    pub(crate) fn new(amount: &Amount, moment: Moment) -> AmountJson {
        AmountJson {
            bytes: amount.bytes.0,
            blocks: amount.blocks.0,
            temporary: (moment == Moment::Total).then_some(amount.temporaries.0),
        }
    }
}

/// A table for JSON.
#[derive(Debug, Serialize)]
pub(crate) struct TableJson<R> {
    by: &'static str,
    metric: &'static str,
    at: Value,
    process: Option<u32>,
    total: AmountJson,
    /// The number of rows that there would be without a limit.
    rows_all: usize,
    rows: Vec<R>,
}

impl<R> TableJson<R> {
    pub(crate) fn new(by: &'static str, selection: Selection, metric: Metric, whole: &Amount, all: usize) -> Self {
        TableJson {
            by,
            metric: metric_json(metric),
            at: moment_json(selection.moment),
            process: selection.process,
            total: AmountJson::new(whole, selection.moment),
            rows_all: all,
            rows: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, row: R) {
        self.rows.push(row);
    }
}

/// A row for JSON. Which of the names are there depends on what was summed up by.
#[derive(Debug, Serialize)]
pub(crate) struct RankJson {
    #[serde(flatten)]
    amount: AmountJson,
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    frame: Option<FrameJson>,
    /// How many sites it has.
    sites: usize,
    /// The stack of the site that holds the most, innermost first.
    stack: Vec<FrameJson>,
}

impl RankJson {
    pub(crate) fn new(
        labels: &mut Labels<'_, '_>,
        profile: &Profile,
        rank: &Rank,
        metric: Metric,
        moment: Moment,
    ) -> RankJson {
        let stack = labels.names.useful_frames(&profile.stacks, rank.largest);
        let (module, frame) = match rank.key {
            Key::Module(module) => (Some(labels.module_path(module)), None),
            Key::Site(_) | Key::Function(_) => (None, Some(labels.frame(&rank.frame))),
        };
        RankJson {
            amount: AmountJson::new(&rank.amount, moment),
            share: rank.amount.share(&profile.whole, metric),
            module,
            frame,
            sites: rank.sites,
            stack: stack.iter().map(|frame| labels.frame(frame)).collect(),
        }
    }
}

/// How many rows to show; 0 means all.
pub(crate) fn limit(rows: usize) -> usize {
    if rows == 0 { usize::MAX } else { rows }
}
