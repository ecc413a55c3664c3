use std::vec;

use super::*;

/// Fills a part of an array, changes some bytes, and compares what is found with those.
#[test]
fn changed_bytes_are_found_wherever_they_are() {
    let mut bytes = vec![0_u8; 400];
    let start = bytes.as_mut_ptr().expose_provenance();
    for (from, to) in [(0, 400), (3, 3), (1, 40), (5, 70), (63, 129), (64, 192), (17, 391)] {
        bytes.fill(0);
        // SAFETY: the range is in the vector, which nothing else refers to meanwhile.
        unsafe { fill(start + from, start + to) };
        assert!(
            bytes.iter().enumerate().all(|(at, byte)| (*byte == CANARY) == (from..to).contains(&at)),
            "{from} {to}"
        );
        // SAFETY: as above.
        let found = || unsafe { changed(start + from, start + to) }.map(|(first, last)| (first - start, last - start));
        assert_eq!(found(), None);
        for at in from..to {
            bytes[at] ^= 0x40;
            assert_eq!(found(), Some((at, at)));
            bytes[to - 1] = 0;
            assert_eq!(found(), Some((at, to - 1)));
            bytes[at] = CANARY;
            bytes[to - 1] = CANARY;
        }
    }
}
