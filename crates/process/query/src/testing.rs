//! Files for tests.

use heapledger_core::sample::Random;

/// Returns the first page of this program, again and again with other bytes of its headers changed.
pub(crate) fn damaged_programs() -> impl Iterator<Item = Vec<u8>> {
    let whole = std::fs::read("/proc/self/exe").unwrap();
    let mut random = Random::new(1);
    (0..40).map(move |_| {
        let mut bytes = whole[..whole.len().min(4096)].to_vec();
        random.damage(&mut bytes[6..126], 40);
        bytes
    })
}
