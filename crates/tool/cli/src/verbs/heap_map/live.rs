//! The pages of a program that is being recorded, by its live blocks.

use std::collections::BTreeMap;

use heapledger_analysis::{Filter, Metric, RankBy, ResidentGroups, Selection};
use heapledger_collect::{ControlRequest, LivePages, RunningSession};
use heapledger_core::{Bytes, StackId};
use heapledger_recording::{ResidentSnapshot, SnapshotSite};
use heapledger_resident::{HeapPages, LiveRange, ResidentMemory};

use super::denied;
use crate::args::Symbols;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::question::Question;

const PAGE: u64 = 4096;

/// The property of live blocks by which pages are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Owner,
    Age,
}

/// The ages, youngest first: the name of a group, and the milliseconds below which an age is.
const AGES: [(&str, u32); 7] = [
    ("under 1 s", 1_000),
    ("1 s to 10 s", 10_000),
    ("10 s to 1 min", 60_000),
    ("1 min to 10 min", 600_000),
    ("10 min to 1 h", 3_600_000),
    ("1 h to 1 day", 86_400_000),
    ("1 day or more", u32::MAX),
];
const UNKNOWN_AGE: &str = "before a fork";
/// The group of pages on which nothing is live.
const EMPTY: &str = "no live block";

/// Returns the pages of a process, and all that its account has.
pub(super) fn pages(process: u32, by: By) -> Result<(ResidentMemory, HeapPages)> {
    let unknown = |what: String| {
        Failure::new(Exit::Usage, what).code(Code::LiveUnknown).hint(format_args!(
            "heapledger attach {process}; or by arena, which needs no recorder: heapledger heap-map {process}"
        ))
    };
    let not_recorded = || unknown(format!("process {process} is not being recorded: its live blocks are not known"));
    let session = RunningSession::of_process(process).ok().flatten().ok_or_else(not_recorded)?;
    if session.status.sampling.is_some() {
        return Err(unknown(format!("a sample of process {process} is being recorded: most blocks are not known")));
    }
    let live = session.live_pages(process).map_err(|_| not_recorded())?;
    let memory = ResidentMemory::of_process(process).map_err(denied)?;
    let (mut groups, of) = match by {
        By::Owner => {
            // The sites of all these blocks are in the file from now on.
            let status = session.ask(ControlRequest::Save).map_err(|_| not_recorded())?;
            owners(&Input::map(&status.output)?, process, &live)?
        }
        By::Age => ages(&live),
    };
    let rest = groups.len() as u32;
    groups.push(EMPTY.to_owned());
    let ranges: Vec<LiveRange> = live.iter().zip(of).map(|(run, group)| range(run, group)).collect();
    let grouping = if by == By::Owner { "owner" } else { "age" };
    let mut heap = memory.live_heap_pages(&ranges, rest, grouping);
    heap.groups = groups;
    Ok((memory, heap))
}

fn range(run: &LivePages, group: u32) -> LiveRange {
    let end = run.address.saturating_add(run.pages.saturating_mul(PAGE));
    LiveRange { addresses: run.address..end, used: run.used, blocks: run.blocks, group }
}

/// Returns the names of the ages, and for each run of pages the index of its age.
fn ages(live: &[LivePages]) -> (Vec<String>, Vec<u32>) {
    let names = AGES.iter().map(|(name, _)| *name).chain([UNKNOWN_AGE]).map(str::to_owned).collect();
    let age = |run: &LivePages| match run.age_ms {
        Some(age) => AGES.iter().position(|(_, below)| age < *below).unwrap_or(AGES.len() - 1),
        None => AGES.len(),
    };
    (names, live.iter().map(|run| age(run) as u32).collect())
}

/// Returns the names of the owners, the one with the most pages first, and for each run of pages
/// the index of its owner.
fn owners(input: &Input, process: u32, live: &[LivePages]) -> Result<(Vec<String>, Vec<u32>)> {
    // That it is not finished goes without saying.
    let recording = input.recording()?;
    input.warn_of(recording.damage());
    let image = recording.images().iter().rev().find(|image| image.pid == process).map(|start| start.image);
    let image = image.ok_or_else(|| Failure::new(Exit::Unreadable, "the recording does not have the process yet"))?;
    let mut kept: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for run in live {
        let (pages, bytes) = kept.entry(run.site).or_default();
        *pages += run.pages;
        *bytes += run.pages * u64::from(run.used);
    }
    let site = |(&site, &(pages, bytes)): (&u32, &(u64, u64))| SnapshotSite {
        stack: StackId(site),
        kept: Bytes(pages * PAGE),
        bytes: Bytes(bytes),
        ..SnapshotSite::default()
    };
    // The owners of sites are found as for a snapshot.
    let snapshot = ResidentSnapshot { sites: kept.iter().map(site).collect(), ..ResidentSnapshot::default() };
    let selection = Selection { filter: Filter::default(), ..Selection::default() };
    let mut question = Question::new(input, &recording, &Symbols::default(), selection, Metric::Bytes);
    let groups = ResidentGroups::of(&mut question.labels.names, image, &snapshot, RankBy::Owner);
    input.warn_of(&groups.damage);
    let names = groups.groups.iter().map(|group| question.labels.function(group.rank.frame.function)).collect();
    let members = (0..).zip(&groups.groups).flat_map(|(at, group)| group.members.iter().map(move |site| (site.0, at)));
    let indices: BTreeMap<u32, u32> = members.collect();
    Ok((names, live.iter().map(|run| indices.get(&run.site).copied().unwrap_or(0)).collect()))
}
