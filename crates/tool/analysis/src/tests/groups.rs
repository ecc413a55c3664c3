//! Checks that groups of sites, and trees of calls, add up to the profile that they are made from.

use std::collections::BTreeMap;

use heapledger_recording::{ImageId, Recording};
use proptest::prelude::*;

use super::block_lives::{BlockLife, block_lives};
use super::{broken_down, load, names};
use crate::testing::{steps, steps_of_two_children, write, write_with_pids};
use crate::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

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
                    if metric == Metric::Bytes {
                        let mut group = load(&recording, None, Moment::Total);
                        group.keep_group(&mut names, by, rank.key);
                        prop_assert_eq!((group.whole, group.sites.len()), (rank.amount, rank.sites));
                    }
                }
                prop_assert_eq!(sum, profile.whole.by(metric));
            }
            trees_add_up(&profile, &mut names, metric)?;
        }
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
}

/// Checks the sums in trees of all layers, in both directions.
fn trees_add_up(profile: &Profile, names: &mut Names<'_, '_>, metric: Metric) -> Result<(), TestCaseError> {
    let layers: [&[Layer]; 4] = [
        &[Layer::Stack],
        &[Layer::Context],
        &[Layer::Context, Layer::Stack],
        &[Layer::Stack, Layer::Context, Layer::Group(RankBy::Heap)],
    ];
    let ways = [Direction::TopDown, Direction::BottomUp].map(|way| layers.map(|layers| (way, layers)));
    for (direction, layers) in ways.into_iter().flatten() {
        let tree = CallTree::new(profile, names, layers, direction, metric);
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
    Ok(())
}

/// Processes that had the same pid, one after the other, are two.
#[test]
fn processes_with_one_pid_are_told_apart() {
    let (finished, ..) = write_with_pids(&steps_of_two_children(), 102);
    let recording = Recording::open(&finished).unwrap();
    let pids: Vec<u32> = recording.processes().iter().map(|process| process.pid).collect();
    assert_eq!(pids, [101, 102, 102]);
    let parts = broken_down(&recording, PartBy::Process, None, Moment::Total);
    let mut found: Vec<(Part, u64)> =
        parts.parts.iter().map(|(part, amounts)| (*part, amounts.at(Moment::Total).bytes.0)).collect();
    found.sort_by_key(|(_, bytes)| *bytes);
    assert_eq!(found, [(Part::Process(ImageId(1)), 10), (Part::Process(ImageId(2)), 20)]);
}
