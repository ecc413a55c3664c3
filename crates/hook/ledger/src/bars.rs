//! Error bars: the range around an estimate from samples that holds the truth 95 times in 100.
//!
//! The exact interval of a Poisson count, for a weighted sum (Dobson, Kuulasmaa, Eberle and Scherer
//! 1991; Fay and Feuer 1997): the estimate `y` with the standard error `e` is like a count of `k =
//! (y / e)²` blocks with the weight `y / k` each. For few blocks the interval is wider above than
//! below; the bar is its wider half. Two standard errors are too little there, since estimate and
//! standard error are small together: when the blocks of high weight are not in the sample.

use heapledger_core::{Blocks, Bytes};

/// The distance from the mean, in standard deviations, within which 95 % of a normal distribution
/// lie.
const NORMAL: f64 = 1.959_964;

/// The weight of a block that might have been sampled, and was not, in mean weights of those that
/// were. For bytes the weights are nearly equal: every small block has the weight of the mean
/// distance of sample points.
const UNSEEN_BYTES: f64 = 1.0;
/// The same for numbers of blocks, whose weights differ as much as sizes do. Chosen by the tests.
const UNSEEN_BLOCKS: f64 = 3.0;

/// Returns the error bar of an estimate of bytes with this standard error; 0 if it is exact.
pub fn bar_of_bytes(estimate: Bytes, error: Bytes) -> Bytes {
    Bytes(bar(estimate.0, error.0, UNSEEN_BYTES))
}

/// Returns the error bar of an estimate of a number of blocks with this standard error; 0 if it is
/// exact.
pub fn bar_of_blocks(estimate: Blocks, error: Blocks) -> Blocks {
    Blocks(bar(estimate.0, error.0, UNSEEN_BLOCKS))
}

fn bar(estimate: u64, error: u64, unseen: f64) -> u64 {
    if error == 0 {
        return 0;
    }
    let (y, e) = (estimate as f64, error as f64);
    let normal = NORMAL * e;
    // Only a damaged file has an estimate of zero with an error. For many blocks the distribution
    // is normal.
    if estimate == 0 || y > 1e5 * e {
        return (normal + 0.5) as u64;
    }
    let (k, mean) = ((y / e) * (y / e), e * e / y);
    // With one block more than there are.
    let scale = mean * (k + unseen * unseen) / (k + unseen);
    let shape = (k + unseen) * (k + unseen) / (k + unseen * unseen);
    // The quantile of the gamma distribution by Wilson and Hilferty.
    let root = 1.0 - 1.0 / (9.0 * shape) + NORMAL / (3.0 * square_root(shape));
    let upper = scale * shape * root * root * root;
    ((upper - y).max(normal) + 0.5) as u64
}

/// Returns the square root of a number from 0 to 2⁶⁰: `core` has none.
fn square_root(x: f64) -> f64 {
    ((x * (1_u64 << 40) as f64) as u128).isqrt() as f64 / (1_u64 << 20) as f64
}

#[cfg(test)]
mod tests;
