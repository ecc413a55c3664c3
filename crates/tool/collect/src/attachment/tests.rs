use super::*;

#[test]
fn the_first_stack_is_known() {
    let top = first_stack_top(std::process::id()).expect("it is this process");
    let memory = Memory::open(std::process::id()).expect("it is this process");
    let mappings = memory.mappings().expect("it is this process");
    let stack = mappings.iter().find(|mapping| mapping.name == b"[stack]").expect("every process has one");
    assert!(stack.range.contains(&top));
    // The word there is the number of arguments.
    let mut word = [0; 8];
    memory.read(top, &mut word).expect("it is mapped");
    assert_eq!(u64::from_ne_bytes(word), std::env::args_os().count() as u64);
}

/// A table as the library has it, with two threads whose hashes are the same.
#[test]
fn threads_are_found_in_the_table() {
    const INSIDE_AT: usize = 8;
    let (multiplier, bits, length) = (1_u64 << 28, 4, 16);
    let mut table = vec![0_u8; 16 * length as usize];
    let mut enter = |index: usize, thread: u64, inside: u64| {
        let slot = index * length as usize;
        table[slot..slot + 8].copy_from_slice(&thread.to_ne_bytes());
        table[slot + INSIDE_AT..slot + INSIDE_AT + 8].copy_from_slice(&inside.to_ne_bytes());
    };
    // The index is the lowest four bits. The second thread of index 15 is at 0.
    enter(15, 0x1f, 0);
    enter(0, 0x2f, 1);
    enter(1, 0x31, 0);
    let table = std::hint::black_box(table);
    let slots = SlotTable {
        table: table.as_ptr().expose_provenance() as u64,
        multiplier,
        bits,
        length,
        inside_at: INSIDE_AT as u64,
    };
    let memory = Memory::open(std::process::id()).expect("it is this process");
    for (thread, expected) in [(0x1f, false), (0x2f, true), (0x31, false), (0x41, false), (0x5e, false)] {
        assert_eq!(slots.is_inside(thread, &memory), expected, "{thread:#x}");
    }
    assert!(slots.has_any_inside(&memory));
    // A word of a slot that no thread has does not count.
    let mut without = std::hint::black_box(vec![0_u8; 16 * length as usize]);
    without[INSIDE_AT] = 1;
    without[length as usize] = 0x1f;
    let slots = SlotTable { table: without.as_ptr().expose_provenance() as u64, ..slots };
    assert!(!slots.has_any_inside(&memory));
    // It is not there.
    assert!(!SlotTable { table: 8, ..slots }.has_any_inside(&memory));
}

#[test]
fn attempts_take_a_tenth_of_the_time_at_most() {
    for (stopped_us, pause_us) in [(0, 1000), (50, 1000), (300, 3000), (200_000, 2_000_000)] {
        assert_eq!(pause_after(Duration::from_micros(stopped_us)), Duration::from_micros(pause_us));
    }
}
