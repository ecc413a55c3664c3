//! Checks that the recorder's totals and those of a replay are the same, and that both agree with a
//! simple model.

use std::collections::{BTreeMap, BTreeSet};

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::{
    Compressor, Counts, EventKind, EventsBuffer, Footer, FreedBlock, ImageCounts, ImageEndReason, ImageId, ImageStart,
    Live, ModuleId, Node, NodeCache, NodeKind, NodesEncoder, Record, Recording, RecordingWriter, Session, Site,
    SitesEncoder, Text, TextId, Time, encode_records,
};
use heapledger_symbols::{Symbolizer, SymbolizerOptions};
use proptest::prelude::*;

use crate::testing::{self, steps, write};
use crate::*;

/// The amount of each stack, by its frames.
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

fn names<'r, 'a>(recording: &'r Recording<'a>) -> Names<'r, 'a> {
    Names::new(recording, Symbolizer::new(SymbolizerOptions::default()))
}

fn selection(process: Option<u32>, moment: Moment) -> Selection {
    Selection { filter: process.map(Filter::process).unwrap_or_default(), ..Selection::at(moment) }
}

fn load(recording: &Recording<'_>, process: Option<u32>, moment: Moment) -> Profile {
    Profile::load(&mut names(recording), &selection(process, moment), &mut |_, _| ()).expect("a profile")
}

fn broken_down(recording: &Recording<'_>, by: PartBy, process: Option<u32>, moment: Moment) -> Parts {
    parts(&mut names(recording), by, &selection(process, moment), &mut |_, _| ()).expect("a breakdown")
}

/// A block from its allocation to its end.
struct BlockLife {
    size: u64,
    thread: u32,
    /// Its stack, and the stacks that it was reattributed to, each with the time.
    stacks: Vec<(u64, StackProperties)>,
    allocated_at: u64,
    freed: Option<u64>,
    /// The number of allocations that its thread had made before it, and until it was freed.
    made_before: u64,
    made_until: Option<u64>,
    /// The size of the block that it replaced in a reallocation.
    replaced: Option<u64>,
    /// The time when its image ended.
    over: u64,
    is_of_last_image: bool,
}

/// The properties of a stack.
#[derive(Clone)]
struct StackProperties {
    frames: Vec<u64>,
    context: &'static str,
    heap: Option<&'static str>,
    stamp: Option<&'static str>,
}

impl BlockLife {
    /// Returns its stack after all reattributions before a time.
    fn before(&self, time: u64) -> &StackProperties {
        let moved = self.stacks.iter().skip(1).rfind(|(moved, _)| *moved < time);
        &moved.unwrap_or(&self.stacks[0]).1
    }

    /// Returns its last stack.
    fn properties(&self) -> &StackProperties {
        self.before(u64::MAX)
    }

    fn is_live(&self, time: u64) -> bool {
        self.allocated_at <= time && self.freed.is_none_or(|freed| freed > time) && self.over > time
    }
}

/// Returns every block of a recording, by plain bookkeeping.
fn block_lives(recording: &Recording<'_>) -> Vec<BlockLife> {
    let mut block_lives = Vec::new();
    for image in recording.images() {
        let tree = recording.stack_tree(image.image, &mut NodeCache::default());
        let properties = |stack: StackId| {
            let is_frame = |node: &&Node| node.kind == NodeKind::Frame;
            let frames = tree.frames(stack).filter(is_frame).map(|node| node.offset).collect::<Vec<_>>();
            let (context, heap, stamp) = (testing::context(stack), testing::heap(stack), testing::stamp(stack));
            StackProperties { frames, context, heap, stamp }
        };
        let end = recording.image_end(image.image);
        let over = end.map_or(recording.footer().unwrap().time.0 + 1, |end| end.time.0);
        let is_of_last_image = end.is_none_or(|end| end.reason != ImageEndReason::Exec);
        let mut places = BTreeMap::new();
        let mut made: BTreeMap<u32, u64> = BTreeMap::new();
        let mut buffer = EventsBuffer::default();
        for chunk in recording.event_chunks(image.image) {
            for event in chunk.decode(&mut buffer).unwrap().as_slice() {
                let (freed, allocated) = match event.kind {
                    EventKind::Alloc { serial, size, stack } => (None, Some((serial, size, stack))),
                    EventKind::Realloc { old, serial, size, stack } => (Some(old), Some((serial, size, stack))),
                    EventKind::Free { block } => (Some(block), None),
                    EventKind::Failed { .. } => (None, None),
                    EventKind::Reattributed { block, stack } => {
                        let life: &mut BlockLife = &mut block_lives[places[&block]];
                        life.stacks.push((event.time.0, properties(stack)));
                        continue;
                    }
                };
                if let Some(FreedBlock::Known(serial)) = freed {
                    let life: &mut BlockLife = &mut block_lives[places[&serial]];
                    life.freed = Some(event.time.0);
                    life.made_until = Some(made[&life.thread]);
                }
                if let Some((serial, size, stack)) = allocated {
                    places.insert(serial, block_lives.len());
                    let (size, thread, allocated_at) = (size.0, event.thread.0, event.time.0);
                    let replaced = match freed {
                        Some(FreedBlock::Known(old)) => Some(block_lives[places[&old]].size),
                        _ => None,
                    };
                    let made_before = *made.entry(thread).or_default();
                    made.insert(thread, made_before + 1);
                    let (freed, made_until) = (None, None);
                    block_lives.push(BlockLife {
                        size,
                        thread,
                        stacks: vec![(event.time.0, properties(stack))],
                        allocated_at,
                        freed,
                        made_before,
                        made_until,
                        replaced,
                        over,
                        is_of_last_image,
                    });
                }
            }
        }
    }
    block_lives
}

/// True if a pattern matches one scope of the block, or its whole context.
fn is_in_context(pattern: &Pattern, properties: &StackProperties) -> bool {
    let scopes = properties.context.split(" > ").filter(|_| properties.context != "(no context)");
    pattern.matches(properties.context)
        || scopes.clone().any(|scope| pattern.matches(scope))
        || scopes.clone().any(|scope| pattern.matches(scope.split('{').next().unwrap_or_default()))
}

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

    #[test]
    fn filters_leave_out_what_they_say(
        steps in steps(60),
        bounds in any::<[prop::sample::Index; 4]>(),
        thread in 0_u32..3,
        function in 100_u64..106,
    ) {
        let (finished, unfinished, truth) = write(&steps);
        if truth.history.is_empty() {
            return Ok(());
        }
        let whole = Recording::open(&finished).unwrap();
        let block_lives = block_lives(&whole);
        let end = whole.footer().unwrap().time.0;
        let range = |a: usize, b: usize, most: u64| {
            let (a, b) = (bounds[a].index(most as usize + 1) as u64, bounds[b].index(most as usize + 1) as u64);
            a.min(b)..=a.max(b)
        };
        let function = Pattern::new(&format!("/\\+{function:#x}$/")).unwrap();
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text).unwrap()).collect::<Vec<_>>();
        let base = Filter::default();
        let filters = [
            Filter { size: Some(range(0, 1, 300)), ..base.clone() },
            Filter { lifetime: Some(range(0, 1, end / 3)), ..base.clone() },
            Filter { allocated: Some(range(0, 1, end)), ..base.clone() },
            Filter { functions: vec![function.clone()], ..base.clone() },
            Filter { not_allocated_by: vec![function.clone()], size: Some(0..=100), ..base.clone() },
            Filter { processes: vec![ProcessPattern::Program(Pattern::new("/^model$/").unwrap())], ..base.clone() },
            Filter { threads: vec![ThreadPattern::Number(thread)], ..base.clone() },
            Filter { contexts: patterns(&["request*", "parse"]), ..base.clone() },
            Filter { not_contexts: patterns(&["request{v=1} > *"]), heaps: patterns(&["are", "(no h"]), ..base.clone() },
            Filter {
                allocated: Some(range(0, 1, end)),
                lifetime: Some(range(2, 3, end)),
                threads: vec![ThreadPattern::Number(thread)],
                not_functions: vec![function],
                ..base
            },
        ];
        let is_in = |range: &Option<std::ops::RangeInclusive<u64>>, value: u64| {
            range.as_ref().is_none_or(|range| range.contains(&value))
        };
        let matches = |filter: &Filter, life: &BlockLife, properties: &StackProperties| {
            let is = |pattern: &Pattern| properties.frames.first().is_some_and(|frame| pattern.matches(&format!("+{frame:#x}")));
            is_in(&filter.size, life.size)
                && is_in(&filter.lifetime, life.freed.unwrap_or(life.over.min(end)) - life.allocated_at)
                && is_in(&filter.allocated, life.allocated_at)
                && (filter.threads.is_empty() || life.thread == thread)
                && filter.contexts.iter().all(|pattern| is_in_context(pattern, properties))
                && !filter.not_contexts.iter().any(|pattern| is_in_context(pattern, properties))
                && (filter.heaps.is_empty() || filter.heaps.iter().any(|it| it.matches(properties.heap.unwrap_or("(no heap)"))))
                && filter.functions.iter().all(is)
                && !filter.not_functions.iter().chain(&filter.not_allocated_by).any(is)
        };
        let at = truth.history[bounds[0].index(truth.history.len())].0;
        let peak = truth.counts.bytes_live_max_time;
        for filter in &filters {
            let of_thread = !filter.threads.is_empty();
            if of_thread && !block_lives.iter().any(|life| life.thread == thread) {
                continue;
            }
            for moment in [Moment::Total, Moment::End, Moment::Peak, Moment::At(at)] {
                let selection = Selection { filter: filter.clone(), ..Selection::at(moment) };
                let is_there = |life: &&BlockLife| match moment {
                    Moment::Total => true,
                    Moment::End => life.freed.is_none() && life.is_of_last_image,
                    Moment::Peak => life.is_live(peak.0) && truth.counts.bytes_live_max.0 > 0,
                    Moment::At(at) => life.is_live(at.0),
                };
                let expected = block_lives.iter().filter(is_there).filter(|life| {
                    // At the peak, a block has the stack that it had then.
                    let properties = match moment {
                        Moment::Peak => life.before(peak.0),
                        Moment::At(at) => life.before(at.0 + 1),
                        Moment::Total | Moment::End => life.properties(),
                    };
                    matches(filter, life, properties)
                });
                let expected = expected.fold((0, 0), |(bytes, blocks), life| (bytes + life.size, blocks + 1));
                for bytes in [&finished, &unfinished] {
                    let recording = Recording::open(bytes).unwrap();
                    // An unfinished recording has neither its threads nor the ends of its images.
                    if recording.footer().is_none() && (of_thread || filter.lifetime.is_some()) {
                        continue;
                    }
                    let profile = Profile::load(&mut names(&recording), &selection, &mut |_, _| ()).unwrap();
                    let found = (profile.whole.bytes.0, profile.whole.blocks.0);
                    prop_assert_eq!(found, expected, "{:?}", &selection);
                    let sizes = parts(&mut names(&recording), PartBy::Size, &selection, &mut |_, _| ()).unwrap();
                    prop_assert_eq!(sizes.whole.at(moment), profile.whole);
                    let totals = totals(&mut names(&recording), &selection, &mut |_, _| ()).unwrap();
                    prop_assert_eq!(totals.selected.at(moment), profile.whole);
                    if filter.allocated.is_none() {
                        let all = load(&recording, None, moment).whole;
                        prop_assert_eq!(all.blocks.0, profile.whole.blocks.0 + profile.left_out.blocks.0);
                        prop_assert_eq!(all.bytes.0, profile.whole.bytes.0 + profile.left_out.bytes.0);
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_that_are_freed_soon(steps in steps(150), allocations in 0_u64..4, time in 0_u64..30) {
        let (finished, ..) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let block_lives = block_lives(&recording);
        let size = Filter { size: Some(50..=250), ..Filter::default() };
        for (within, is) in [
            (LifetimeCondition::Allocations(allocations), &(|life: &&BlockLife| {
                life.made_until.is_some_and(|made| made - life.made_before - 1 <= allocations)
            }) as &dyn Fn(&&BlockLife) -> bool),
            (LifetimeCondition::Freed(time), &|life: &&BlockLife| life.freed.is_some_and(|freed| freed - life.allocated_at <= time)),
        ] {
            for filter in [Filter::default(), size.clone()] {
                let is_selected = |life: &&BlockLife| filter.size.as_ref().is_none_or(|size| size.contains(&life.size));
                let selection = Selection { filter: filter.clone(), ..Selection::at(Moment::Total) };
                let profile =
                    Profile::load_within(&mut names(&recording), &selection, &within, &mut |_, _| ()).unwrap();
                let selected: Vec<&BlockLife> = block_lives.iter().filter(is_selected).collect();
                let soon = selected.iter().filter(|life| is(life)).count();
                let found = profile.whole.temporaries.0 as usize;
                prop_assert_eq!(profile.whole.blocks.0 as usize, selected.len());
                prop_assert_eq!(found, soon);
            }
        }
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

    #[test]
    fn neighbours_add_up(steps in steps(150), function in 100_u64..106) {
        let (finished, ..) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let profile = load(&recording, None, Moment::Total);
        let mut names = names(&recording);
        let pattern = Pattern::new(&format!("/\\+{function:#x}$/")).unwrap();
        let through = Filter { functions: vec![pattern.clone()], ..Filter::default() };
        let selection = Selection { filter: through, ..Selection::at(Moment::Total) };
        let expected = Profile::load(&mut names, &selection, &mut |_, _| ()).unwrap().whole;
        for relation in [Relation::Callers, Relation::Callees] {
            let found = relations(&profile, &mut names, &pattern, relation, Metric::Bytes);
            prop_assert_eq!(found.whole, expected);
            let mut sum = Amount::default();
            found.neighbours.iter().for_each(|(_, amount)| sum += *amount);
            prop_assert_eq!(sum, expected);
        }
    }

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
    fn groups_add_up(steps in steps(150)) {
        let (finished, _, _) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let mut names = names(&recording);
        let profile = load(&recording, None, Moment::Total);
        let block_lives = block_lives(&recording);
        let innermost = |context: &str| context.rsplit(" > ").next().unwrap().split('{').next().unwrap().to_owned();
        for (by, called) in [
            (RankBy::Context, &(|life: &BlockLife| life.properties().context.to_owned()) as &dyn Fn(&BlockLife) -> String),
            (RankBy::Scope, &|life| innermost(life.properties().context)),
            (RankBy::Task, &|life| if life.properties().context == "(no context)" { "(no task)" } else { "request{v=1}" }.to_owned()),
            (RankBy::Heap, &|life| life.properties().heap.unwrap_or("(no heap)").to_owned()),
            (RankBy::Type(TypeBy::Element), &|life| life.properties().stamp.unwrap_or(UNKNOWN_TYPE).to_owned()),
        ] {
            let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
            for life in &block_lives {
                let sum = expected.entry(called(life)).or_default();
                *sum = (sum.0 + life.size, sum.1 + 1);
            }
            let ranks = rank(&profile, &mut names, by, Metric::Bytes);
            let found = ranks.iter().map(|rank| {
                let called = names.function(rank.frame.function).short.to_string();
                (called, (rank.amount.bytes.0, rank.amount.blocks.0))
            });
            prop_assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
            prop_assert!(ranks.len() <= 3);
        }
        for metric in [Metric::Bytes, Metric::Blocks, Metric::Temporaries] {
            let groups = types(&profile, &mut names, TypeBy::Block, metric);
            let ranks = rank(&profile, &mut names, RankBy::Type(TypeBy::Block), metric);
            let ranked = ranks.iter().map(|rank| {
                (names.function(rank.frame.function).full.to_string(), (rank.amount.by(metric), rank.sites))
            });
            let grouped =
                groups.iter().map(|group| (group.name.full().to_owned(), (group.amount.by(metric), group.sites.len())));
            prop_assert_eq!(grouped.collect::<BTreeMap<_, _>>(), ranked.collect::<BTreeMap<_, _>>());
            prop_assert!(groups.is_sorted_by_key(|group| std::cmp::Reverse(group.amount.by(metric))));
            for group in &groups {
                let is_stamped = group.name.full() != UNKNOWN_TYPE;
                prop_assert_eq!(group.certainty == Certainty::Stamped, is_stamped);
                prop_assert!(!group.is_mixed);
            }
        }
        for metric in [Metric::Bytes, Metric::Blocks, Metric::Temporaries] {
            for by in [RankBy::Site, RankBy::Function, RankBy::Module, RankBy::Owner, RankBy::Line, RankBy::File] {
                let ranks = rank(&profile, &mut names, by, metric);
                let mut sum = 0;
                for (rank, next) in ranks.iter().zip(ranks.iter().skip(1).map(Some).chain([None])) {
                    sum += rank.amount.by(metric);
                    prop_assert!(next.is_none_or(|next| next.amount.by(metric) <= rank.amount.by(metric)));
                }
                prop_assert_eq!(sum, profile.whole.by(metric));
            }
            let layers: [&[Layer]; 4] = [
                &[Layer::Stack],
                &[Layer::Context],
                &[Layer::Context, Layer::Stack],
                &[Layer::Stack, Layer::Context, Layer::Group(RankBy::Heap)],
            ];
            let ways = [Direction::TopDown, Direction::BottomUp].map(|way| layers.map(|layers| (way, layers)));
            for (direction, layers) in ways.into_iter().flatten() {
                let tree = CallTree::new(&profile, &mut names, layers, direction, metric);
                if direction == Direction::TopDown && layers[0] == Layer::Context {
                    let outermost = tree.children(CallId::ROOT).iter().filter_map(|&id| tree.node(id).function);
                    for function in outermost {
                        let name = names.function(function);
                        let is_outermost = ["(no context)", "request{v=1}"].contains(&&*name.short);
                        prop_assert!(name.is_label && is_outermost);
                    }
                }
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

/// Nodes of contexts and heaps that are not where they belong are ignored.
#[test]
fn what_is_not_where_it_belongs_is_left_out() {
    use NodeKind::{Context, Frame, Heap, Scope, Value};
    let compressor = &mut Compressor::new();
    let texts = ["a", "b", "v", "a"];
    let mut records = vec![Record::ImageStart(ImageStart::default())];
    records.extend(
        (1..)
            .zip(texts)
            .map(|(text, bytes)| Record::Text(Text { text: TextId(text), bytes: bytes.into(), ..Text::default() })),
    );
    let mut encoder = NodesEncoder::new(ImageId(0));
    for (id, parent, kind, offset) in [
        (1, 0, Frame, 100),
        (2, 1, Frame, 101),
        // a > b{v}; a value under a value; one under the root; one with an unknown text.
        (10, 0, Scope, 1),
        (11, 10, Scope, 2),
        (12, 11, Value, 3),
        (13, 12, Value, 1),
        (14, 0, Value, 3),
        (15, 0, Scope, 77),
        // The same again, with a frame in between and under other numbers.
        (16, 0, Scope, 4),
        (17, 16, Frame, 9),
        (18, 17, Scope, 2),
        (19, 18, Value, 3),
        // Nodes that are where they belong, and nodes that are not.
        (20, 2, Context, 12),
        (21, 2, Context, 13),
        (22, 2, Context, 19),
        (23, 2, Context, 14),
        (24, 2, Context, 999),
        (25, 2, Context, 25),
        (26, 20, Heap, 2),
        (27, 26, Heap, 3),
        (28, 26, Context, 10),
        (29, 26, Frame, 102),
        (30, 12, Frame, 103),
        (31, 0, Context, 15),
        (32, 20, Context, 10),
        (33, 2, Context, u64::MAX),
        (34, 2, Heap, u64::MAX),
    ] {
        let (id, parent, module) = (StackId(id), StackId(parent), ModuleId::UNKNOWN);
        encoder.push(&Node { id, parent, kind, module, offset }).unwrap();
    }
    let mut writer = RecordingWriter::new();
    let sites: Vec<Site> = (0..40).map(|id| Site { stack: StackId(id), ..Site::default() }).collect();
    let mut chunks = encode_records(&records, compressor).unwrap();
    chunks.extend(encoder.finish(compressor));
    chunks.extend(SitesEncoder::encode(ImageId(0), &sites, compressor).unwrap());
    chunks.iter().for_each(|chunk| writer.push(chunk));
    writer.finish(&Footer::default(), compressor);
    let bytes = writer.pending().to_vec();
    let recording = Recording::open(&bytes).unwrap();
    let names = names(&recording);

    let mut merged = crate::stacks::MergedStacks::new(&recording);
    let mut properties = |id: u32| {
        let stack = merged.node(ImageId(0), StackId(id));
        let frames: Vec<u64> = merged.stacks.frames(stack).map(|frame| frame.offset).collect();
        let heap = merged.stacks.heap(stack).map(|heap| names.text(heap)).unwrap_or_default();
        (frames, names.context(&merged.stacks, merged.stacks.context(stack)), heap)
    };
    let stack = || vec![101, 100];
    let mut expect = |id: u32, frames: Vec<u64>, context: &str, heap: &str| {
        assert_eq!(properties(id), (frames, context.to_owned(), heap.to_owned()), "{id}");
    };
    for id in [20, 21, 22] {
        expect(id, stack(), "a > b{v}", "");
    }
    for id in [23, 24, 25, 33] {
        expect(id, stack(), "(no context)", "");
    }
    expect(26, stack(), "a > b{v}", "b");
    expect(27, stack(), "a > b{v}", "v");
    expect(28, stack(), "a", "");
    expect(29, vec![102, 101, 100], "(no context)", "");
    expect(30, vec![103], "(no context)", "");
    expect(31, vec![], "?", "");
    expect(32, stack(), "a", "");
    expect(34, stack(), "(no context)", "?");
    // Equal stacks have the same node.
    let node = |merged: &mut crate::stacks::MergedStacks<'_, '_>, id| merged.node(ImageId(0), StackId(id));
    assert_eq!(node(&mut merged, 20), node(&mut merged, 22));
    assert_ne!(node(&mut merged, 20), node(&mut merged, 2));
    assert_eq!(node(&mut merged, 24), node(&mut merged, 2));
}

#[test]
fn questions_without_an_answer() {
    let (finished, ..) = write(&[]);
    let recording = Recording::open(&finished).unwrap();
    let ask = |process, moment| {
        Profile::load(&mut names(&recording), &selection(process, moment), &mut |_, _| ()).map(|_| ())
    };
    assert_eq!(ask(Some(7), Moment::Peak), Err(Error::NoSuchProcess("7".to_owned())));
    assert_eq!(ask(None, Moment::At(Time(1 << 40))), Err(Error::AfterEnd));
    assert_eq!(ask(None, Moment::Peak), Ok(()));
    assert_eq!(Filter::default().images(&recording), Ok(vec![ImageId(0)]));
}

/// A recording of totals alone answers questions about totals, and returns an error for others.
#[test]
fn questions_to_a_recording_without_events() {
    let compressor = &mut Compressor::new();
    let mut writer = RecordingWriter::new();
    let records = [
        Record::Session(Session { totals_only: true, ..Session::default() }),
        Record::ImageStart(ImageStart { pid: 7, ..ImageStart::default() }),
        Record::ImageCounts(ImageCounts {
            image: ImageId(0),
            counts: Counts { allocations: Blocks(2), ..Counts::default() },
        }),
    ];
    encode_records(&records, compressor).unwrap().iter().for_each(|chunk| writer.push(chunk));
    let live = Live { bytes: Bytes(30), blocks: Blocks(2) };
    let site = Site { live_end: live, live_at_session_peak: live, bytes_allocated: Bytes(30), ..Site::default() };
    SitesEncoder::encode(ImageId(0), &[site], compressor).unwrap().iter().for_each(|chunk| writer.push(chunk));
    writer.finish(&Footer { time: Time(1 << 30), ..Footer::default() }, compressor);
    let bytes = writer.pending().to_vec();
    let recording = Recording::open(&bytes).unwrap();

    assert_eq!(load(&recording, Some(7), Moment::Peak).whole.bytes, Bytes(30));
    assert_eq!(load(&recording, None, Moment::End).whole.blocks, Blocks(2));
    let ask = |selection: Selection| Profile::load(&mut names(&recording), &selection, &mut |_, _| ()).map(|_| ());
    assert_eq!(ask(Selection::at(Moment::At(Time(1)))), Err(Error::NoEvents));
    let filters = [
        Filter { size: Some(0..=1), ..Filter::default() },
        Filter { lifetime: Some(0..=1), ..Filter::default() },
        Filter { allocated: Some(0..=1), ..Filter::default() },
        Filter { threads: vec![ThreadPattern::Number(0)], ..Filter::default() },
    ];
    for filter in filters {
        assert_eq!(ask(Selection { filter, ..Selection::at(Moment::End) }), Err(Error::NoEvents));
    }
    let sizes = parts(&mut names(&recording), PartBy::Size, &Selection::default(), &mut |_, _| ());
    assert_eq!(sizes.map(|_| ()), Err(Error::NoEvents));
}
