//! The totals that a ledger keeps, as a whole and by site. Recordings and queries convert them to
//! types of their own.

use crate::{Blocks, Bytes, StackId};

/// A moment, in the caller's unit and from the caller's origin; the ledger only hands it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Time(pub u64);

/// The counts of what happened in an image so far; the documentation of `heapledger-ledger` has the
/// rules. [`Live`] has the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that returned a block.
    pub allocations: Blocks,
    /// The requested bytes of all these blocks.
    pub bytes_allocated: Bytes,
    /// The number of blocks freed: `allocations - frees` are live.
    pub frees: Blocks,
    /// Successful reallocations: the number of allocations that were one.
    pub reallocations: Blocks,
    /// Temporary blocks: the number of freed blocks that were temporary.
    pub temporaries: Blocks,
    /// Calls that returned no block although one was asked for; they are counted nowhere else.
    pub failed: Blocks,
    /// Frees that never came: the block's address was handed out again. Counted in `frees` or
    /// `frees_inherited` too.
    pub frees_missing: Blocks,
    /// Frees of blocks inherited at the fork, not in `frees`.
    pub frees_inherited: Blocks,
    /// Frees of addresses at which nothing was live, not in `frees`.
    pub frees_unknown: Blocks,
    /// Inherited blocks that are not freed yet. Never in the live totals.
    pub blocks_inherited: Blocks,
    /// Their requested bytes.
    pub bytes_inherited: Bytes,
}

impl Counts {
    /// Nothing has happened.
    pub const NONE: Counts = Counts {
        allocations: Blocks(0),
        bytes_allocated: Bytes(0),
        frees: Blocks(0),
        reallocations: Blocks(0),
        temporaries: Blocks(0),
        failed: Blocks(0),
        frees_missing: Blocks(0),
        frees_inherited: Blocks(0),
        frees_unknown: Blocks(0),
        blocks_inherited: Blocks(0),
        bytes_inherited: Bytes(0),
    };
}

/// Live totals and their maxima. The two maxima are independent: each is over all time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Requested bytes of the live blocks.
    pub bytes_live: Bytes,
    /// Live blocks.
    pub blocks_live: Blocks,
    /// The peak: the most bytes that were live at one moment.
    pub bytes_live_max: Bytes,
    /// The first moment of the peak.
    pub bytes_live_max_time: Time,
    /// Blocks live at the peak.
    pub blocks_at_bytes_max: Blocks,
    /// The most blocks that were live at one moment.
    pub blocks_live_max: Blocks,
}

/// The totals of one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The stack of this site.
    pub stack: StackId,
    /// Calls that returned a block.
    pub allocations: Blocks,
    /// The number of these blocks that were freed; after a restart of the ledger, blocks from
    /// before count too.
    pub frees: Blocks,
    /// The number of these blocks that were temporary.
    pub temporaries: Blocks,
    /// Requested bytes of all these blocks.
    pub bytes_allocated: Bytes,
    /// Requested bytes of the live blocks.
    pub bytes_live: Bytes,
    /// Live blocks.
    pub blocks_live: Blocks,
    /// The site's share of the image's peak, in bytes.
    pub bytes_at_peak: Bytes,
    /// The site's share of the image's peak, in blocks.
    pub blocks_at_peak: Blocks,
    /// The site's share of the session's peak, in bytes.
    pub bytes_at_session_peak: Bytes,
    /// The site's share of the session's peak, in blocks.
    pub blocks_at_session_peak: Blocks,
    /// The variances of these totals, if blocks are sampled.
    pub variances: SiteVariances,
}

/// The variances of a site's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteVariances {
    /// The variance of all allocations.
    pub allocated: Variance,
    /// The variance of the live blocks.
    pub live: Variance,
    /// The variance of the share of the image's peak.
    pub at_peak: Variance,
    /// The variance of the share of the session's peak.
    pub at_session_peak: Variance,
}

/// The variance of an estimate from a sample, which is the square of its standard error. Zero if
/// every block is recorded. It is itself unbiased: a block of weight n adds n² − n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variance {
    /// The variance of bytes, in square bytes.
    pub bytes: u128,
    /// The variance of the number of blocks.
    pub blocks: u128,
}

impl Variance {
    /// The variance of an exact figure.
    pub const NONE: Variance = Variance { bytes: 0, blocks: 0 };

    /// Returns what a block with this weight adds.
    #[inline]
    pub fn of(size: Bytes, weight: Blocks) -> Variance {
        let blocks = u128::from(weight.0) * u128::from(weight.0.saturating_sub(1));
        let size = u128::from(size.0);
        // At most 2¹⁵⁴, for a damaged file.
        Variance { bytes: blocks.wrapping_mul(size.wrapping_mul(size)), blocks }
    }

    /// Returns the standard errors of the estimates. Error bars are wider than two standard errors
    /// if few blocks have been sampled.
    pub fn errors(self) -> (Bytes, Blocks) {
        let root = |variance: u128| u64::try_from(variance.isqrt()).unwrap_or(u64::MAX);
        (Bytes(root(self.bytes)), Blocks(root(self.blocks)))
    }

    /// Returns the sum of two variances.
    #[inline]
    pub fn plus(self, other: Variance) -> Variance {
        Variance { bytes: self.bytes.wrapping_add(other.bytes), blocks: self.blocks.wrapping_add(other.blocks) }
    }

    /// Returns the difference of two variances.
    #[inline]
    pub fn minus(self, other: Variance) -> Variance {
        Variance { bytes: self.bytes.wrapping_sub(other.bytes), blocks: self.blocks.wrapping_sub(other.blocks) }
    }
}

/// The variances of totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variances {
    /// The variance of all allocations.
    pub allocated: Variance,
    /// The variance of the live blocks.
    pub live: Variance,
    /// The variance of the blocks that were live at the peak.
    pub at_peak: Variance,
}
