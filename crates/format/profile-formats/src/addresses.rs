//! The common parts of gperftools' and jemalloc's text formats: `OBJECTS: BYTES [OBJECTS: BYTES]`,
//! addresses, and estimates from samples.

use crate::profile::Amount;
use crate::read_error::ReadError;

/// Parses the live and the allocated amounts: `1: 64 [2: 128]`.
pub(crate) fn counts(text: &str) -> Option<[Amount; 2]> {
    let (live, rest) = text.split_once('[')?;
    let (allocated, _) = rest.split_once(']')?;
    Some([amount(live)?, amount(allocated)?])
}

fn amount(text: &str) -> Option<Amount> {
    let (blocks, bytes) = text.split_once(':')?;
    Some(Amount { blocks: blocks.trim().parse().ok()?, bytes: bytes.trim().parse().ok()? })
}

/// Parses the addresses in a line, the innermost first.
pub(crate) fn addresses(text: &str) -> Option<Vec<u64>> {
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    text.split_ascii_whitespace().map(number).collect()
}

/// Returns the estimate from a sample of blocks, if each byte is a sample point with the
/// probability `1 / mean`. Blocks of one size were sampled with the probability
/// `1 - exp(-size / mean)`; the mean size of a stack's blocks is used for all of them.
pub(crate) fn estimate(sampled: Amount, mean: u64) -> Amount {
    if mean <= 1 || sampled.blocks == 0 || sampled.bytes == 0 {
        return sampled;
    }
    let size = sampled.bytes as f64 / sampled.blocks as f64;
    let scale = -1.0 / (-size / mean as f64).exp_m1();
    let scaled = |count: u64| (count as f64 * scale).round() as u64;
    Amount { blocks: scaled(sampled.blocks), bytes: scaled(sampled.bytes) }
}

/// Returns the lines of a text, each with its offset.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    text.split_inclusive('\n').scan(0, |next, line| {
        let at = *next;
        *next += line.len() as u64;
        Some((at, line.trim_end_matches(['\n', '\r'])))
    })
}

/// Returns the file as text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, ReadError> {
    std::str::from_utf8(bytes).map_err(|error| ReadError::new(error.valid_up_to() as u64, "it is no text"))
}
