//! The types of unstamped blocks, from their stacks and the debug information of the modules there.

use std::cmp::Reverse;
use std::collections::HashMap;

use heapledger_block_types::{Confidence, SiteSizes, TypeFinder};
use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_inprocess::{LEDGER, query};
use heapledger_symbols::{ModuleRef, Symbolizer, SymbolizerOptions};

use crate::stamp::{Stamp, UNKNOWN};
use crate::{LiveType, LiveTypes, Modules, Stack, TypeCertainty};

/// Blocks and bytes, estimated in a sampled ledger.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    blocks: u64,
    bytes: u64,
}

/// The unstamped live blocks of one site.
#[derive(Clone, Copy, Debug, Default)]
struct Site {
    amount: Amount,
    /// The sizes of the blocks that the ledger really has. A type is checked against these, since
    /// estimates would say nothing about it.
    sizes: SiteSizes,
}

impl LiveTypes {
    pub(crate) fn of_this_process() -> LiveTypes {
        let mut sums: HashMap<(String, TypeCertainty), Amount> = HashMap::new();
        let mut unstamped: HashMap<StackId, Site> = HashMap::new();
        let mut blocks = LEDGER.blocks();
        while let Some(block) = query(|| blocks.next()).flatten() {
            let count = block.weight().0;
            let amount = Amount { blocks: count, bytes: count.wrapping_mul(block.size.0) };
            match Stamp::of(block.stamp) {
                Some(stamp) => {
                    sums.entry((stamp.type_name.to_owned(), TypeCertainty::Stamped)).or_default().add(amount);
                }
                None => {
                    unstamped
                        .entry(block.stack)
                        .or_default()
                        .add(Site { amount, sizes: SiteSizes::of_one(block.size.0) });
                }
            }
        }
        let modules = Modules::of_this_process();
        let finder = TypeFinder::new(Symbolizer::new(SymbolizerOptions::default()));
        for (frames, site) in by_frames(unstamped) {
            let inferred = finder.site_type(&code_locations(&modules, &frames), site.sizes);
            let name = inferred.block.map_or_else(|| UNKNOWN.to_owned(), |name| name.short().to_owned());
            sums.entry((name, inferred.confidence.into())).or_default().add(site.amount);
        }
        LiveTypes { rows: rows(sums) }
    }
}

/// Joins what was allocated in different contexts or heaps, but by the same frames.
fn by_frames(stacks: HashMap<StackId, Site>) -> HashMap<Box<[u64]>, Site> {
    let mut sites: HashMap<Box<[u64]>, Site> = HashMap::new();
    for (stack, site) in stacks {
        let frames = Stack::of(stack).frames().map(|frame| frame.address).collect();
        sites.entry(frames).or_default().add(site);
    }
    sites
}

/// Returns the innermost frames up to the first in code that belongs to no module: callers beyond
/// such code say nothing about what it allocates.
fn code_locations<'modules>(modules: &'modules Modules, frames: &[u64]) -> Vec<(ModuleRef<'modules>, u64)> {
    let known = frames.iter().map_while(|&address| {
        let module = modules.find(address)?;
        let reference = ModuleRef { path: module.path.as_bytes(), build_id: &module.build_id };
        Some((reference, module.own_address(address)))
    });
    known.collect()
}

/// Returns a row for each type and certainty, the one with the most bytes first.
fn rows(sums: HashMap<(String, TypeCertainty), Amount>) -> Vec<LiveType> {
    let row = |((name, certainty), Amount { blocks, bytes })| LiveType {
        name,
        certainty,
        blocks: Blocks(blocks),
        bytes: Bytes(bytes),
    };
    let mut rows: Vec<LiveType> = sums.into_iter().map(row).collect();
    rows.sort_by(|one, other| {
        let amount = |row: &LiveType| Reverse((row.bytes, row.blocks));
        amount(one).cmp(&amount(other)).then_with(|| (&one.name, one.certainty).cmp(&(&other.name, other.certainty)))
    });
    rows
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.blocks = self.blocks.wrapping_add(other.blocks);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

impl Site {
    fn add(&mut self, other: Site) {
        self.amount.add(other.amount);
        self.sizes.join(other.sizes);
    }
}

impl From<Confidence> for TypeCertainty {
    fn from(confidence: Confidence) -> Self {
        match confidence {
            Confidence::Exact => TypeCertainty::Exact,
            Confidence::SizeConsistent => TypeCertainty::SizeConsistent,
            Confidence::Ambiguous => TypeCertainty::Ambiguous,
            Confidence::Probable => TypeCertainty::Probable,
            Confidence::Unknown => TypeCertainty::Unknown,
        }
    }
}
