//! Checks that the recorder's totals and those of a replay are the same, at any moment.

use std::collections::BTreeMap;

use heapledger_core::Bytes;
use heapledger_recording::Recording;
use proptest::prelude::*;

use super::{broken_down, held, load};
use crate::testing::{steps, write};
use crate::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn footer_and_replay_agree(steps in steps(150)) {
        let (finished, unfinished, truth) = write(&steps);
        let finished = Recording::open(&finished).unwrap();
        let unfinished = Recording::open(&unfinished).unwrap();
        prop_assert!(finished.complete() && !unfinished.complete());

        let recorded = overview(&finished, &mut |_, _| ()).unwrap();
        let recounted = overview(&unfinished, &mut |_, _| ()).unwrap();
        prop_assert_eq!(&recorded.counts, &truth.counts);
        prop_assert!(!recorded.recounted && recounted.recounted);
        prop_assert_eq!(&recorded.counts, &recounted.counts);
        prop_assert_eq!(&recorded.processes, &recounted.processes);

        let pids = recorded.processes.iter().map(|process| Some(process.pid));
        for process in pids.chain([None]) {
            for moment in [Moment::Peak, Moment::End, Moment::Total] {
                let profile = load(&finished, process, moment);
                prop_assert_eq!(held(&profile), held(&load(&unfinished, process, moment)), "{:?} {:?}", process, moment);
                let threads = broken_down(&finished, PartBy::Thread, process, moment);
                let sizes = broken_down(&unfinished, PartBy::Size, process, moment);
                prop_assert_eq!(threads.whole.at(moment), profile.whole);
                prop_assert_eq!(sizes.whole.at(moment), profile.whole);
                for (part, moment_amounts) in sizes.parts {
                    let amount = moment_amounts.at(moment);
                    let Part::Size(Bytes(size)) = part else { panic!("{part:?}") };
                    prop_assert_eq!(amount.bytes.0, size * amount.blocks.0);
                }
            }
        }
        let end = load(&finished, None, Moment::End).whole;
        prop_assert_eq!((end.bytes, end.blocks), (truth.counts.bytes_live_end, truth.counts.blocks_live_end));
        let peak = load(&finished, None, Moment::Peak).whole;
        prop_assert_eq!((peak.bytes, peak.blocks), (truth.counts.bytes_live_max, truth.counts.blocks_at_bytes_max));
    }

    #[test]
    fn any_moment_is_as_it_was(steps in steps(150), at in any::<prop::sample::Index>()) {
        let (finished, unfinished, truth) = write(&steps);
        if truth.history.is_empty() {
            return Ok(());
        }
        let (time, expected) = at.get(&truth.history);
        // If several steps have the same time, the last one counts.
        let expected = truth.history.iter().rev().find(|(other, _)| other == time).map_or(expected, |(_, last)| last);
        for bytes in [&finished, &unfinished] {
            let recording = Recording::open(bytes).unwrap();
            let profile = load(&recording, None, Moment::At(*time));
            let mut live = BTreeMap::new();
            for (frames, amount) in held(&profile) {
                let innermost = frames.first().copied().unwrap_or(0);
                *live.entry(innermost).or_insert((0, 0)) = (amount.bytes.0, amount.blocks.0);
            }
            let expected: BTreeMap<u64, (u64, u64)> =
                expected.iter().map(|(stack, live)| (*stack, (live.bytes.0, live.blocks.0))).collect();
            prop_assert_eq!(&live, &expected);
            for by in [PartBy::Size, PartBy::Thread] {
                prop_assert_eq!(broken_down(&recording, by, None, Moment::At(*time)).whole.live, profile.whole);
            }
        }
    }
}
