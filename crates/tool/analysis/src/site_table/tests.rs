//! Compares the answers of tables with those from the recording.

use std::collections::BTreeMap;

use heapledger_profile_formats::{self as profiles, Amounts as ProfileAmounts, Known};
use heapledger_recording::{Recording, Time};
use heapledger_symbols::{Symbolizer, SymbolizerOptions};
use proptest::prelude::*;

use crate::stacks::StackFrame;
use crate::testing::{steps, write};
use crate::*;

const METRICS: [Metric; 3] = [Metric::Bytes, Metric::Blocks, Metric::Temporaries];

fn names<'r, 'a>(recording: &'r Recording<'a>) -> Names<'r, 'a> {
    Names::new(recording, Symbolizer::new(SymbolizerOptions::default()))
}

/// Checks all answers of the table of a selection against those from the recording.
fn compare(recording: &Recording<'_>, selection: &Selection, filters: &[Filter]) -> Result<(), TestCaseError> {
    let mut names = names(recording);
    let table = SiteTable::load(&mut names, selection, &mut |_, _| ()).unwrap();
    // Bottom-up trees need no sorting because of this.
    prop_assert!(table.shared.calls.parents.is_sorted());
    let moments = match selection.moment {
        Moment::At(_) => vec![selection.moment],
        _ => vec![Moment::Peak, Moment::End, Moment::Total],
    };
    for filter in filters {
        let filter = Filter { allocated: selection.filter.allocated.clone(), ..filter.clone() };
        let set = table.select(&mut names, &filter);
        for &moment in &moments {
            prop_assert!(table.knows(moment));
            let asked = Selection { moment, filter: filter.clone(), ..selection.clone() };
            let profile = Profile::load(&mut names, &asked, &mut |_, _| ()).unwrap();
            let found = table.profile(&set, moment);
            prop_assert_eq!(held(&found), held(&profile), "{:?}", &asked);
            prop_assert_eq!(found.whole, profile.whole);
            let sums = table.sums(&set, moment);
            prop_assert_eq!((sums.whole, sums.left_out), (profile.whole, profile.left_out));
            prop_assert_eq!((sums.allocated, sums.sites.len()), (profile.allocated, 0));
            prop_assert_eq!(table.whole(&set, moment), profile.whole);
            prop_assert_eq!(found.left_out, profile.left_out);
            prop_assert_eq!(found.allocated, profile.allocated);
            compare_ranks(&mut names, &table, (&set, moment), &profile)?;
            compare_relations(&mut names, &table, (&set, moment), &profile)?;
            compare_trees(&mut names, &table, (&set, moment), &profile)?;
            compare_shown_trees(&mut names, &table, (&set, moment), &profile)?;
        }
    }
    Ok(())
}

/// The amount of each stack, by its frames and what else tells it apart.
fn held(profile: &Profile) -> Vec<(Vec<StackFrame>, String, Amount)> {
    let stacks = &profile.stacks;
    let site = |site: &Site| {
        let scopes = stacks.scopes(stacks.context(site.stack));
        let declared = format!("{scopes:?} {:?} {:?}", stacks.heap(site.stack), stacks.stamp(site.stack));
        (stacks.frames(site.stack).collect(), declared, site.amount)
    };
    let mut held: Vec<_> = profile.sites.iter().map(site).collect();
    held.sort_by_key(|(frames, declared, _)| (format!("{frames:?}"), declared.clone()));
    held
}

fn compare_ranks(
    names: &mut Names<'_, '_>,
    table: &SiteTable,
    (set, moment): (&SiteSet, Moment),
    profile: &Profile,
) -> Result<(), TestCaseError> {
    use RankBy::{Context, File, Function, Heap, Line, Module, Owner, Scope, Site, Task, Type};
    let all = [Site, Owner, Line, File, Function, Module, Context, Scope, Task, Heap];
    for by in all.into_iter().chain([TypeBy::Block, TypeBy::Element, TypeBy::Container].map(Type)) {
        for metric in METRICS {
            let expected = rank(profile, names, by, metric);
            let found = table.rank(names, set, moment, (by, metric), usize::MAX);
            prop_assert_eq!(&found.ranks, &expected, "{:?} {:?}", by, metric);
            prop_assert_eq!((found.groups, found.whole), (expected.len(), profile.whole));
            prop_assert_eq!(found.left_out, profile.left_out);
            let first = table.rank(names, set, moment, (by, metric), 2);
            prop_assert_eq!(&first.ranks[..], &expected[..expected.len().min(2)]);
            prop_assert_eq!(first.groups, expected.len());
        }
    }
    Ok(())
}

fn compare_relations(
    names: &mut Names<'_, '_>,
    table: &SiteTable,
    (set, moment): (&SiteSet, Moment),
    profile: &Profile,
) -> Result<(), TestCaseError> {
    for pattern in ["parse", "a", "malloc", "0x6", "/main|new/"] {
        let pattern = Pattern::new(pattern).unwrap();
        for relation in [Relation::Callers, Relation::Callees] {
            let expected = relations(profile, names, &pattern, relation, Metric::Blocks);
            let found = table.relations(names, set, moment, (&pattern, relation), Metric::Blocks);
            prop_assert_eq!(&found.neighbours, &expected.neighbours, "{:?} {:?}", &pattern, relation);
            prop_assert_eq!(found.whole, expected.whole);
            prop_assert_eq!(&found.functions, &expected.functions);
        }
    }
    Ok(())
}

/// A call of a tree, as reports print it.
type Shown = (usize, FunctionId, Option<Location>, bool, Amount, Amount);

/// Returns the calls of a tree that have at least this share of the whole, in preorder.
fn shown_calls(tree: &CallTree, metric: Metric, least: f64) -> Vec<Shown> {
    let whole = tree.node(CallId::ROOT).amount;
    let mut shown = Vec::new();
    let mut open = vec![(CallId::ROOT, 0)];
    while let Some((id, depth)) = open.pop() {
        let node = tree.node(id);
        if let Some(function) = node.function {
            shown.push((depth, function, node.location.clone(), node.inlined, node.amount, node.own));
        }
        let is_shown = |child: &&CallId| tree.node(**child).amount.share(&whole, metric) >= least;
        open.extend(tree.children(id).iter().rev().filter(is_shown).map(|&child| (child, depth + 1)));
    }
    shown
}

fn compare_shown_trees(
    names: &mut Names<'_, '_>,
    table: &SiteTable,
    (set, moment): (&SiteSet, Moment),
    profile: &Profile,
) -> Result<(), TestCaseError> {
    for metric in METRICS {
        let expected = CallTree::new(profile, names, &[Layer::Stack], Direction::TopDown, metric);
        for least in [0.0, 0.1, 0.5] {
            let Some(found) = table.call_tree(set, moment, metric, least) else {
                prop_assert!(!table.amounts.is_exact());
                continue;
            };
            let calls = shown_calls(&expected, metric, least);
            prop_assert_eq!(shown_calls(&found, metric, 0.0), calls, "{:?} {}", metric, least);
            let [found, expected] = [&found, &expected].map(|tree| tree.node(CallId::ROOT));
            prop_assert_eq!((found.amount, found.own), (expected.amount, expected.own));
        }
    }
    Ok(())
}

/// The calls of a tree by their paths: the own figures, and those with all calls inside.
type Calls = BTreeMap<Vec<FunctionId>, ([u64; 3], [u64; 3])>;

fn calls_of_tree(tree: &CallTree) -> Calls {
    let figures = |amount: &Amount| METRICS.map(|metric| amount.by(metric));
    let mut calls = Calls::new();
    let mut open = vec![(CallId::ROOT, Vec::new())];
    while let Some((id, path)) = open.pop() {
        let node = tree.node(id);
        for &child in tree.children(id) {
            let function = tree.node(child).function.unwrap();
            open.push((child, path.iter().copied().chain([function]).collect()));
        }
        calls.insert(path, (figures(&node.own), figures(&node.amount)));
    }
    calls
}

/// Returns the calls of columns, and the number of rows that stand for calls that were cut.
fn calls_of_columns(columns: &CallColumns) -> (Calls, usize) {
    let mut calls = Calls::new();
    let (mut path, mut smaller): (Vec<FunctionId>, usize) = (Vec::new(), 0);
    let mut sums: Vec<(Vec<FunctionId>, [u64; 3])> = Vec::new();
    for row in 0..columns.depths.len() {
        let own = [0, 1, 2].map(|metric| columns.own[metric][row]);
        path.truncate((columns.depths[row] as usize).saturating_sub(1));
        match &columns.names[columns.names_of[row] as usize] {
            ColumnName::Smaller => {
                smaller += 1;
                sums.push((path.clone(), own));
                continue;
            }
            ColumnName::Root => assert_eq!((row, columns.depths[row]), (0, 0)),
            ColumnName::Function(function, _) => path.push(*function),
        }
        assert_eq!(path.len(), columns.depths[row] as usize);
        sums.push((path.clone(), own));
        assert!(calls.insert(path.clone(), (own, [0; 3])).is_none(), "{path:?} is there twice");
    }
    for (path, own) in sums {
        for length in 0..=path.len() {
            let (_, sum) = calls.get_mut(&path[..length]).unwrap();
            (0..3).for_each(|metric| sum[metric] += own[metric]);
        }
    }
    (calls, smaller)
}

fn compare_trees(
    names: &mut Names<'_, '_>,
    table: &SiteTable,
    (set, moment): (&SiteSet, Moment),
    profile: &Profile,
) -> Result<(), TestCaseError> {
    for direction in [Direction::TopDown, Direction::BottomUp] {
        let tree = CallTree::new(profile, names, &[Layer::Stack], direction, Metric::Bytes);
        let expected = calls_of_tree(&tree);
        let mut request = ColumnRequest { moment, metrics: METRICS.to_vec(), least: 0.0, direction };
        let columns = table.columns(set, &request);
        prop_assert_eq!(&calls_of_columns(&columns), &(expected.clone(), 0));
        prop_assert_eq!(&columns.cut, &Cut { nodes: 0, figures: vec![0; 3] });
        prop_assert_eq!(&columns.total[..], &METRICS.map(|metric| profile.whole.by(metric))[..]);

        request.least = 0.2;
        let columns = table.columns(set, &request);
        let (kept, _) = calls_of_columns(&columns);
        let whole = profile.whole.bytes.0 as f64;
        for (path, figures) in &expected {
            let is_kept = path.is_empty() || figures.1[0] as f64 >= whole * 0.2;
            prop_assert_eq!(kept.get(path), is_kept.then_some(figures), "{:?}", path);
        }
        if direction == Direction::TopDown {
            prop_assert_eq!(columns.cut.nodes as usize, expected.len() - kept.len());
        }
        let own: u64 = columns.own[0].iter().sum();
        prop_assert_eq!(own, profile.whole.bytes.0);
    }
    Ok(())
}

/// The functions of generated stacks: one that recurses, allocators, and two of one name.
const FUNCTIONS: [(&str, &str); 8] = [
    ("main", "main.rs"),
    ("parse", "parse.rs"),
    ("parse", "other.rs"),
    ("a", ""),
    ("run", "run.rs"),
    ("malloc", ""),
    ("operator new", ""),
    ("realloc", ""),
];

fn location(function: usize, line: u32, inlined: Option<usize>) -> profiles::Location {
    let frame = |function: usize| {
        let (name, file) = (FUNCTIONS[function].0.to_owned(), FUNCTIONS[function].1.to_owned());
        profiles::Frame { full_name: format!("{name}<T>"), function: name, known: true, file, line }
    };
    let frames = inlined.into_iter().chain([function]).map(frame).collect();
    profiles::Location { module: None, address: 0, frames }
}

/// Returns the recording of these stacks of locations, the innermost first.
fn recorded(locations: Vec<profiles::Location>, samples: Vec<profiles::Sample>) -> Vec<u8> {
    let known = Known { allocated: true, temporaries: true, peak: true, end: true, ..Known::NONE };
    let profile = profiles::Profile { known, locations, samples, duration_ns: 1000, pid: 7, ..Default::default() };
    let mut bytes = Vec::new();
    import(&[profile], "a test", &mut bytes).unwrap();
    bytes
}

fn sample() -> impl Strategy<Value = profiles::Sample> {
    let amount = (0_u64..4, 0_u64..100).prop_map(|(blocks, bytes)| profiles::Amount { blocks, bytes: blocks * bytes });
    let label = |name: &'static str, values: [&'static str; 2]| {
        prop::option::weighted(0.3, prop::sample::select(values.to_vec()).prop_map(move |value| (name, value)))
    };
    let labels = (
        label("context", ["request", "request/parse"]),
        label("heap", ["arena", "pool"]),
        label("type", ["Token", "Page"]),
    );
    let stack = prop::collection::vec(0..LOCATIONS, 0..9);
    (stack, labels, amount.clone(), amount.clone(), amount, 0_u64..3).prop_map(
        |(locations, (context, heap, stamp), allocated, peak, end, temporaries)| profiles::Sample {
            locations,
            labels: [context, heap, stamp]
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            amounts: ProfileAmounts { allocated, temporaries, peak, end, ..ProfileAmounts::default() },
        },
    )
}

const LOCATIONS: usize = 14;

fn filters() -> Vec<Filter> {
    let of = |text: &str| vec![Pattern::new(text).unwrap()];
    vec![
        Filter::default(),
        Filter { functions: of("parse"), ..Filter::default() },
        Filter { functions: of("malloc"), not_functions: of("a"), ..Filter::default() },
        Filter { not_functions: of("/0x6[0-7]$/"), ..Filter::default() },
        Filter { allocated_by: [of("parse"), of("run")].concat(), ..Filter::default() },
        Filter { not_allocated_by: of("main"), ..Filter::default() },
        Filter { modules: of("model"), ..Filter::default() },
        Filter { not_modules: of("/.*/"), ..Filter::default() },
        Filter { contexts: of("request"), ..Filter::default() },
        Filter { not_contexts: of("*parse"), heaps: of("(no heap)"), ..Filter::default() },
        Filter { heaps: of("arena"), ..Filter::default() },
        Filter { types: of("Token"), ..Filter::default() },
        Filter { functions: of("no such function"), ..Filter::default() },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn answers_are_those_of_the_profile(samples in prop::collection::vec(sample(), 0..25)) {
        let locations = (0..LOCATIONS).map(|at| location(at % 8, at as u32 / 8, (at == 9).then_some(3))).collect();
        let bytes = recorded(locations, samples);
        compare(&Recording::open(&bytes).unwrap(), &Selection::default(), &filters())?;
    }

    #[test]
    fn answers_are_those_of_sessions(steps in steps(60), at in any::<prop::sample::Index>()) {
        let (finished, unfinished, truth) = write(&steps);
        if truth.history.is_empty() {
            return Ok(());
        }
        let time = at.get(&truth.history).0;
        let few = filters().split_off(8);
        let recorded = |bytes: &[u8]| {
            let recording = Recording::open(bytes).unwrap();
            SiteTable::load_recorded(&mut names(&recording), &Filter::default()).unwrap().is_some()
        };
        prop_assert!(!recorded(&unfinished), "there are no totals");
        for bytes in [&finished, &unfinished] {
            let recording = Recording::open(bytes).unwrap();
            compare(&recording, &Selection::default(), &few)?;
            compare(&recording, &Selection::at(Moment::At(time)), &few[..2])?;
            let allocated = Filter { allocated: Some(0..=time.0), ..Filter::default() };
            compare(&recording, &Selection { filter: allocated, ..Selection::default() }, &few[..2])?;
        }
    }
}

/// Stacks may be deeper than a thread's own stack would allow a recursion to be.
#[test]
fn deep_stacks() {
    let deep = 30_000;
    let amounts = ProfileAmounts { allocated: profiles::Amount { blocks: 1, bytes: 10 }, ..ProfileAmounts::default() };
    let sample = |locations| profiles::Sample { locations, labels: Vec::new(), amounts };
    let samples = vec![sample(vec![0; deep]), sample(vec![0; deep / 2]), sample(vec![])];
    let bytes = recorded(vec![location(1, 1, None)], samples);
    let recording = Recording::open(&bytes).unwrap();
    let mut names = names(&recording);
    let table = SiteTable::load(&mut names, &Selection::default(), &mut |_, _| ()).unwrap();
    for direction in [Direction::TopDown, Direction::BottomUp] {
        let metrics = vec![Metric::Bytes];
        let request = ColumnRequest { moment: Moment::Total, metrics, least: 0.0, direction };
        let columns = table.columns(&table.all(), &request);
        assert_eq!(columns.depths.iter().max(), Some(&(deep as u32)));
        assert_eq!((columns.depths.len(), columns.total[0]), (deep + 2, 30));
    }
    assert!(!table.knows(Moment::At(Time(1))));
}

/// The groups as people see them: ids mean nothing to them.
fn shown(names: &Names<'_, '_>, ranks: &[Rank]) -> Vec<(String, Amount, usize)> {
    let name = |rank: &Rank| names.function(rank.frame.function).short.to_string();
    ranks.iter().map(|rank| (name(rank), rank.amount, rank.sites)).collect()
}

#[test]
fn names_and_sites_outlive_an_open_recording() {
    let amounts =
        |bytes| ProfileAmounts { allocated: profiles::Amount { blocks: 1, bytes }, ..ProfileAmounts::default() };
    // Groups of equal amounts, in another order than that of their functions.
    let sample = |at: u64| profiles::Sample {
        locations: vec![(7 * at % 8) as usize, 0],
        labels: Vec::new(),
        amounts: amounts(10 + at % 2),
    };
    let locations = (0..8).map(|at| location(at, at as u32, None)).collect();
    let bytes = recorded(locations, (0..20).map(sample).collect());
    let (known, table) = {
        let recording = Recording::open(&bytes).unwrap();
        let mut names = names(&recording);
        let table = SiteTable::load_recorded(&mut names, &Filter::default()).unwrap().expect("no replay");
        assert!(table.memory_bytes() > 0);
        // Earlier questions look other names up first.
        table.prepare(&mut names, RankBy::Line);
        table.prepare(&mut names, RankBy::Type(TypeBy::Block));
        let known = names.take_known();
        assert_eq!(names.functions_met(), 0);
        (known, table)
    };
    assert!(known.memory_bytes() > 0);
    let recording = Recording::open(&bytes).unwrap();
    let mut kept = known.of(&recording);
    for by in [RankBy::Function, RankBy::Owner, RankBy::Type(TypeBy::Block), RankBy::File] {
        for moment in [Moment::Peak, Moment::End, Moment::Total] {
            let mut fresh = names(&recording);
            let profile = Profile::load(&mut fresh, &Selection::at(moment), &mut |_, _| ()).unwrap();
            let expected = rank(&profile, &mut fresh, by, Metric::Bytes);
            let found = table.rank(&mut kept, &table.all(), moment, (by, Metric::Bytes), usize::MAX).ranks;
            assert_eq!(shown(&kept, &found), shown(&fresh, &expected), "{by:?} {moment:?}");
            assert!(moment != Moment::Total || !found.is_empty());
        }
    }
}
