//! Types from earlier runs: two files for each module, beside the symbolizer's file of names.

mod records;
pub(crate) mod sites;
pub(crate) mod types;

use heapledger_symbols::cache::sealed;

/// Implements the fuzz target: reads the bytes as the message in a file with a valid checksum.
pub fn exercise(data: &[u8]) {
    types::exercise(&sealed(data));
    sites::exercise(&sealed(data));
}

#[cfg(test)]
mod tests {
    /// Calls `body` with 20,000 versions of a message with three bytes changed, which its checksum
    /// would not show.
    pub(super) fn for_each_damaged(message: &[u8], mut body: impl FnMut(&[u8])) {
        let mut random = 0x1234_5678_9abc_def1_u64;
        for _ in 0..20_000 {
            let mut bad = message.to_vec();
            for _ in 0..3 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = random as usize % bad.len();
                bad[at] = (random >> 32) as u8;
            }
            body(&bad);
        }
    }
}
