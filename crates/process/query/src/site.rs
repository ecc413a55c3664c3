//! Sites: the stacks that allocate.

use std::collections::HashMap;
use std::fmt;

use heapledger_core::{Blocks, Bytes};
use heapledger_inprocess::control;

use crate::error::{Estimated, StandardError};
use crate::{Ledger, Stack};

/// The totals of one site.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Site {
    /// The stack of the site.
    pub stack: Stack,
    /// The number of calls that returned a block. In a sampled ledger this and the following
    /// amounts are estimates.
    pub allocations: Blocks,
    /// The requested bytes of these blocks.
    pub bytes_allocated: Bytes,
    /// The number of these blocks that were freed.
    pub frees: Blocks,
    /// The number of temporary blocks: see [`Totals::temporaries`](crate::Totals::temporaries).
    pub temporaries: Blocks,
    /// The number of live blocks.
    pub blocks_live: Blocks,
    /// The requested bytes of the live blocks.
    pub bytes_live: Bytes,
    /// The standard error of `bytes_allocated` and `allocations`.
    pub allocated_standard_error: StandardError,
    /// The standard error of `bytes_live` and `blocks_live`, as far as they are estimates because
    /// allocations are sampled.
    pub live_standard_error: StandardError,
}

/// The order in which sites are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SiteOrder {
    /// Live bytes.
    #[default]
    BytesLive,
    /// Live blocks.
    BlocksLive,
    /// All bytes that were ever allocated.
    BytesAllocated,
    /// All blocks that were ever allocated.
    Allocations,
    /// Temporary blocks.
    Temporaries,
}

impl Site {
    pub(crate) fn of(site: heapledger_ledger::Site) -> Site {
        let heapledger_ledger::Site {
            allocations, bytes_allocated, frees, temporaries, blocks_live, bytes_live, ..
        } = site;
        Site {
            stack: Stack::of(site.stack),
            allocations,
            bytes_allocated,
            frees,
            temporaries,
            blocks_live,
            bytes_live,
            allocated_standard_error: site.variances.allocated.into(),
            live_standard_error: site.variances.live.into(),
        }
    }

    pub(crate) fn amount(&self, by: SiteOrder) -> u64 {
        match by {
            SiteOrder::BytesLive => self.bytes_live.0,
            SiteOrder::BlocksLive => self.blocks_live.0,
            SiteOrder::BytesAllocated => self.bytes_allocated.0,
            SiteOrder::Allocations => self.allocations.0,
            SiteOrder::Temporaries => self.temporaries.0,
        }
    }
}

/// Prints one line, then the stack.
impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{} bytes live in {} blocks, {} bytes allocated in {} blocks, {} of them temporary, at",
            Estimated::bytes(self.bytes_live, self.live_standard_error),
            Estimated::blocks(self.blocks_live, self.live_standard_error),
            Estimated::bytes(self.bytes_allocated, self.allocated_standard_error),
            Estimated::blocks(self.allocations, self.allocated_standard_error),
            self.temporaries.0
        )?;
        self.stack.fmt(out)
    }
}

pub(crate) fn top(ledger: Ledger, count: usize, by: SiteOrder) -> Vec<Site> {
    let mut sites: Vec<Site> = ledger.sites().collect();
    if control::stack_probability().is_some() {
        estimate_live(ledger, &mut sites);
    }
    sites.sort_by_key(|site| std::cmp::Reverse(site.amount(by)));
    sites.retain(|site| site.amount(by) > 0);
    sites.truncate(count);
    sites
}

/// Replaces the counts of live blocks by estimates, from the weights of the blocks.
fn estimate_live(ledger: Ledger, sites: &mut [Site]) {
    let mut live: HashMap<Stack, (f64, f64)> = HashMap::new();
    for block in ledger.blocks().filter(|block| block.allocated_at().is_some()) {
        let weight = match block.sampled_every {
            Some(_) => block.weight.0 as f64,
            None => control::weight_of_stack(block.usable),
        };
        let (blocks, bytes) = live.entry(block.stack).or_default();
        *blocks += weight;
        *bytes += weight * block.size.0 as f64;
    }
    for site in sites {
        let (blocks, bytes) = live.get(&site.stack).copied().unwrap_or_default();
        site.blocks_live = Blocks(blocks.round() as u64);
        site.bytes_live = Bytes(bytes.round() as u64);
    }
}
