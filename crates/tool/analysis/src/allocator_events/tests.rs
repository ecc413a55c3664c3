use heapledger_core::ThreadId;
use proptest::prelude::*;

use super::*;
use crate::fuzzing;

fn annotation(code: u32, payload: Vec<u8>) -> Annotation {
    Annotation { image: ImageId(3), thread: ThreadId(0), time: Time(70), code, payload }
}

fn bytes(words: &[u64], text: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(text);
    bytes
}

#[test]
fn arenas_and_purges_are_decoded() {
    let event = |code, payload| allocator_event(&annotation(code, payload)).map(|event| event.kind);
    let created = AllocatorEventKind::ArenaCreated { arena: 9, label: "images".into() };
    assert_eq!(event(259, bytes(&[9, 1], b"images\0\0")), Some(created));
    let disposed = AllocatorEventKind::ArenaDisposed { arena: 9, label: String::new() };
    assert_eq!(event(259, bytes(&[9, 2], b"")), Some(disposed));
    assert_eq!(event(259, bytes(&[9, 3], b"")), None);
    assert_eq!(event(260, bytes(&[9, 1], b"")), None);

    let payload = bytes(&[7, 16, 2, 1, 1500, 6 | 4 << 32], b"images\0\0idle\0\0\0\0");
    let purge = Purge {
        arena: 7,
        label: "images".into(),
        reason: "idle".into(),
        pages: 16,
        calls: 2,
        chunks: 1,
        duration_ns: 1500,
    };
    assert_eq!(event(266, payload), Some(AllocatorEventKind::Purged(purge)));
    assert_eq!(event(266, bytes(&[7, 16, 2, 1, 1500, u64::MAX], b"images\0\0")), None);
}

proptest! {
    /// Any payload is decoded or refused.
    #[test]
    fn any_payload(code in 255_u16..270, payload in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzzing::annotation(&[&code.to_le_bytes()[..], &payload].concat());
    }
}
