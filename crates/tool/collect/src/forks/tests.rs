use heapledger_core::Bytes;
use heapledger_recording::{MappingSerial, Protection};

use super::*;

#[test]
fn threads_that_are_runnable() {
    assert_eq!(runnable("58.69 50.44 44.03 61/812 19258\n"), Some(61));
    assert_eq!((runnable(""), runnable("0.1 0.1 0.1 x 1")), (None, None));
    assert!(child_start_timeout() >= CHILD_START_TIME && child_start_timeout() <= CHILD_TIMEOUT);
}

fn point(image: u32, sequence: u32, time: u64) -> ForkPoint {
    let (ledger, tree) = (Ledger::new(), Tree::default());
    ForkPoint { image: ImageId(image), sequence, time: Time(time), ledger, tree, mappings: None }
}

#[test]
fn a_fork_is_claimed_once_and_not_forever() {
    let mut forks = Forks::default();
    forks.add(point(1, 1, 0));
    forks.add(point(1, 2, 5));
    forks.add(point(2, 1, 5));
    assert!(forks.claim(ImageId(1), 2).is_some());
    assert!(forks.claim(ImageId(1), 2).is_none());
    assert!(forks.claim(ImageId(3), 1).is_none());
    forks.expire(Time(CHILD_TIMEOUT.as_nanos() as u64 + 1));
    assert!(forks.claim(ImageId(1), 1).is_none());
    assert!(forks.claim(ImageId(2), 1).is_some());
}

#[test]
fn failed_forks_take_no_more_than_so_much() {
    let mut forks = Forks::default();
    for sequence in 0..1_000 {
        forks.add(point(1, sequence, 0));
    }
    assert_eq!(forks.0.len(), POINTS_MAX);
    assert!(forks.claim(ImageId(1), 999).is_some());
}

/// A process may have few blocks and very many mappings.
#[test]
fn copied_mappings_count() {
    let mut mapped = Mapped::default();
    for page in 0..1_000 {
        mapped.space.map(page << 13, Bytes(4096), MappingSerial(page), Protection::NONE);
    }
    let with = |mappings| ForkPoint { mappings, ..point(1, 1, 0) };
    let (mut without, mut forks) = (Forks::default(), Forks::default());
    without.add(with(None));
    forks.add(with(Some(mapped)));
    assert!(forks.bytes() >= without.bytes() + 1_000 * 32, "{} {}", forks.bytes(), without.bytes());
}
