//! Merges several recordings into one.

use std::collections::HashSet;
use std::io::Write;

use heapledger_core::Bytes;
use heapledger_recording::{Damage, Footer, Pause, Record, Recording, RunCosts, Sampling, Session, Time};

use super::segments::{self, Joined};
use super::source::{Known, Source};
use super::totals::{self, Totals};
use super::{Draft, Error};

/// The outcome of [`merge`], which has written a draft.
#[derive(Debug)]
pub struct Merged {
    /// The footer to finish the draft with.
    pub footer: Footer,
    /// True if the draft has all totals, and is to be [finished](Draft::finish). If not, it is to
    /// be [counted](Draft::count_and_finish).
    pub is_counted: bool,
    /// For each recording, the damage that opening it did not find.
    pub damage: Vec<Vec<Damage>>,
}

/// Writes the recordings side by side into one draft.
///
/// Consecutive segments of a session are joined first, in whatever order they are given. The result
/// has everything that happened since the beginning of the earliest segment.
///
/// Times are counted from the beginning of the earliest session, by the clocks of the machines that
/// recorded. Images and modules are numbered anew; modules with the same path and build id become
/// one, and so do equal texts. Pids are kept, so two processes may have the same. A pause of one
/// recording counts for all. Chunks of a newer version are left out.
///
/// If one of them has no events, the new one has none either. The totals of all are added up; if
/// that does not tell how much was live at once, the footer has [bounds](Footer::peak_least).
///
/// Fails if a segment is missing between others, if one of several sessions begins in mid-run, if a
/// segment is merged with a recording without events, or if a recording without events has no end.
pub fn merge<W: Write>(recordings: &[&Recording<'_>], draft: &mut Draft<W>) -> Result<Merged, Error> {
    let sessions = segments::by_session(recordings)?;
    let is_without_events = |recording: &&Recording<'_>| recording.session().is_some_and(|session| session.totals_only);
    let totals_only = recordings.iter().any(is_without_events);
    let begins_in_mid_run = |joined: &&Joined<'_, '_>| joined.begins() > Time(0);
    if let Some(joined) = sessions.iter().find(begins_in_mid_run)
        && sessions.len() > 1
    {
        return Err(Error::BeginsInMidRun(joined.segments[0].0));
    }
    let totals = if totals_only { Some(totals_of(&sessions)?) } else { None };
    let start = |joined: &Joined<'_, '_>| joined.first().session().map_or(0, |session| session.start_unix_ns);
    let first = sessions.iter().min_by_key(|joined| start(joined));
    let earliest = first.map_or(0, start);

    let mut records = Vec::new();
    if let Some(session) = first.and_then(|joined| joined.first().session()) {
        let options = match &sessions[..] {
            [joined] => {
                let merged = format!("merged from {} segments", joined.segments.len());
                if session.options.is_empty() { merged } else { format!("{}, {merged}", session.options) }
            }
            _ => format!("merged from {} recordings", recordings.len()),
        };
        let samples = recordings.iter().any(|recording| recording.is_sample());
        draft.begin(samples);
        records.push(Record::Session(Session { options, samples, segment: 0, totals_only, ..session.clone() }));
    }
    let mut known = Known::default();
    let mut images = 0;
    let sources: Vec<Source<'_, '_>> = sessions
        .iter()
        .map(|joined| {
            let shift = start(joined).saturating_sub(earliest);
            Source::new(joined, shift, &mut images, &mut known, &mut records)
        })
        .collect();
    for source in &sources {
        source.describe_images(&mut records);
        for pause in source.recordings().flat_map(|recording| recording.pauses()) {
            let (from, until) = (source.time(pause.from), pause.until.unwrap_or(source.end()));
            records.push(Record::Pause(Pause { from, until: Some(source.time(until)), is_stall: pause.is_stall }));
        }
    }
    for source in &sources {
        let sampling = source.recordings().flat_map(|recording| recording.sampling());
        records.extend(sampling.map(|one| Record::Sampling(Sampling { from: source.time(one.from), ..*one })));
    }
    draft.records(&records)?;

    let mut footer = Footer { complete: true, ..Footer::default() };
    let mut damage = vec![Vec::new(); recordings.len()];
    for source in &sources {
        source.copy(draft, &mut damage)?;
        if !totals_only {
            source.copy_events(draft, &mut damage)?;
        }
        footer.time = footer.time.max(source.time(source.end()));
        for own in source.recordings().filter_map(|recording| recording.footer()) {
            footer.costs = sum(footer.costs, own.costs);
        }
    }
    let mut named = [HashSet::new(), HashSet::new()];
    for source in &sources {
        source.copy_names(&mut named, draft, &mut damage)?;
    }
    if let Some(totals) = totals {
        totals::write(&sources, totals, &mut footer, draft, &mut damage)?;
    }
    let is_whole = |recording: &&Recording<'_>| recording.complete();
    footer.complete = recordings.iter().all(is_whole) && damage.iter().all(Vec::is_empty);
    if let [source] = &sources[..] {
        footer.exit = source.joined.last().footer().and_then(|own| own.exit);
    }
    Ok(Merged { footer, is_counted: totals_only, damage })
}

/// Returns the totals of each session. Fails if a session has several segments.
fn totals_of(sessions: &[Joined<'_, '_>]) -> Result<Vec<Totals>, Error> {
    let of = |joined: &Joined<'_, '_>| match joined.segments[..] {
        [(at, recording)] => Totals::of(at, recording),
        _ => Err(Error::SegmentsBesideTotals(joined.segments[0].0)),
    };
    sessions.iter().map(of).collect()
}

/// Adds up the costs of several recordings.
fn sum(a: RunCosts, b: RunCosts) -> RunCosts {
    let add = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
    let bytes = |a: Option<Bytes>, b: Option<Bytes>| add(a.map(|a| a.0), b.map(|b| b.0)).map(Bytes);
    RunCosts {
        collector_cpu_ns: add(a.collector_cpu_ns, b.collector_cpu_ns),
        // The recorders belong to different runs, so the largest of them counts.
        collector_rss_max: a.collector_rss_max.max(b.collector_rss_max),
        ring_bytes: bytes(a.ring_bytes, b.ring_bytes),
        target_private_bytes: bytes(a.target_private_bytes, b.target_private_bytes),
        hook_ns: add(a.hook_ns, b.hook_ns),
        program_cpu_ns: add(a.program_cpu_ns, b.program_cpu_ns),
        program_wall_ns: a.program_wall_ns.max(b.program_wall_ns),
    }
}
