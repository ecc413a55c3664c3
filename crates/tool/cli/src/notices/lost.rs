//! Descriptions of what a recording has lost.

use heapledger_recording::{Annotation, Counts, Footer, ImageId, Pause, Recording};
use serde::Serialize;

use crate::format::{bytes, count, counted, time};

/// Events that were lost, by cause.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LostJson {
    ring_full: u64,
    signal_handler: u64,
    no_ring: u64,
    unreadable: u64,
    user_pools: u64,
}

impl LostJson {
    pub(crate) fn new(counts: &Counts) -> LostJson {
        LostJson {
            ring_full: counts.events_lost_full,
            signal_handler: counts.events_lost_nested,
            no_ring: counts.events_lost_no_ring,
            unreadable: counts.events_lost_unreadable,
            user_pools: counts.events_lost_pools,
        }
    }
}

/// Describes the lost events, if there are any:
/// `12 events were lost (10 because a ring was full, 2 …): …`.
pub(crate) fn describe(counts: &Counts) -> Option<String> {
    if counts.events_lost == 0 {
        return None;
    }
    let causes = [
        (counts.events_lost_full, "because a ring was full"),
        (counts.events_lost_nested, "of signal handlers that interrupted the recorder"),
        (counts.events_lost_no_ring, "of threads or processes without a ring"),
        (counts.events_lost_unreadable, "because the program had written over its ring"),
        (counts.events_lost_pools, "of user pools beyond 65,535, or of addresses of 2^47 and more in one"),
    ];
    let known: Vec<(u64, &str)> = causes.into_iter().filter(|(events, _)| *events > 0).collect();
    let causes = match known[..] {
        [] => String::new(),
        [(_, cause)] => format!(" {cause}"),
        _ => {
            let parts: Vec<String> =
                known.iter().map(|(events, cause)| format!("{} {cause}", count(*events))).collect();
            format!(" ({})", parts.join(", "))
        }
    };
    let lost = counted(counts.events_lost, "event was", "events were");
    Some(format!(
        "{lost} lost{causes}: numbers of allocations and frees are lower bounds, and what is live may be off either way"
    ))
}

/// Describes the missed frees, if there are any: `12 frees were not seen: …`.
pub(crate) fn missed(counts: &Counts) -> Option<String> {
    if counts.frees_missed.0 == 0 {
        return None;
    }
    let frees = counted(counts.frees_missed.0, "free was", "frees were");
    Some(format!("{frees} not seen: addresses of live blocks were handed out again, and what is live may be too much"))
}

/// Describes the folded stacks, if there are any: `12 stacks were folded into their callers: …`.
pub(crate) fn folded(counts: &Counts) -> Option<String> {
    if counts.stacks.folded == 0 {
        return None;
    }
    let stacks = counted(counts.stacks.folded, "stack was", "stacks were");
    let whose = if counts.stacks.folded == 1 { "its caller" } else { "their callers" };
    Some(format!("{stacks} folded into {whose}: the recorder had no more memory in the program"))
}

/// Describes the stacks that are not proven, if there are any:
/// `of 1,002 of 5,000 allocations, callers were found by frame pointers: …`.
pub(crate) fn unproven(counts: &Counts) -> Option<String> {
    let unproven = counts.stacks.unproven;
    (unproven > 0).then(|| {
        format!(
            "callers were found by frame pointers in the stacks of {} of {} allocations, which go through code \
             without unwind information: nothing proves that these stacks are right",
            count(unproven),
            count(counts.allocations.0),
        )
    })
}

/// Describes the bounds of the peak, if it is not exact:
/// `at least 5 MiB and at most 12 MiB were live at once: …`.
pub(crate) fn peak_bounds(footer: &Footer) -> Option<String> {
    let least = footer.peak_least?;
    Some(format!(
        "at least {} and at most {} were live at once: the recording is merged from totals, and figures at the peak are \
         those of each session at its own",
        bytes(least.bytes.0),
        bytes(footer.counts.bytes_live_max.0),
    ))
}

/// Says when the recorder stood still, if it did: `from 1.2 s to 7.5 s`.
pub(crate) fn stalls<'a>(pauses: impl IntoIterator<Item = &'a Pause>) -> Option<String> {
    let mut stalls = pauses.into_iter().filter(|pause| pause.is_stall);
    let first = stalls.next()?;
    let until = first.until.map_or("the end".to_owned(), time);
    let more = match stalls.count() {
        0 => String::new(),
        more => format!(", and {} more", counted(more as u64, "time", "times")),
    };
    Some(format!("the recorder stood still from {} to {until}{more}, and the program went on", time(first.from)))
}

/// The code of the annotation that says that a program has put itself in a sandbox.
pub(crate) const SANDBOX: u32 = 265;

/// Says how many programs have put themselves in a sandbox, if any have.
pub(crate) fn sandboxed(recording: &Recording<'_>) -> Option<String> {
    let is_one = |annotation: &Annotation| annotation.code == SANDBOX;
    let has_one = |image: ImageId| recording.annotations(image).flatten().any(|annotation| is_one(&annotation));
    let number = recording.images().iter().filter(|image| has_one(image.image)).count() as u64;
    let programs = counted(number, "program has put itself in a sandbox", "programs have put themselves in sandboxes");
    (number > 0).then(|| format!("{programs}: children that they fork in there, and programs, are not recorded"))
}

/// Marks a figure counted call by call as a lower bound, if calls were lost.
pub(crate) fn at_least(counts: &Counts, figure: String) -> String {
    if counts.events_lost > 0 { format!("≥ {figure}") } else { figure }
}

#[cfg(test)]
mod tests {
    use heapledger_core::Blocks;
    use heapledger_recording::StackCounts;

    use super::*;

    #[test]
    fn missed_frees_are_told() {
        assert_eq!(missed(&Counts::default()), None);
        let counts = Counts { frees_missed: Blocks(1_002), ..Counts::default() };
        assert!(missed(&counts).unwrap().starts_with("1,002 frees were not seen: "));
    }

    #[test]
    fn unproven_stacks_are_told() {
        assert_eq!(unproven(&Counts::default()), None);
        let stacks = StackCounts { unproven: 1_002, ..StackCounts::default() };
        let counts = Counts { stacks, allocations: Blocks(5_000), ..Counts::default() };
        let notice = "callers were found by frame pointers in the stacks of 1,002 of 5,000 allocations, ";
        assert!(unproven(&counts).unwrap().starts_with(notice));
    }

    #[test]
    fn folded_stacks_are_told() {
        assert_eq!(folded(&Counts::default()), None);
        let counts = Counts { stacks: StackCounts { folded: 1_002, ..StackCounts::default() }, ..Counts::default() };
        assert!(folded(&counts).unwrap().starts_with("1,002 stacks were folded into their callers: "));
    }

    #[test]
    fn lost_events_are_told_by_cause() {
        let mut counts = Counts::default();
        assert_eq!(describe(&counts), None);
        assert_eq!(at_least(&counts, "7".into()), "7");
        counts = Counts { events_lost: 1, events_lost_full: 1, ..counts };
        assert!(describe(&counts).unwrap().starts_with("1 event was lost because a ring was full: "));
        counts = Counts { events_lost: 1_003, events_lost_full: 1_001, events_lost_nested: 2, ..counts };
        let text = "1,003 events were lost (1,001 because a ring was full, 2 of signal handlers that interrupted the \
                    recorder): numbers of allocations and frees are lower bounds, and what is live may be off either way";
        assert_eq!(describe(&counts).as_deref(), Some(text));
        assert_eq!(at_least(&counts, "7".into()), "≥ 7");
    }
}
