use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::Imitation;

/// The parts of a process's memory, by their addresses.
type Parts = BTreeMap<u64, Vec<u8>>;

const ROOT: u64 = 0x10_0000;
const LEAF: u64 = 0x20_0000;
const HEAP: u64 = 0x30_0000;
const HUGE: u64 = 0x38_0000;
const ARENA: u64 = 0x39_0000;
/// The third range of the first leaf.
const CHUNK_AT: u64 = 2 << 22;
const HEADER: u64 = CHUNK_AT + 2 * 4096;

/// Returns the bytes of the structure that says the layout.
fn layout(change: impl Fn(&mut [u32; 27])) -> Vec<u8> {
    let mut numbers = [
        124, 4, 8, 22, 16, 4096, 16, 64, 1, 0,
        8, // the run's fields: owner, used, size, capacity, carved, class, slices
        16, 24, 28, 40, 42, 44, 45, 47, 0, 64, 40, 0, 56, 0, 8, 16,
    ];
    change(&mut numbers);
    let mut bytes = b"HLHEAPv1".to_vec();
    bytes.extend(ROOT.to_le_bytes());
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes
}

/// Writes the metadata of a run.
fn put_run(header: &mut [u8], slice: usize, used: u32, size: u32, counts: [u16; 2], class: u8, slices: u8) {
    let line = &mut header[slice * 64..][..64];
    line[16..24].copy_from_slice(&(HEAP | 1).to_le_bytes());
    line[24..28].copy_from_slice(&used.to_le_bytes());
    line[28..32].copy_from_slice(&size.to_le_bytes());
    line[40..42].copy_from_slice(&counts[0].to_le_bytes());
    line[42..44].copy_from_slice(&counts[1].to_le_bytes());
    (line[44], line[45]) = (class, slices);
}

/// Returns memory with a chunk of two runs, a free slice with 3 pages, and a huge block.
fn memory() -> Parts {
    let mut memory = Parts::default();
    memory.insert(0, layout(|_| ()));
    let mut root = vec![0; 32];
    root[0..8].copy_from_slice(&LEAF.to_le_bytes());
    memory.insert(ROOT, root);
    let mut leaf = vec![0; 64];
    leaf[16] = 1;
    leaf[24..32].copy_from_slice(&HUGE.to_le_bytes());
    memory.insert(LEAF, leaf);
    let mut heap = vec![0; 64 + 40 * 100];
    // The current run of class 6 is that of slice 1.
    heap[64 + 6 * 40..][..8].copy_from_slice(&(HEADER + 64).to_le_bytes());
    memory.insert(HEAP, heap);
    memory.insert(HUGE, (5_u64 << 20).to_le_bytes().to_vec());
    let mut header = vec![0; 4096];
    header[56..64].copy_from_slice(&ARENA.to_le_bytes());
    header[0..8].copy_from_slice(&(!0b1_1110_u64).to_le_bytes());
    put_run(&mut header, 1, 11, 112, [585, 36], 6, 1);
    put_run(&mut header, 2, 1, 196_608, [1, 1], 69, 3);
    header[5 * 64 + 47] = 0x40 | 3;
    memory.insert(HEADER, header);
    let mut arena = 77_u64.to_le_bytes().to_vec();
    arena.extend(*b"cache\0\0\0\0\0\0\0\0\0\0\0");
    memory.insert(ARENA, arena);
    memory
}

fn read(parts: &Parts) -> Result<HeapMap> {
    let memory = Imitation::of_parts(parts);
    HeapMap::read(&memory, &Layout::read(&memory, 0)?.expect("a layout"))
}

#[test]
fn a_heap_is_read_as_its_layout_says() {
    let map = read(&memory()).unwrap();
    let small = Run { slices: 1, block_size: 112, capacity: 585, touched: 36, used: 10, heap: 0 };
    let large = Run { slices: 3, block_size: 196_608, capacity: 1, touched: 1, used: 1, heap: 0 };
    let mut slices = vec![Slice::Run(small), Slice::Run(large), Slice::Free(3)];
    slices.resize(61, Slice::Free(0));
    assert_eq!(map.chunks, [Chunk { address: CHUNK_AT, arena: 0, slices }]);
    assert_eq!(map.arenas, [Arena { id: 77, label: "cache".into() }]);
    assert_eq!(map.huge, [HugeBlock { address: 3 << 22, bytes: 5 << 20 }]);
    assert_eq!(map.heaps(), 1);
    let bins = map.bins();
    let expected = BinUse { block_size: 112, runs: 1, run_bytes: 65_536, capacity: 585, used: 10 };
    assert_eq!((bins.len(), bins[0], bins[0].unused_bytes()), (2, expected, 65_536 - 1120));
    let totals = map.totals();
    assert_eq!((totals.mapped, totals.huge, totals.dirty), ((4 << 20) + (5 << 20), 5 << 20, 3 * 4096));
    assert_eq!((totals.runs, totals.used), (4 << 16, 1120 + 196_608 + (5 << 20)));
}

#[test]
fn layouts_that_make_no_sense_are_refused() {
    let wrong = [
        (1, 0),
        (1, 1 << 20),
        (2, 0),
        (3, 40),
        (4, 8),
        (4, 22),
        (4, 12),
        (5, 100),
        (6, 0),
        (7, 16),
        (9, 60),
        (11, 60),
        (23, 60),
        (26, 0),
    ];
    for (index, value) in wrong {
        let mut memory = memory();
        memory.insert(0, layout(|numbers| numbers[index] = value));
        assert!(
            matches!(Layout::read(&Imitation::of_parts(&memory), 0), Err(HeapMapError::Corrupt { .. })),
            "{index}: {value}"
        );
    }
    let mut memory = memory();
    memory.insert(0, vec![b'x'; 200]);
    assert!(Layout::read(&Imitation::of_parts(&memory), 0).unwrap().is_none());
    memory.insert(0, layout(|_| ())[..50].to_vec());
    assert!(Layout::read(&Imitation::of_parts(&memory), 0).is_err());
}

#[test]
fn what_is_not_there_is_an_error_or_no_chunk() {
    for gone in [ROOT, LEAF] {
        let mut memory = memory();
        memory.remove(&gone);
        assert!(read(&memory).is_err(), "{gone:#x}");
    }
    let mut memory = memory();
    memory.remove(&HEADER);
    assert_eq!(read(&memory).unwrap().chunks, []);
    let mut memory = self::memory();
    memory.remove(&HUGE);
    let map = read(&memory).unwrap();
    assert_eq!((map.chunks.len(), map.huge.len()), (1, 0));
    // Without its heap, nobody knows that the run is the current one.
    let mut memory = self::memory();
    memory.remove(&HEAP);
    assert_eq!(read(&memory).unwrap().bins()[0].used, 11);
}

#[test]
fn chunks_that_cannot_be_read_count_too() {
    let mut memory = memory();
    // Four leaves of 65,536 chunks, and one chunk more in the fifth.
    memory.insert(0, layout(|numbers| (numbers[1], numbers[2]) = (5, 1 << 16)));
    let leaf_at = |number: u64| 0x1000_0000_0000 + (number << 24);
    memory.insert(ROOT, (0..5).flat_map(|number| leaf_at(number).to_le_bytes()).collect());
    let full: Vec<u8> = CHUNK.to_le_bytes().repeat(1 << 16);
    (0..4).for_each(|number| drop(memory.insert(leaf_at(number), full.clone())));
    memory.insert(leaf_at(4), vec![0; 8 << 16]);
    memory.remove(&HEADER);
    assert_eq!(read(&memory).unwrap().chunks, []);
    memory.insert(leaf_at(4), [CHUNK.to_le_bytes().to_vec(), vec![0; (8 << 16) - 8]].concat());
    assert!(matches!(read(&memory), Err(HeapMapError::TooLarge(CHUNKS_MAX))));
}

#[test]
fn a_layout_that_makes_no_sense_is_told_from_no_allocator() {
    /// The address of another layout.
    const OTHER: u64 = 0x1000;
    /// The address of memory without a layout.
    const NOTHING_AT: u64 = 0x2000;
    let mut memory = memory();
    memory.insert(OTHER, layout(|numbers| numbers[1] = 0));
    memory.insert(NOTHING_AT, vec![0; 200]);
    let read = |addresses: &[u64]| HeapMap::read_used(&Imitation::of_parts(&memory), addresses.iter().copied());
    assert!(read(&[NOTHING_AT]).unwrap().is_none());
    assert!(matches!(read(&[OTHER, NOTHING_AT]), Err(HeapMapError::Corrupt { address: OTHER, .. })));
    assert_eq!(read(&[OTHER, 0]).unwrap().expect("a heap").chunks.len(), 1);
}

proptest! {
    /// A sound layout, in which one byte is wrong, then anything: often words that are chunks.
    #[test]
    fn hostile_memory_does_no_harm(
        words in vec(prop_oneof![Just(0_u64), Just(1), any::<u64>(), 1_u64..1 << 20], 0..600),
        (at, byte) in (0_usize..6000, any::<u8>()),
    ) {
        let mut data = layout(|_| ());
        words.iter().for_each(|word| data.extend(word.to_le_bytes()));
        let length = data.len();
        data[at % length] = byte;
        crate::fuzzing::heap(&data);
    }
}
