//! Checks that single blocks and their events add up to what profiles have.

use std::collections::{BTreeMap, BTreeSet};

use heapledger_core::Blocks;
use heapledger_recording::{Recording, Time};
use proptest::prelude::*;

use super::block_lives::{BlockLife, block_lives};
use super::{Held, load, names, selection};
use crate::testing::{steps, write};
use crate::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn blocks_are_those_of_the_profile(steps in steps(150), part in 0_u64..=100, process in any::<bool>()) {
        let (finished, _, truth) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let process = process.then(|| recording.images()[0].pid);
        let last = truth.history.last().map_or(0, |(time, _)| time.0);
        let block_lives = block_lives(&recording);
        for moment in [Moment::Peak, Moment::End, Moment::At(Time(last * part / 100))] {
            let blocks = live_blocks(&mut names(&recording), &selection(process, moment), &mut |_, _| ()).unwrap();
            let mut sums = Held::new();
            for block in &blocks.blocks {
                let frames = blocks.stacks.frames(block.stack).map(|frame| frame.offset).collect();
                let one = Amount { bytes: block.size, blocks: Blocks(1), ..Amount::default() };
                *sums.entry(frames).or_default() += one;
                let (thread, allocated_at) = block.call.unwrap();
                let is_it = |life: &BlockLife| (life.size, life.thread, life.allocated_at) == (block.size.0, thread.0, allocated_at.0);
                prop_assert!(allocated_at <= block.at && block_lives.iter().any(is_it));
            }
            let mut expected = Held::new();
            let profile = load(&recording, process, moment);
            for site in &profile.sites {
                let frames = profile.stacks.frames(site.stack).map(|frame| frame.offset).collect();
                *expected.entry(frames).or_default() += site.amount;
            }
            prop_assert_eq!(sums, expected, "{:?}", moment);
            prop_assert_eq!((blocks.whole, blocks.left_out), (profile.whole, Amount::default()));
            let keys: BTreeSet<_> = blocks.blocks.iter().map(|block| (block.image, block.serial)).collect();
            prop_assert_eq!(keys.len() as u64, blocks.whole.blocks.0);
            prop_assert!(blocks.blocks.is_sorted_by_key(|block| std::cmp::Reverse(block.size)));
        }
    }

    #[test]
    fn events_add_up_to_what_is_live(steps in steps(150), part in 0_u64..=100, process in any::<bool>()) {
        let (finished, _, truth) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let process = process.then(|| recording.images()[0].pid);
        let last = truth.history.last().map_or(0, |(time, _)| time.0);
        for (moment, heaps) in [
            (Moment::Peak, Heaps::One),
            (Moment::At(Time(last * part / 100)), Heaps::One),
            (Moment::At(Time(last * part / 100)), Heaps::PerProcess),
            (Moment::End, Heaps::PerProcess),
        ] {
            let selection = selection(process, moment);
            let mut live = BTreeMap::new();
            let (mut now, mut wrong) = (Time(0), Vec::new());
            let told = heap_events(&mut names(&recording), &selection, heaps, &mut |_, _| (), |_, _, event| {
                let (key, block) = ((event.image, event.serial), (event.size, event.stack));
                let is_as_expected = match event.what {
                    HeapEventKind::Allocated => live.insert(key, block).is_none(),
                    HeapEventKind::Freed | HeapEventKind::ImageEnded => live.remove(&key) == Some(block),
                };
                if !is_as_expected || event.time < now {
                    wrong.push(*event);
                }
                now = event.time;
                std::ops::ControlFlow::Continue(())
            });
            prop_assert!(wrong.is_empty() && told.unwrap().damage.is_empty(), "{:?}", wrong);
            let blocks = live_blocks(&mut names(&recording), &selection, &mut |_, _| ()).unwrap();
            let expected: BTreeMap<_, _> = blocks.blocks.iter().map(|block| ((block.image, block.serial), block.size)).collect();
            let found: BTreeMap<_, _> = live.iter().map(|(key, (size, _))| (*key, *size)).collect();
            prop_assert_eq!(found, expected, "{:?} {:?}", moment, heaps);
        }
    }

    #[test]
    fn a_selection_has_no_other_temporary_blocks(steps in steps(150), size_max in 0_u64..5000) {
        let (finished, _, _) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let temporaries = |selection: &Selection| {
            let (mut latest, mut found) = (BTreeMap::new(), BTreeSet::new());
            heap_events(&mut names(&recording), selection, Heaps::One, &mut |_, _| (), |_, _, event| {
                let thread = (event.image, event.thread);
                match event.what {
                    HeapEventKind::Allocated => _ = latest.insert(thread, event.serial),
                    HeapEventKind::Freed | HeapEventKind::ImageEnded => {
                        if latest.remove(&thread) == Some(event.serial) && !event.is_interrupted {
                            found.insert((event.image, event.serial, event.size));
                        }
                    }
                }
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            found
        };
        let mut expected = temporaries(&Selection::at(Moment::End));
        expected.retain(|(_, _, size)| size.0 <= size_max);
        let mut selection = Selection::at(Moment::End);
        selection.filter.size = Some(0..=size_max);
        prop_assert_eq!(temporaries(&selection), expected);
    }

    #[test]
    fn nobody_has_to_hear_all_events(steps in steps(150)) {
        let (finished, _, _) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let mut heard = 0;
        let told = heap_events(&mut names(&recording), &Selection::at(Moment::End), Heaps::One, &mut |_, _| (), |_, _, _| {
            heard += 1;
            std::ops::ControlFlow::Break(())
        });
        prop_assert!(told.is_ok() && heard <= 1);
    }

    #[test]
    fn reallocations_are_those_of_plain_bookkeeping(steps in steps(150), most in 0_u64..300) {
        let (finished, ..) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let block_lives = block_lives(&recording);
        let filter = Filter { size: Some(0..=most), ..Filter::default() };
        let selection = Selection { filter, ..Selection::default() };
        let found = reallocations(&mut names(&recording), &selection, None, &mut |_, _| ()).unwrap();
        let expected = block_lives.iter().filter(|life| life.size <= most).filter_map(|life| Some((life.replaced?, life.size)));
        let sum = expected.fold((0, 0, 0, 0), |sum, (old, new)| {
            (sum.0 + 1, sum.1 + u64::from(old < new), sum.2 + u64::from(old > new), sum.3 + old.min(new))
        });
        let whole = found.whole;
        prop_assert_eq!(
            (whole.reallocations.0, whole.grown.0, whole.shrunk.0, whole.bytes_copied_max.0),
            sum
        );
        prop_assert_eq!(found.sites.iter().map(|(_, site)| site.reallocations.0).sum::<u64>(), sum.0);
    }
}
