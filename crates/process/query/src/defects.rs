//! Defects: wrong reports.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use heapledger_annotate::untracked;
use heapledger_core::Bytes;
use heapledger_inprocess::{LEDGER, query};
use heapledger_ledger as ledger;

use crate::reported::Mark;
use crate::{Ledger, Stack};

/// A wrong report: see [`Ledger::defects`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Defect {
    /// The kind of defect.
    pub kind: DefectKind,
    /// The mark: the reporter, and the stack at which it reported.
    pub mark: Mark,
    /// The address that was reported, the first time.
    pub address: u64,
    /// The beginning of the block that the defect is about; `None` if there is none.
    pub block: Option<u64>,
    /// The stack at which that block was allocated; `None` also if its stack was not taken.
    pub allocated_at: Option<Stack>,
    /// The usable size of that block.
    pub usable: Option<Bytes>,
    /// The number of bytes that the reporter counted for the block; `None` if the reporter did not
    /// say.
    pub measured: Option<Bytes>,
    /// The number of times that this reporter made this defect at this stack.
    pub count: u64,
}

/// The ways in which a report can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DefectKind {
    /// There is no live block that is known: it has been freed, or was allocated before the ledger
    /// was started.
    NoBlock,
    /// The address is inside a block, not at its beginning.
    Interior,
    /// The address is in memory of the program that is not of its heap: on a stack, static, or
    /// mapped.
    NotHeap,
    /// The reporter counts less than the usable size of the block.
    Partly,
    /// The block was freed while a mark on it counted: a kept mark that had not been [taken
    /// off](Ledger::unmark), or any mark while reporters were being asked.
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
    /// Returns how often reporters have made defects: since marks were cleared, and for kept marks,
    /// since the ledger was started.
    pub fn defects_count(self) -> u64 {
        query(|| LEDGER.defects_count()).unwrap_or(0)
    }

    /// Returns the first 64 different defects, each with the number of its occurrences.
    ///
    /// For an address without a block, this call finds out whether the address belongs to the heap
    /// at all: the kernel's list of mappings must have a mapping around it that contains live
    /// blocks.
    pub fn defects(self) -> Vec<Defect> {
        let found = || (0..).map_while(|number| query(|| LEDGER.defect_by_number(number)).flatten());
        untracked::scope(|| {
            let found: Vec<_> = found().collect();
            classified(found.into_iter(), || self.blocks().map(|block| block.address))
        })
    }
}

/// Classifies defects for the caller. `blocks` returns the addresses at which live blocks begin.
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
    let non_heap_mappings = non_heap_mappings(&suspects, blocks);
    for defect in &mut defects {
        if defect.kind == DefectKind::NoBlock
            && non_heap_mappings.iter().any(|mapping| mapping.contains(&defect.address))
        {
            defect.kind = DefectKind::NotHeap;
        }
    }
    defects
}

/// Returns the mappings around these addresses that are not of the heap: files, stacks, and
/// mappings without a live block.
fn non_heap_mappings<I: Iterator<Item = u64>>(addresses: &[u64], blocks: impl FnOnce() -> I) -> Vec<Range<u64>> {
    let mut non_heap_mappings = Vec::new();
    let mut anonymous = Vec::new();
    for (mapping, name) in mappings() {
        if !addresses.iter().any(|address| mapping.contains(address)) {
            continue;
        }
        match &*name {
            "[heap]" => {}
            // An anonymous mapping, of the allocator or of the program.
            "" => anonymous.push((mapping, false)),
            name if name.starts_with("[anon") => anonymous.push((mapping, false)),
            _ => non_heap_mappings.push(mapping),
        }
    }
    if !anonymous.is_empty() {
        for block in blocks() {
            if let Some((_, has_blocks)) = anonymous.iter_mut().find(|(mapping, _)| mapping.contains(&block)) {
                *has_blocks = true;
            }
        }
    }
    non_heap_mappings.extend(anonymous.into_iter().filter(|(_, has_blocks)| !has_blocks).map(|(mapping, _)| mapping));
    non_heap_mappings
}

/// Returns the mappings of this process, with their names.
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
