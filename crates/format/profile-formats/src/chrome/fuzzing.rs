//! The body of the fuzz target, shared with a property test.

use super::{Cut, Guid, HeapFormat, Kind, ProcessDump, Trace};

/// Reads the data as a dump from another process, and writes it to traces. Panics if that does, or
/// if the output is not JSON.
pub fn dump(data: &[u8]) {
    let Ok(dump) = ProcessDump::parse(data) else { return };
    let again = ProcessDump::parse(&dump.to_bytes()).expect("what was written can be read");
    assert_eq!(again.to_bytes(), dump.to_bytes());
    for heaps in [HeapFormat::Entries(Cut::Share), HeapFormat::Entries(Cut::Bytes(0)), HeapFormat::Aggregated] {
        let mut trace = Trace::begin(Vec::new(), heaps).expect("memory takes everything");
        for _ in 0..2 {
            trace.dump(Guid(1), Kind::Explicit, &dump).expect("memory takes everything");
        }
        let file = trace.finish().expect("memory takes everything");
        serde_json::from_slice::<serde_json::Value>(&file).expect("it is JSON");
    }
    let mut whole = ProcessDump::new(1, "whole", 0, dump.level);
    whole.add(dump);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chrome::{Heap, Level};
    use crate::damaged::damaged;
    use crate::profile::Amount;

    const WORDS: [&str; 10] = ["0", "1", "9", "-1", "18446744073709551615", "\"\"", "[", "]", "null", "{}"];

    fn whole() -> Vec<u8> {
        let mut dump = ProcessDump::new(7, "a", 12, Level::Detailed);
        let guid = dump.allocator("a/b").set_size(5).set_text("of", "c").guid;
        dump.suballocate(guid, "malloc");
        let mut heap = Heap::default();
        heap.add(["main", "f"], Some("T"), Amount { blocks: 1, bytes: 2 });
        heap.add(["main"], None, Amount { blocks: 1, bytes: 100 });
        heap.add([""; 0], None, Amount { blocks: 3, bytes: 4 });
        dump.add_heap("a", heap);
        dump.to_bytes()
    }

    #[test]
    fn the_whole_dump_can_be_read() {
        assert!(ProcessDump::parse(&whole()).is_ok());
        dump(&whole());
    }

    proptest! {
        #[test]
        fn damaged_dumps_are_no_danger(data in damaged(vec![whole()], WORDS.into())) {
            dump(&data);
        }
    }
}
