//! Checks that a selection has the blocks that pass its filter, and no others.

use heapledger_recording::Recording;
use proptest::prelude::*;

use super::block_lives::{BlockLife, StackProperties, block_lives};
use super::{load, names};
use crate::testing::{steps, write};
use crate::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

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
        let filters = filters(&bounds, end, thread, function);
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
                    matches(filter, end, life, properties)
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
}

/// Returns filters by each condition, and by several at once.
fn filters(bounds: &[prop::sample::Index; 4], end: u64, thread: u32, function: u64) -> [Filter; 10] {
    let range = |a: usize, b: usize, most: u64| {
        let (a, b) = (bounds[a].index(most as usize + 1) as u64, bounds[b].index(most as usize + 1) as u64);
        a.min(b)..=a.max(b)
    };
    let function = Pattern::new(&format!("/\\+{function:#x}$/")).unwrap();
    let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text).unwrap()).collect::<Vec<_>>();
    let base = Filter::default();
    [
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
    ]
}

/// True if a filter passes a block with these properties; `end` is the time when the session ended.
fn matches(filter: &Filter, end: u64, life: &BlockLife, properties: &StackProperties) -> bool {
    let is_in = |range: &Option<std::ops::RangeInclusive<u64>>, value: u64| {
        range.as_ref().is_none_or(|range| range.contains(&value))
    };
    let is =
        |pattern: &Pattern| properties.frames.first().is_some_and(|frame| pattern.matches(&format!("+{frame:#x}")));
    is_in(&filter.size, life.size)
        && is_in(&filter.lifetime, life.freed.unwrap_or(life.over.min(end)) - life.allocated_at)
        && is_in(&filter.allocated, life.allocated_at)
        && filter.threads.iter().all(|it| *it == ThreadPattern::Number(life.thread))
        && filter.contexts.iter().all(|pattern| is_in_context(pattern, properties))
        && !filter.not_contexts.iter().any(|pattern| is_in_context(pattern, properties))
        && (filter.heaps.is_empty() || filter.heaps.iter().any(|it| it.matches(properties.heap.unwrap_or("(no heap)"))))
        && filter.functions.iter().all(is)
        && !filter.not_functions.iter().chain(&filter.not_allocated_by).any(is)
}

/// True if a pattern matches one scope of the block, or its whole context.
fn is_in_context(pattern: &Pattern, properties: &StackProperties) -> bool {
    let scopes = properties.context.split(" > ").filter(|_| properties.context != "(no context)");
    pattern.matches(properties.context)
        || scopes.clone().any(|scope| pattern.matches(scope))
        || scopes.clone().any(|scope| pattern.matches(scope.split('{').next().unwrap_or_default()))
}
