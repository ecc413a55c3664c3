//! Files for tests.

/// Returns the first page of this program, again and again with other bytes of its headers changed.
pub(crate) fn damaged_programs() -> impl Iterator<Item = Vec<u8>> {
    let whole = std::fs::read("/proc/self/exe").unwrap();
    let mut random = 0x1234_5678_9abc_def1_u64;
    (0..40).map(move |_| {
        let mut bytes = whole[..whole.len().min(4096)].to_vec();
        for _ in 0..40 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[6 + random as usize % 120] = (random >> 32) as u8;
        }
        bytes
    })
}
