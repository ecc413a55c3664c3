//! Compares cubes with replays.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;

use heapledger_recording::{EventKind, EventsBuffer, FreedBlock, ImageId, Recording, Time};
use heapledger_symbols::{Symbolizer, SymbolizerOptions};
use proptest::prelude::*;

use super::cells::{Cell, CellKey, EndKind};
use super::file::RecordingIdentity;
use super::parts::{PartRow, Parts};
use super::{CUBE_INTERVALS, Cube, CubeOptions, CubeQuestion, CubeSite};
use crate::site_table::amounts::Amounts;
use crate::stacks::StackFrame;
use crate::testing::{steps, steps_around_a_checkpoint, write};
use crate::*;

fn names<'r, 'a>(recording: &'r Recording<'a>) -> Names<'r, 'a> {
    Names::new(recording, Symbolizer::new(SymbolizerOptions::default()))
}

fn cube(names: &mut Names<'_, '_>, options: &CubeOptions<'_>) -> (SiteTable, Result<Cube, Error>) {
    let selection = Selection::default();
    let table = SiteTable::load(names, &selection, &mut |_, _| ()).unwrap();
    let cube = Cube::build(names, &table, &selection, options, &mut |_, _| ());
    (table, cube)
}

/// Returns the bytes and blocks of each stack, by its frames and what else tells it apart.
fn held(profile: &Profile) -> Vec<(String, (u64, u64))> {
    let stacks = &profile.stacks;
    let mut held: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for site in &profile.sites {
        let frames: Vec<StackFrame> = stacks.frames(site.stack).collect();
        let scopes = stacks.scopes(stacks.context(site.stack));
        let key = format!("{frames:?} {scopes:?} {:?} {:?}", stacks.heap(site.stack), stacks.stamp(site.stack));
        let sum = held.entry(key).or_default();
        *sum = (sum.0 + site.amount.bytes.0, sum.1 + site.amount.blocks.0);
    }
    held.into_iter().collect()
}

/// Compares the answers to a question about time.
fn compare(
    names: &mut Names<'_, '_>,
    cube: &Cube,
    question: CubeQuestion,
    filter: &Filter,
) -> Result<(), TestCaseError> {
    let moment = cube.moment(question);
    let selection = Selection { filter: filter.clone(), ..Selection::at(moment) };
    let expected = match Profile::load(names, &selection, &mut |_, _| ()) {
        Ok(profile) => profile,
        Err(Error::AfterEnd) => return Ok(()),
        Err(error) => panic!("{error}"),
    };
    let table = cube.table(question, None);
    prop_assert!(table.knows(moment));
    let found = table.profile(&table.all(), moment);
    prop_assert_eq!(held(&found), held(&expected), "{:?} {:?}", question, moment);
    prop_assert_eq!(
        found.allocated.map(|it| (it.bytes, it.blocks)),
        expected.allocated.map(|it| (it.bytes, it.blocks))
    );
    Ok(())
}

fn compare_times(recording: &Recording<'_>, ends: [usize; 2]) -> Result<(), TestCaseError> {
    let mut names = names(recording);
    let (table, cube) = cube(&mut names, &CubeOptions::default());
    let cube = cube.unwrap();
    prop_assert_eq!(cube.merged(), 0);
    let (from, until) = (ends[0].min(ends[1]), ends[0].max(ends[1]).max(1));
    let allocated = Filter { allocated: Some(cube.times(from, until)), ..Filter::default() };
    compare(&mut names, &cube, CubeQuestion::LiveAt(until), &Filter::default())?;
    compare(&mut names, &cube, CubeQuestion::LiveAt(CUBE_INTERVALS), &Filter::default())?;
    if from < until {
        compare(&mut names, &cube, CubeQuestion::Allocated(from, until), &allocated)?;
        compare(&mut names, &cube, CubeQuestion::LiveSince(from, until), &allocated)?;
        let table = cube.table(CubeQuestion::Freed(from, until), None);
        let whole = table.whole(&table.all(), Moment::Total);
        prop_assert_eq!((whole.bytes.0, whole.blocks.0), freed(recording, &cube.times(from, until)));
    }
    let all = cube.table(CubeQuestion::Allocated(0, CUBE_INTERVALS), None);
    let whole = |table: &SiteTable| table.whole(&table.all(), Moment::Total);
    prop_assert_eq!((whole(&all).bytes, whole(&all).blocks), (whole(&table).bytes, whole(&table).blocks));
    let ended: u64 = cube.lifetimes(&all.all(), None).iter().map(|(_, amount)| amount.blocks.0).sum();
    prop_assert_eq!(ended, whole(&table).blocks.0);
    compare_parts(&mut names, &cube)?;
    compare_shares(&mut names, &cube)
}

/// Compares the rows by thread, process and size class with replays that break down by these.
fn compare_parts(names: &mut Names<'_, '_>, cube: &Cube) -> Result<(), TestCaseError> {
    let set = cube.table(CubeQuestion::LiveAt(1), None).all();
    for by in [PartBy::Thread, PartBy::Process, PartBy::SizeClass] {
        let expected = parts(names, by, &Selection::at(Moment::Peak), &mut |_, _| ()).unwrap();
        let mut expected: Vec<(Part, MomentAmounts)> = expected.parts;
        expected.sort_unstable_by_key(|(part, _)| *part);
        prop_assert_eq!(cube.parts(&set, by).unwrap(), expected, "{:?}", by);
    }
    prop_assert!(cube.parts(&set, PartBy::Size).is_none());
    let size = 65..=128;
    let is_in = |part: Part| part == Part::SizeClass(heapledger_core::Bytes(128));
    let table = cube.table_of_parts(PartBy::SizeClass, is_in).unwrap();
    for moment in [Moment::Peak, Moment::End, Moment::Total] {
        let filter = Filter { size: Some(size.clone()), ..Filter::default() };
        let selection = Selection { filter, ..Selection::at(moment) };
        let expected = Profile::load(names, &selection, &mut |_, _| ()).unwrap();
        let found = table.profile(&table.all(), moment);
        prop_assert_eq!(held(&found), held(&expected));
        prop_assert_eq!((found.whole, found.left_out), (expected.whole, expected.left_out));
    }
    Ok(())
}

/// Compares what groups held over time.
fn compare_shares(names: &mut Names<'_, '_>, cube: &Cube) -> Result<(), TestCaseError> {
    let set = cube.table(CubeQuestion::LiveAt(1), None).all();
    let found = cube.shares(names, &set, (RankBy::Function, Metric::Bytes), None, 3);
    let times = &cube.boundaries()[1..];
    let by = SharesBy::Rank(RankBy::Function);
    let expected = Shares::load(names, &Selection::at(Moment::Total), by, 100, times, &mut |_, _| ()).unwrap();
    let held: BTreeMap<String, &Vec<u64>> = expected
        .groups
        .iter()
        .filter_map(|(group, held)| match group {
            ShareGroup::Rank(rank) => Some((format!("{:?}", rank.key), held)),
            ShareGroup::Part(_) => None,
        })
        .collect();
    for (rank, sums) in &found.groups {
        // A function whose blocks were all reattributed to others is among the others there.
        if let Some(held) = held.get(&format!("{:?}", rank.key)) {
            prop_assert_eq!(sums, *held, "{:?}", rank.key);
        }
    }
    for (at, others) in found.others.iter().enumerate() {
        let groups: u64 = found.groups.iter().map(|(_, sums)| sums[at]).sum();
        let all: u64 = held.values().map(|sums| sums[at]).sum();
        prop_assert_eq!(others + groups, all + expected.others[at]);
    }
    Ok(())
}

/// Compares the sums of all sites.
fn compare_wholes(merged: &Cube, exact: &Cube) -> Result<(), TestCaseError> {
    let questions = (1..=CUBE_INTERVALS).step_by(15).map(CubeQuestion::LiveAt);
    for question in questions.chain([CubeQuestion::Allocated(3, 90)]) {
        let whole = |cube: &Cube| {
            let table = cube.table(question, None);
            table.whole(&table.all(), cube.moment(question))
        };
        prop_assert_eq!(whole(merged), whole(exact), "{:?}", question);
    }
    Ok(())
}

/// Returns the number of cells that there are if all sites of a process are one.
fn cells_of_processes(cube: &Cube) -> usize {
    let key = |(key, _): &(CellKey, Cell)| (cube.sites[key.site() as usize].process, key.with_site(0));
    cube.cells.iter().map(key).collect::<HashSet<_>>().len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn cubes_and_replays_agree(steps in steps(100), ends in [0..=CUBE_INTERVALS, 0..=CUBE_INTERVALS]) {
        let (finished, unfinished, truth) = write(&steps);
        if truth.history.is_empty() {
            return Ok(());
        }
        for bytes in [&finished, &unfinished] {
            compare_times(&Recording::open(bytes).unwrap(), ends)?;
        }
    }

    /// However few cells there may be, nothing is lost.
    #[test]
    fn merged_sites(steps in steps(100), cells_max in 1_usize..60) {
        let (finished, ..) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let mut names = names(&recording);
        let (table, exact) = cube(&mut names, &CubeOptions::default());
        let exact = exact.unwrap();
        let options = CubeOptions { cells_max, ..CubeOptions::default() };
        let merged = Cube::build(&mut names, &table, &Selection::default(), &options, &mut |_, _| ());
        let merged = match merged {
            Err(error) => {
                prop_assert_eq!(error, Error::CellsLimit(cells_max));
                prop_assert!(cells_of_processes(&exact) > cells_max);
                return Ok(());
            }
            Ok(merged) => merged,
        };
        prop_assert!(merged.cells() <= exact.cells().min(cells_max));
        prop_assert_eq!(merged.merged() > 0, exact.cells() > cells_max);
        compare_wholes(&merged, &exact)?;
        if merged.merged() > 0 {
            let identity = RecordingIdentity::new(&finished, 7);
            prop_assert!(merged.encode(identity, &table).is_none());
        }
    }

    /// Blocks of too many groups are counted for their processes, and counted as merged.
    #[test]
    fn too_many_groups(steps in steps(100), groups_max in 1_usize..30) {
        let (finished, ..) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let mut names = names(&recording);
        let (table, exact) = cube(&mut names, &CubeOptions::default());
        let exact = exact.unwrap();
        let options = CubeOptions { groups_max, ..CubeOptions::default() };
        let few = Cube::build(&mut names, &table, &Selection::default(), &options, &mut |_, _| ()).unwrap();
        // Groups whose blocks were all reattributed are not among the rows.
        prop_assert!(few.merged() > 0 || exact.parts.rows.len() <= groups_max);
        compare_wholes(&few, &exact)?;
        let set = table.all();
        let blocks = |cube: &Cube| cube.lifetimes(&cube.table(CubeQuestion::LiveAt(1), None).all(), None);
        prop_assert_eq!(blocks(&few), blocks(&exact));
        if few.merged() == 0 {
            prop_assert_eq!(few.parts(&set, PartBy::Thread), exact.parts(&set, PartBy::Thread));
        }
    }

    #[test]
    fn files_of_cubes(steps in steps(60)) {
        let (finished, ..) = write(&steps);
        let recording = Recording::open(&finished).unwrap();
        let mut names = names(&recording);
        let (table, cube) = cube(&mut names, &CubeOptions::default());
        let cube = cube.unwrap();
        let images = Filter::default().images(&recording).unwrap();
        let identity = RecordingIdentity::new(&finished, 7);
        let file = cube.encode(identity, &table).unwrap();
        let again = Cube::decode(&file, identity, &images, &table).unwrap();
        prop_assert_eq!(&again.cells, &cube.cells);
        prop_assert_eq!(again.encode(identity, &table).unwrap(), file.clone());
        let other = RecordingIdentity { modified_ns: 8, ..identity };
        prop_assert!(Cube::decode(&file, other, &images, &table).is_none());
        prop_assert!(Cube::decode(&file, identity, &[ImageId(99)], &table).is_none());
        prop_assert!(Cube::decode(&file[..file.len() - 1], identity, &images, &table).is_none());
    }
}

/// Returns the bytes and blocks that were freed within some time, from the events.
fn freed(recording: &Recording<'_>, times: &RangeInclusive<u64>) -> (u64, u64) {
    let (mut freed, mut buffer) = ((0, 0), EventsBuffer::default());
    for image in recording.images() {
        let mut sizes = HashMap::new();
        for chunk in recording.event_chunks(image.image) {
            for event in chunk.decode(&mut buffer).unwrap().as_slice() {
                let (old, new) = match event.kind {
                    EventKind::Alloc { serial, size, .. } => (None, Some((serial, size.0))),
                    EventKind::Free { block } => (Some(block), None),
                    EventKind::Realloc { old, serial, size, .. } => (Some(old), Some((serial, size.0))),
                    EventKind::Failed { .. } | EventKind::Reattributed { .. } => continue,
                };
                if let Some(FreedBlock::Known(serial)) = old {
                    let size: u64 = sizes.remove(&serial).unwrap();
                    freed = if times.contains(&event.time.0) { (freed.0 + size, freed.1 + 1) } else { freed };
                }
                sizes.extend(new);
            }
        }
    }
    freed
}

/// A cube is found again for the same file alone, and a file that is damaged is not used.
#[test]
fn saved_cubes() {
    let (finished, ..) = write(&steps_around_a_checkpoint(5, 5));
    let recording = Recording::open(&finished).unwrap();
    let mut names = names(&recording);
    let (table, cube) = cube(&mut names, &CubeOptions::default());
    let cube = cube.unwrap();
    let directory = std::env::temp_dir().join(format!("heapledger-cubes-{}", std::process::id()));
    let images = Filter::default().images(&recording).unwrap();
    let identity = RecordingIdentity::new(&finished, 7);
    let load = |identity| Cube::load(&directory, identity, &images, &table).map(|cube| cube.cells);
    assert_eq!(load(identity), None);
    cube.save(&directory, identity, &table);
    assert_eq!(load(identity).as_ref(), Some(&cube.cells));
    assert_eq!(load(RecordingIdentity { bytes: 8, ..identity }), None);
    for file in std::fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(load(identity), None);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A cube whose sites were merged is not kept, even if the table has all of its sites.
#[test]
fn merged_cubes_are_not_saved() {
    let exact = small(true);
    let table = exact.table(CubeQuestion::LiveAt(1), None);
    assert!(exact.encode(RecordingIdentity::default(), &table).is_some());
    let merged = Cube { merged: 1, ..exact };
    assert!(merged.encode(RecordingIdentity::default(), &table).is_none());
}

#[test]
fn stopped_replays() {
    let (finished, ..) = write(&steps_around_a_checkpoint(20, 20));
    let recording = Recording::open(&finished).unwrap();
    let stop = AtomicBool::new(true);
    let (_, cube) = cube(&mut names(&recording), &CubeOptions { stop: Some(&stop), ..CubeOptions::default() });
    assert_eq!(cube.map(|_| ()), Err(Error::Stopped));
}

/// Returns a small cube with a row in each table.
fn small(is_exact: bool) -> Cube {
    let shared = std::sync::Arc::new(crate::site_table::Shared::of_nothing(2));
    let cell = Cell { bytes: 100, blocks: 2 };
    let mut amounts = MomentAmounts { total: cell.amount(), ..MomentAmounts::default() };
    amounts.total.temporaries_variance = if is_exact { 0 } else { 9 };
    let thread = Some((ImageId(0), heapledger_core::ThreadId(1)));
    let class = heapledger_core::Bytes(64);
    Cube {
        shared,
        images: Vec::new(),
        boundaries: (0..=CUBE_INTERVALS as u64).map(Time).collect(),
        sites: vec![CubeSite { process: ImageId(0), site: 0 }, CubeSite { process: ImageId(0), site: 1 }],
        cells: vec![
            (CellKey::new(0, Some(3), (3, 256), EndKind::Ended), cell),
            (CellKey::new(1, None, (0, 9), EndKind::Freed), cell),
        ],
        variances: vec![heapledger_ledger::Variance::of(heapledger_core::Bytes(50), heapledger_core::Blocks(2)); 2],
        parts: Parts { rows: vec![PartRow { site: 1, thread, class }], amounts: Amounts::new(vec![amounts]) },
        lifetimes: vec![((0, 9), cell)],
        merged: 0,
        damage: Vec::new(),
    }
}

#[test]
fn whole_tables() {
    for is_exact in [true, false] {
        let tables = small(is_exact).tables();
        assert!(super::file::is_readable(&tables));
        crate::fuzzing::cube(&tables);
        (0..tables.len()).for_each(|at| assert!(!super::file::is_readable(&tables[..at]), "cut off at {at}"));
    }
}

proptest! {
    #[test]
    fn damaged_tables(is_exact in any::<bool>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut tables = small(is_exact).tables();
        // Before the others are the boundaries, which differ in nothing.
        let others = 8 + 8 * (CUBE_INTERVALS - 2);
        for (at, byte) in changes {
            let at = others + at.index(tables.len() - others);
            tables[at] = byte;
        }
        crate::fuzzing::cube(&tables);
    }
}

/// Each question counts the cells that it says.
#[test]
fn cells_of_questions() {
    let carried = CellKey::new(0, None, (0, 9), EndKind::Freed);
    let plain = CellKey::new(0, Some(5), (5, 9), EndKind::Freed);
    let left = CellKey::new(0, Some(5), (5, 7), EndKind::Reattributed);
    let came = CellKey::new(1, Some(5), (7, 256), EndKind::Ended);
    let all = [carried, plain, left, came];
    assert!(all.iter().all(|key| CellKey::from_number(key.number()) == Some(*key)));
    let live = |question: CubeQuestion| all.map(|key| question.counts(key).0);
    let total = |question: CubeQuestion| all.map(|key| question.counts(key).1);
    assert_eq!(live(CubeQuestion::LiveAt(5)), [true, false, false, false]);
    assert_eq!(live(CubeQuestion::LiveAt(6)), [true, true, true, false]);
    assert_eq!(live(CubeQuestion::LiveAt(8)), [true, true, false, true]);
    assert_eq!(live(CubeQuestion::LiveAt(10)), [false, false, false, true]);
    assert_eq!(live(CubeQuestion::LiveSince(5, 7)), [false, true, true, false]);
    assert_eq!(live(CubeQuestion::LiveSince(6, 7)), [false; 4]);
    assert_eq!(total(CubeQuestion::Allocated(5, 6)), [false, true, false, true]);
    assert_eq!(total(CubeQuestion::Allocated(6, 256)), [false; 4]);
    assert_eq!(total(CubeQuestion::Freed(9, 10)), [true, true, false, false]);
    assert_eq!(total(CubeQuestion::Freed(0, 9)), [false; 4]);
}
