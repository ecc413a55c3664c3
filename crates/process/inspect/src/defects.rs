//! What reporters do wrong.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use heapledger_context::untracked;
use heapledger_core::Bytes;
use heapledger_ledger as ledger;
use heapledger_resident::{LEDGER, query};

use crate::reported::Mark;
use crate::{Ledger, Stack};

/// Something that a reporter has done wrong: see [`Ledger::defects`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Defect {
    /// What.
    pub kind: DefectKind,
    /// Who, and where.
    pub mark: Mark,
    /// What was reported, the first time.
    pub address: u64,
    /// Where the block begins that this is about; `None`: there is none.
    pub block: Option<u64>,
    /// Where that block was allocated; `None` also where its stack was not taken.
    pub allocated_at: Option<Stack>,
    /// Bytes of that block that may be used.
    pub usable: Option<Bytes>,
    /// As how many bytes it was counted; `None`: that was not said.
    pub measured: Option<Bytes>,
    /// How often: of this kind, by this reporter, at this place.
    pub count: u64,
}

/// What is wrong with a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DefectKind {
    /// There is no live block that is known: it has been freed, or was allocated before the ledger was started.
    NoBlock,
    /// The address is inside a block, and not where it begins.
    Interior,
    /// It is memory of the program's, but not of its heap: on a stack, static, or mapped.
    NotHeap,
    /// The reporter counts less than may be used of the block.
    Partly,
    /// The block was freed while its report counted: with a mark that is to be kept and that nobody had [taken
    /// off](Ledger::unmark), or while reporters were asked.
    FreedWhileReported,
}

impl Defect {
    fn new(defect: ledger::Defect) -> Defect {
        let ledger::Defect { kind, mark, address, block, measured, count } = defect;
        let kind = match kind {
            ledger::DefectKind::NoBlock => DefectKind::NoBlock,
            ledger::DefectKind::Interior => DefectKind::Interior,
            ledger::DefectKind::Partly => DefectKind::Partly,
            ledger::DefectKind::FreedWhileReported => DefectKind::FreedWhileReported,
        };
        Defect {
            kind,
            mark: Mark::of(mark),
            address,
            block: block.map(|block| block.key.address()),
            allocated_at: block.and_then(|block| Stack::taken(block.stack)),
            usable: block.map(|block| block.usable),
            measured: Some(Bytes(measured)).filter(|measured| measured.0 != 0),
            count,
        }
    }
}

impl Ledger {
    /// How often reporters have done something wrong: since marks were cleared, and with marks that are to be kept, since the
    /// ledger was started.
    pub fn defects_count(self) -> u64 {
        query(|| LEDGER.defects_count()).unwrap_or(0)
    }

    /// What they have done: the first 64 different things, each with how often.
    ///
    /// Whether an address without a block is of the heap at all is found out now: by the kernel's list of mappings, and by
    /// whether there are live blocks in the one that it is in.
    pub fn defects(self) -> Vec<Defect> {
        let found = || (0..).map_while(|number| query(|| LEDGER.defect_by_number(number)).flatten());
        untracked::scope(|| {
            let found: Vec<_> = found().collect();
            classified(found.into_iter(), || self.blocks().map(|block| block.address))
        })
    }
}

/// As whoever asks is told. `blocks`: where live blocks begin.
pub(crate) fn classified<I: Iterator<Item = u64>>(
    found: impl Iterator<Item = ledger::Defect>,
    blocks: impl FnOnce() -> I,
) -> Vec<Defect> {
    let mut defects: Vec<Defect> = found.map(Defect::new).collect();
    let suspects: Vec<u64> =
        defects.iter().filter(|defect| defect.kind == DefectKind::NoBlock).map(|defect| defect.address).collect();
    if suspects.is_empty() {
        return defects;
    }
    let others = others(&suspects, blocks);
    for defect in &mut defects {
        if defect.kind == DefectKind::NoBlock && others.iter().any(|mapping| mapping.contains(&defect.address)) {
            defect.kind = DefectKind::NotHeap;
        }
    }
    defects
}

/// The mappings around these addresses that are not of the heap: of files, stacks, and such as have no live block.
fn others<I: Iterator<Item = u64>>(addresses: &[u64], blocks: impl FnOnce() -> I) -> Vec<Range<u64>> {
    let mut others = Vec::new();
    let mut anonymous = Vec::new();
    for (mapping, name) in mappings() {
        if !addresses.iter().any(|address| mapping.contains(address)) {
            continue;
        }
        match &*name {
            "[heap]" => {}
            // As the allocator or the program asked for it.
            "" => anonymous.push((mapping, false)),
            name if name.starts_with("[anon") => anonymous.push((mapping, false)),
            _ => others.push(mapping),
        }
    }
    if !anonymous.is_empty() {
        for block in blocks() {
            if let Some((_, has_blocks)) = anonymous.iter_mut().find(|(mapping, _)| mapping.contains(&block)) {
                *has_blocks = true;
            }
        }
    }
    others.extend(anonymous.into_iter().filter(|(_, has_blocks)| !has_blocks).map(|(mapping, _)| mapping));
    others
}

/// What is mapped, with its name.
fn mappings() -> Vec<(Range<u64>, String)> {
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        Some((number(start)?..number(end)?, words.nth(4).unwrap_or_default().to_owned()))
    };
    let Ok(file) = File::open("/proc/self/maps") else { return Vec::new() };
    BufReader::new(file).lines().map_while(Result::ok).filter_map(|line| parse(&line)).collect()
}
