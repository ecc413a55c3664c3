//! Telling what a recording has lost.

use heapledger_recording::Counts;
use serde::Serialize;

use crate::format::{count, counted};

/// Events that were lost, by cause.
#[derive(Clone, Copy, Debug, Serialize)]
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

/// `12 events were lost (10 because a ring was full, 2 …): …`, if any were.
pub(crate) fn told(counts: &Counts) -> Option<String> {
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

/// A figure counted call by call: where calls were lost, a lower bound.
pub(crate) fn at_least(counts: &Counts, figure: String) -> String {
    if counts.events_lost > 0 { format!("≥ {figure}") } else { figure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_told_by_cause() {
        let mut counts = Counts::default();
        assert_eq!(told(&counts), None);
        assert_eq!(at_least(&counts, "7".into()), "7");
        counts = Counts { events_lost: 1, events_lost_full: 1, ..counts };
        assert!(told(&counts).unwrap().starts_with("1 event was lost because a ring was full: "));
        counts = Counts { events_lost: 1_003, events_lost_full: 1_001, events_lost_nested: 2, ..counts };
        let text = "1,003 events were lost (1,001 because a ring was full, 2 of signal handlers that interrupted the \
                    recorder): numbers of allocations and frees are lower bounds, and what is live may be off either way";
        assert_eq!(told(&counts).as_deref(), Some(text));
        assert_eq!(at_least(&counts, "7".into()), "≥ 7");
    }
}
