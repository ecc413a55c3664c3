//! The body of the fuzz target of this crate.

use crate::{NAME_MAX, Wanted, jitdump, perf_map};

/// Reads a file as both formats. Must not panic, whatever the bytes.
pub fn code_map(file: &[u8]) {
    // Addresses of all sizes, and those that the file itself names as little-endian numbers.
    let own =
        file.chunks_exact(8).take(64).map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)));
    let addresses = own.chain([0, 0x1000, 0x7f00_0000_1234, u64::MAX]).map(|address| (address, 1000));
    let wanted = Wanted::new(addresses);
    let (mut from_map, mut from_dump) = (wanted.clone(), wanted);
    let _ = perf_map::read(file, &mut from_map);
    let _ = jitdump::read(file, &mut from_dump);
    let _ = jitdump::clock(file);
    for found in [&from_map, &from_dump] {
        // A byte that is no text becomes three.
        assert!(found.names().all(|(_, name)| name.len() <= 3 * NAME_MAX && !name.contains('\n')));
        assert!(found.names().zip(found.names().skip(1)).all(|((one, _), (next, _))| one < next));
    }
}
