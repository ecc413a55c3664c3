//! Plays works as the player does, in threads of every speed, and compares with what was written.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};

use heapledger_alloc_log::Line;
use heapledger_wire::VERSION;
use heapledger_wire::replay::{CHUNK_BYTES, Kind, LABEL_BYTES, MAGIC, Operation, order};
use proptest::prelude::*;

use crate::LogReader;
use crate::figures::{Run, Sample, SizeClass};
use crate::work::{Call, Threads, Work, WorkWriter};

/// A call of a program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate { size: u64 },
    Reallocate { victim: usize, size: u64 },
    Free { victim: usize },
    Ask,
    Purge,
}

fn steps(asks: bool) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        3 => (0..1000_u64).prop_map(|size| Step::Allocate { size }),
        1 => (any::<usize>(), 1..1000_u64).prop_map(|(victim, size)| Step::Reallocate { victim, size }),
        2 => any::<usize>().prop_map(|victim| Step::Free { victim }),
        1 => Just(if asks { Step::Ask } else { Step::Purge }),
    ];
    proptest::collection::vec((0..4_u64, step), 0..3000)
}

/// The content of a file, as words.
fn words(file: &mut File) -> Vec<u64> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The slots while a work is played: generation and size of the block, if there is one.
type Slots = Vec<(u16, Option<u64>)>;

/// Carries out an operation; false if it has to wait.
fn play(operation: Operation, slots: &mut Slots) -> bool {
    let kinds = [Kind::Malloc, Kind::Calloc, Kind::Realloc, Kind::Free, Kind::Memalign, Kind::InArena];
    let Some(kind) = kinds.into_iter().find(|kind| *kind as u64 == operation.kind()) else { return true };
    let (generation, block) = &mut slots[operation.slot()];
    let size = operation.size() as u64;
    match kind {
        Kind::Free | Kind::Realloc => {
            if *generation != operation.generation() || block.is_none() {
                return false;
            }
            *generation = generation.wrapping_add(1);
            *block = (kind == Kind::Realloc).then_some(size);
        }
        _ => {
            if *generation != operation.generation() || block.is_some() {
                return false;
            }
            *block = Some(size);
        }
    }
    true
}

/// The result of a work that was played.
#[derive(Default)]
struct Replayed {
    slots: Slots,
    calls: u64,
    purges: u64,
    /// The calls, the purges and the live bytes at each point of statistics, in the order of time.
    points: Vec<(u64, u64, u64)>,
}

/// Plays a work. The next thread is the one that `turn` says, unless it waits.
fn play_all(words: &[u64], mut turn: impl FnMut() -> usize) -> Replayed {
    let [magic, version, threads, slots, epochs, tables, arenas, _] = words[..8] else { panic!("no head") };
    assert_eq!((magic, version), (MAGIC, u64::from(VERSION)));
    let table = &words[tables as usize / 8..];
    let operations_of = &table[threads as usize..];
    assert_eq!(operations_of.len() as u64, epochs + arenas * LABEL_BYTES as u64 / 8);
    let chunk = |number: u64| number as usize * CHUNK_BYTES / 8;
    let mut at: Vec<Option<usize>> = table[..threads as usize].iter().map(|first| Some(chunk(*first))).collect();
    let mut done = vec![0_u64; epochs as usize];
    let mut epoch_of = vec![0; threads as usize];
    let mut result = Replayed { slots: vec![(0, None); slots as usize], ..Replayed::default() };
    while at.iter().any(Option::is_some) {
        let (first, mut has_said) = (turn(), false);
        let ready = (0..at.len()).map(|next| (first + next) % at.len()).find_map(|thread| {
            let place = at[thread]?;
            let operation = Operation { what: words[place], number: words[place + 1] };
            let next = match operation.kind() {
                kind if kind == Kind::End as u64 => None,
                kind if kind == Kind::Next as u64 => Some(chunk(operation.number)),
                kind if kind == Kind::Epoch as u64 => {
                    // A thread says what it has done before it waits, and says that once.
                    let (own, says) = (operation.number >> 32, operation.number & u64::from(u32::MAX));
                    if epoch_of[thread] == own && epochs > 0 {
                        done[own as usize] += says;
                        has_said = true;
                        epoch_of[thread] = operation.slot() as u64;
                    }
                    let all_are_near =
                        operation.slot().checked_sub(2).is_none_or(|far| done[far] >= operations_of[far]);
                    if !all_are_near || (result.points.len() as u64) < operation.points() {
                        return None;
                    }
                    Some(place + 2)
                }
                kind if kind == Kind::Statistics as u64 => {
                    let before = 0..if epochs > 0 { epoch_of[thread] as usize } else { 0 };
                    let is_next = result.points.len() == operation.slot();
                    if !is_next || before.into_iter().any(|epoch| done[epoch] < operations_of[epoch]) {
                        return None;
                    }
                    let live = result.slots.iter().filter_map(|(_, block)| *block).sum();
                    assert_eq!(operation.number, live);
                    result.points.push((result.calls, result.purges, live));
                    Some(place + 2)
                }
                _ => play(operation, &mut result.slots).then_some(Some(place + 2))?,
            };
            if operation.kind() == Kind::End as u64 && epochs > 0 {
                done[(operation.number >> 32) as usize] += operation.number & u64::from(u32::MAX);
            }
            let is_call = (Kind::Malloc as u64..=Kind::Valloc as u64).contains(&operation.kind());
            result.calls += u64::from(is_call || operation.kind() == Kind::InArena as u64);
            result.purges += u64::from(operation.kind() == Kind::Order as u64);
            Some((thread, next))
        });
        let Some((thread, next)) = ready else {
            assert!(has_said, "all threads wait");
            continue;
        };
        at[thread] = next;
    }
    result
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_order_that_waits_allow_does_the_same(
        steps in any::<bool>().prop_flat_map(steps),
        turns in proptest::collection::vec(0..4_usize, 1..50),
        is_alone: bool,
    ) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mode = if is_alone { Threads::One } else { Threads::Recorded };
        let mut work = WorkWriter::new(file.path().to_path_buf(), mode);
        // The blocks by their names, which are used again, and the names that are in use.
        let (mut live, mut names, mut most, mut calls) = (HashMap::new(), Vec::new(), 0, 0);
        let (mut purges, mut points) = (0, Vec::new());
        let mut free_names: Vec<u64> = (0..3000).map(|name| 16 * name).collect();
        for (thread, step) in steps {
            if calls % 5 == 0 {
                // A wait is no call, but may begin an epoch.
                work.wait(thread, calls * 3_000_000).unwrap();
            }
            match step {
                Step::Allocate { size } => {
                    let name = free_names.pop().unwrap();
                    work.allocate(thread, Call::Malloc, name, size).unwrap();
                    names.push(name);
                    live.insert(name, size);
                }
                Step::Reallocate { victim, size } if !names.is_empty() => {
                    let at = victim % names.len();
                    let new = if size % 2 == 0 { names[at] } else { free_names.pop().unwrap() };
                    work.reallocate(thread, names[at], new, size).unwrap();
                    live.remove(&names[at]);
                    live.insert(new, size);
                    names[at] = new;
                }
                Step::Free { victim } if !names.is_empty() => {
                    let name = names.swap_remove(victim % names.len());
                    work.free(thread, name).unwrap();
                    live.remove(&name);
                    free_names.push(name);
                }
                Step::Ask if points.len() < Work::POINTS_MAX => {
                    work.statistics(thread).unwrap();
                    points.push((calls, purges, live.values().sum::<u64>()));
                    continue;
                }
                Step::Purge => {
                    work.purge(thread, true).unwrap();
                    purges += 1;
                    // Points are asked for now and then.
                    if purges % 20 == 0 && points.len() < Work::POINTS_MAX {
                        work.statistics((thread + 1) % 4).unwrap();
                        points.push((calls, purges, live.values().sum::<u64>()));
                    }
                    continue;
                }
                _ => continue,
            }
            calls += 1;
            most = most.max(live.values().sum::<u64>());
        }
        let work = work.finish().unwrap();
        prop_assert_eq!((work.calls, work.bytes_live_max, work.unknown, work.lost), (calls, most, 0, 0));
        let mut turns = turns.into_iter().cycle();
        let played = play_all(&words(file.as_file_mut()), || turns.next().unwrap());
        prop_assert_eq!((played.calls, played.purges), (calls, purges));
        // Nothing that comes later was done before a point, whatever the threads' speeds.
        prop_assert_eq!(played.points, points);
        let mut left: Vec<u64> = played.slots.into_iter().filter_map(|(_, block)| block).collect();
        let mut expected: Vec<u64> = live.into_values().collect();
        left.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(left, expected);
    }
}

#[test]
fn what_is_missing_is_counted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut work = WorkWriter::new(file.path().to_path_buf(), Threads::One);
    work.free(1, 16).unwrap();
    work.reallocate(1, 16, 32, 100).unwrap();
    work.allocate(1, Call::Memalign { alignment: 4096 }, 32, 50).unwrap();
    let work = work.finish().unwrap();
    assert_eq!((work.calls, work.unknown, work.lost, work.bytes_live_max), (2, 2, 1, 100));
}

/// Returns the operations of a work with one thread that fit into a chunk, without the last one.
fn operations(file: &mut tempfile::NamedTempFile) -> Vec<Operation> {
    let words = words(file.as_file_mut());
    let all = words[CHUNK_BYTES / 8..].chunks_exact(2).map(|pair| Operation { what: pair[0], number: pair[1] });
    all.take_while(|operation| operation.kind() != Kind::End as u64).collect()
}

#[test]
fn inherited_blocks_count_for_nothing() {
    for mode in [Threads::One, Threads::Recorded] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut work = WorkWriter::new(file.path().to_path_buf(), mode);
        work.begin_inheritance();
        for (thread, block) in [(1, 16), (2, 32), (1, 48)] {
            work.allocate(thread, Call::Malloc, block, 1000).unwrap();
        }
        work.statistics(2).unwrap();
        work.free(2, 16).unwrap();
        work.inherit().unwrap();
        work.set_moment(7);
        work.allocate(9, Call::Malloc, 16, 10).unwrap();
        work.free(9, 32).unwrap();
        work.reallocate(8, 48, 48, 50).unwrap();
        work.set_moment(9);
        work.free(9, 16).unwrap();
        let work = work.finish().unwrap();
        assert_eq!((work.calls, work.inherited, work.bytes_live_max, work.bytes_live_end), (4, 2, 60, 50));
        assert_eq!((work.begins, work.ends, work.unknown, work.lost), (7, 9, 0, 0));
        assert!(work.points.is_empty());
        // The thread that forked goes on as the first one.
        assert_eq!(work.threads, if mode == Threads::One { 1 } else { 2 });
        let kinds: Vec<u64> = operations(&mut file).iter().map(|operation| operation.kind()).collect();
        let expected = [Kind::Malloc, Kind::Malloc, Kind::Malloc, Kind::Free, Kind::Order, Kind::Malloc, Kind::Free];
        assert_eq!(kinds[..7], expected.map(|kind| kind as u64));
        assert_eq!(kinds.len(), if mode == Threads::One { 9 } else { 8 });
    }
}

#[test]
fn arenas_are_known_by_their_labels() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut work = WorkWriter::new(file.path().to_path_buf(), Threads::One);
    let (images, fonts) = (work.arena(b"images").unwrap(), work.arena(b"fonts\0padding").unwrap());
    assert_eq!(work.arena(b"images"), Some(images));
    work.allocate_in(1, Some(fonts), Call::Calloc, 16, 100).unwrap();
    // It has a block.
    work.dispose(fonts).unwrap();
    work.reallocate(1, 16, 32, 200).unwrap();
    work.free(1, 32).unwrap();
    work.dispose(fonts).unwrap();
    work.purge(1, true).unwrap();
    work.allocate_in(1, Some(images), Call::Memalign { alignment: 64 }, 48, 100).unwrap();
    let work = work.finish().unwrap();
    assert_eq!(work.arenas, [b"images".to_vec(), b"fonts".to_vec()]);
    let all = operations(&mut file);
    let [new, _, _, dispose, purge, aligned] = all[..] else { panic!("{all:?}") };
    assert_eq!((new.kind(), new.arena(), new.is_zeroed()), (Kind::InArena as u64, 1, true));
    assert_eq!((dispose.kind(), dispose.slot(), dispose.number), (Kind::Order as u64, order::DISPOSE, 1));
    assert_eq!((purge.kind(), purge.slot()), (Kind::Order as u64, order::PURGE_ALL));
    assert_eq!((aligned.arena(), aligned.alignment(), aligned.size()), (0, 64, 100));
}

/// Returns a process that lived from one moment to another, and had this much memory at moments.
fn process(calls: u64, lived: (u64, u64), resident: &[(u64, u64)]) -> (Work, Run) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut work = WorkWriter::new(file.path().to_path_buf(), Threads::One).finish().unwrap();
    (work.begins, work.ends) = lived;
    let sample = |&(moment, resident): &(u64, u64)| Sample { calls, moment, resident, ..Sample::default() };
    let classes = vec![SizeClass { size_min: 16, blocks: calls, requested: 16, usable: 24 }];
    let samples = resident.iter().map(sample).collect();
    (work, Run { cpu_ns: 10 * calls, system_calls: Some([1; 6]), samples, classes, ..Run::default() })
}

#[test]
fn memory_of_processes_is_added_up_at_the_same_moment() {
    let first = process(3, (0, 10), &[(5, 100), (10, 80)]);
    let second = process(4, (8, 20), &[(9, 50), (12, 70), (20, 60)]);
    let total = Run::total(&[(&first.0, &first.1), (&second.0, &second.1)]);
    let curve: Vec<(u64, u64)> = total.samples.iter().map(|sample| (sample.moment, sample.resident)).collect();
    assert_eq!(curve, [(5, 100), (9, 150), (10, 130), (10, 50), (12, 70), (20, 60)]);
    assert_eq!((total.peak().resident, total.end().resident, total.end().calls), (150, 60, 7));
    assert_eq!((total.cpu_ns, total.system_calls), (70, Some([2; 6])));
    assert_eq!(total.classes, [SizeClass { size_min: 16, blocks: 7, requested: 32, usable: 48 }]);
    // One process alone is itself.
    assert_eq!(Run::total(&[(&first.0, &first.1)]), first.1);
}

/// Returns the work of a log of one process, and the file of its operations.
fn work_of_log(log: &str) -> (Work, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut work = WorkWriter::new(file.path().to_path_buf(), Threads::One);
    let mut reader = LogReader::default();
    for (number, text) in (1..).zip(log.lines()) {
        let (line, fields) = Line::parse_with_fields(text.as_bytes()).unwrap();
        reader.add(number, &line, &fields, &mut work).unwrap();
    }
    (work.finish().unwrap(), file)
}

#[test]
fn logs_have_times_and_arenas() {
    let (work, mut file) = work_of_log(
        "1 1 malloc(8)=#1 time=5000000\n1 1 malloc(9)=#2 time=15000000 arena=a%20b\n1 1 free(#1) time=14000000\n",
    );
    assert_eq!((work.begins, work.ends, work.has_times), (5_000_000, 15_000_000, true));
    assert_eq!(work.arenas, [b"a b".to_vec()]);
    let all = operations(&mut file);
    let [_, wait, in_arena, free] = all[..] else { panic!("{all:?}") };
    assert_eq!((wait.kind(), wait.number), (Kind::Wait as u64, 10_000_000));
    assert_eq!((in_arena.kind(), in_arena.arena()), (Kind::InArena as u64, 0));
    assert_eq!(free.kind(), Kind::Free as u64);
    // Without times, moments are lines.
    let (work, _) = work_of_log("1 1 malloc(8)=#1\n1 1 malloc(9)=#2\n");
    assert_eq!((work.begins, work.ends, work.has_times), (1, 2, false));
}

#[test]
fn statistics_points_of_sums_are_kept() {
    let (mut first, second) = (process(3, (0, 5000), &[]), process(4, (0, 5000), &[]));
    let sample = |moment| Sample { moment, resident: 1, is_statistics: moment == 1234, ..Sample::default() };
    first.1.samples = (0..5000).map(sample).collect();
    let total = Run::total(&[(&first.0, &first.1), (&second.0, &second.1)]);
    let points = total.samples.iter().filter(|sample| sample.is_statistics).map(|sample| sample.moment);
    assert_eq!(points.collect::<Vec<_>>(), [1234]);
}

#[test]
fn hostile_sizes_do_not_overflow() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut work = WorkWriter::new(file.path().to_path_buf(), Threads::One);
    for block in 0..70_000 {
        work.allocate(1, Call::Malloc, block, u64::MAX).unwrap();
    }
    for block in 0..70_000 {
        work.free(1, block).unwrap();
    }
    assert_eq!(work.finish().unwrap().bytes_live_max, u64::MAX);
}
