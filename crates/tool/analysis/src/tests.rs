//! What the recorder left and what a replay counts must be the same, and both what a simple model says.

use std::collections::BTreeMap;

use heapledger_core::Bytes;
use heapledger_recording::{ImageId, Recording, Time};
use heapledger_symbols::{Options, Symbolizer};
use proptest::prelude::*;

use crate::testing::{steps, write};
use crate::*;

/// What every stack holds, by its frames.
type Held = BTreeMap<Vec<u64>, Amount>;

fn held(profile: &Profile) -> Held {
    let mut held = Held::new();
    let mut whole = Amount::default();
    for site in &profile.sites {
        let frames = profile.stacks.frames(site.stack).map(|frame| frame.offset).collect();
        assert!(held.insert(frames, site.amount).is_none(), "equal stacks are one site");
        whole += site.amount;
    }
    assert_eq!(whole, profile.whole);
    held
}

fn load(recording: &Recording<'_>, process: Option<u32>, moment: Moment) -> Profile {
    Profile::load(recording, Selection { process, moment }, &mut |_, _| ()).expect("a profile")
}

fn broken_down(recording: &Recording<'_>, by: By, process: Option<u32>, moment: Moment) -> Breakdown {
    breakdown(recording, by, Selection { process, moment }, &mut |_, _| ()).expect("a breakdown")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

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
                let threads = broken_down(&finished, By::Thread, process, moment);
                let sizes = broken_down(&unfinished, By::Size, process, moment);
                prop_assert_eq!(threads.whole, profile.whole);
                prop_assert_eq!(sizes.whole, profile.whole);
                for (part, amount) in sizes.parts {
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
        // Several steps can be at one time: the last one counts.
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
            for by in [By::Size, By::Thread] {
                prop_assert_eq!(broken_down(&recording, by, None, Moment::At(*time)).whole, profile.whole);
            }
        }
    }

    #[test]
    fn groups_add_up(steps in steps(150)) {
        let (finished, _, _) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let mut names = Names::new(&recording, Symbolizer::new(Options::default()));
        let profile = load(&recording, None, Moment::Total);
        for metric in [Metric::Bytes, Metric::Blocks, Metric::Temporaries] {
            for by in [RankBy::Site, RankBy::Function, RankBy::Module] {
                let ranks = rank(&profile, &mut names, by, metric);
                let mut sum = 0;
                for (rank, next) in ranks.iter().zip(ranks.iter().skip(1).map(Some).chain([None])) {
                    sum += rank.amount.by(metric);
                    prop_assert!(next.is_none_or(|next| next.amount.by(metric) <= rank.amount.by(metric)));
                }
                prop_assert_eq!(sum, profile.whole.by(metric));
            }
            for direction in [Direction::TopDown, Direction::BottomUp] {
                let tree = CallTree::new(&profile, &mut names, direction, metric);
                let mut open = vec![CallId::ROOT];
                let mut own = 0;
                while let Some(id) = open.pop() {
                    let node = tree.node(id);
                    own += node.own.by(metric);
                    let below: u64 = tree.children(id).iter().map(|&child| tree.node(child).amount.by(metric)).sum();
                    prop_assert_eq!(node.amount.by(metric), below + node.own.by(metric));
                    open.extend(tree.children(id));
                }
                prop_assert_eq!(own, profile.whole.by(metric));
                prop_assert_eq!(tree.node(CallId::ROOT).amount, profile.whole);
            }
        }
    }
}

#[test]
fn questions_without_an_answer() {
    let (finished, ..) = write(&[]);
    let recording = Recording::open(&finished).unwrap();
    let ask = |process, moment| Profile::load(&recording, Selection { process, moment }, &mut |_, _| ()).map(|_| ());
    assert_eq!(ask(Some(7), Moment::Peak), Err(Error::NoSuchProcess(7)));
    assert_eq!(ask(None, Moment::At(Time(1 << 40))), Err(Error::AfterEnd));
    assert_eq!(ask(None, Moment::Peak), Ok(()));
    assert_eq!(Selection::default().images(&recording), Ok(vec![ImageId(0)]));
}
