//! The ledger as a log.

use std::collections::HashMap;

use heapledger_core::{Bytes, StackId};
use heapledger_dmd as dmd;
use heapledger_query::{
    Block, Defect, DefectKind, FreedBlocks, Ledger, Mark, Module, Modules, SnapshotError, SnapshotOptions, Stack,
};

use crate::collect::Claim;

/// Bytes by which a claim may be wrong, whatever its size.
const CLAIM_SLACK: u64 = 4096;

/// Makes a log of the ledger as it is now. `claims` are the amounts that the reporters have just
/// reported.
pub(super) fn of_ledger(
    mode: dmd::Mode,
    contents_max: Option<Bytes>,
    claims: &[Claim],
) -> Result<dmd::Log, SnapshotError> {
    let ledger = Ledger::get();
    let snapshot = ledger.snapshot(&SnapshotOptions { contents_max })?;
    let defects = if mode == dmd::Mode::DarkMatter { snapshot.defects() } else { Vec::new() };
    let mut writer = Writer::new(mode);
    for block in snapshot.blocks() {
        if mode == dmd::Mode::Scan {
            writer.add_scanned(&block, snapshot.contents(&block).unwrap_or_default());
        } else {
            writer.add(&block);
        }
    }
    if mode == dmd::Mode::Cumulative {
        for freed in snapshot.freed() {
            writer.add_freed(&freed);
        }
    }
    for defect in &defects {
        writer.defect(defect);
    }
    let about = writer.builder.about();
    about.defects_count = if mode == dmd::Mode::DarkMatter { snapshot.defects_count() } else { 0 };
    about.sampling = snapshot.stack_probability().map(|probability| dmd::Sampling { probability });
    about.pause_ns = snapshot.pause().as_nanos() as u64;
    let overhead = ledger.overhead();
    about.dump = Some(dmd::DumpStats {
        register: overhead.bytes_ledger.0,
        stacks: overhead.bytes_stacks.0,
        rules: overhead.bytes_rules.0,
        threads: overhead.bytes_threads.0,
        events: overhead.bytes_events.0 + overhead.bytes_filter.0,
        copy: snapshot.bytes_mapped().0,
    });
    // The marked blocks of a sample say little about all blocks.
    for claim in claims.iter().filter(|_| !snapshot.totals().is_estimate) {
        writer.compare(claim);
    }
    Ok(writer.finish())
}

/// Gives the ledger's stacks and names numbers of the log.
struct Writer {
    builder: dmd::Builder,
    modules: Modules,
    mode: dmd::Mode,
    frames: HashMap<u64, dmd::FrameId>,
    stacks: HashMap<StackId, StackEntry>,
    /// Usable bytes of the blocks that a reporter has marked.
    marked: HashMap<&'static str, u64>,
}

/// The properties that blocks have in common, live or freed.
struct CommonProperties {
    size: Bytes,
    usable: Bytes,
    stack: Stack,
    /// The number of blocks that each counts for.
    weight: f64,
}

impl CommonProperties {
    fn of(block: &Block) -> CommonProperties {
        CommonProperties { size: block.size, usable: block.usable, stack: block.stack, weight: block.weight.0 as f64 }
    }
}

/// The entries of the log for a stack of the ledger.
#[derive(Clone, Copy)]
struct StackEntry {
    /// The stack's frames; `None` if it has none, or was not taken.
    trace: Option<dmd::TraceId>,
    context: Option<dmd::NameId>,
}

impl Writer {
    fn new(mode: dmd::Mode) -> Writer {
        let (frames, stacks, marked) = (HashMap::new(), HashMap::new(), HashMap::new());
        Writer { builder: dmd::Builder::new(mode), modules: Modules::of_this_process(), mode, frames, stacks, marked }
    }

    fn add(&mut self, block: &Block) {
        let marks = if self.mode == dmd::Mode::DarkMatter { block.marks } else { [None; 2] };
        let again = marks[1].filter(|again| marks[0].is_none_or(|first| first.reporter != again.reporter));
        for mark in marks[0].iter().chain(&again) {
            *self.marked.entry(mark.reporter).or_default() += block.usable.0;
        }
        let reports = marks.map(|mark| self.report(&mark?));
        let block = self.block(&CommonProperties::of(block), 1, block.type_name());
        self.builder.add(&dmd::Block { reports, ..block });
    }

    fn add_scanned(&mut self, block: &Block, contents: &[u64]) {
        let scanned = self.block(&CommonProperties::of(block), 1, block.type_name());
        self.builder.add_scanned(&scanned, block.address, contents);
    }

    fn add_freed(&mut self, freed: &FreedBlocks) {
        let weight = freed.weight.0 as f64 / freed.blocks.0.max(1) as f64;
        let kind = CommonProperties { size: freed.size, usable: freed.usable, stack: freed.stack, weight };
        let block = self.block(&kind, freed.blocks.0, freed.stamp.map(|stamp| stamp.type_name));
        self.builder.add(&block);
    }

    /// Returns the log's entry for such blocks, without reports.
    fn block(&mut self, kind: &CommonProperties, count: u64, type_name: Option<&str>) -> dmd::Block {
        let CommonProperties { size, usable, stack, weight } = *kind;
        let StackEntry { trace: alloc, context } = self.stack_entry(stack);
        let type_name = type_name.map(|name| self.builder.name(name));
        let (requested, slop) = (size.0, usable.0.saturating_sub(size.0));
        // Each was chosen with the probability 1 / weight.
        let variance = weight * (weight - 1.0);
        let reports = [None; 2];
        dmd::Block { requested, slop, count, weight, variance, alloc, reports, type_name, context }
    }

    fn defect(&mut self, defect: &Defect) {
        let kind = match defect.kind {
            DefectKind::NoBlock => dmd::DefectKind::NoBlock,
            DefectKind::Interior => dmd::DefectKind::Interior,
            DefectKind::NotHeap => dmd::DefectKind::NotHeap,
            DefectKind::Partly => dmd::DefectKind::Partly,
            DefectKind::FreedWhileReported => dmd::DefectKind::FreedWhileReported,
            // One that this version knows nothing of.
            _ => return,
        };
        let defect = dmd::Defect {
            kind,
            reporter: Some(self.builder.name(defect.mark.reporter)),
            address: defect.address,
            trace: self.stack_entry(defect.mark.stack).trace,
            alloc: defect.allocated_at.and_then(|stack| self.stack_entry(stack).trace),
            measured: defect.measured.unwrap_or_default().0,
            usable: defect.usable.unwrap_or_default().0,
            count: defect.count,
        };
        self.builder.about().defects.push(defect);
    }

    /// A reporter that says it holds more heap than it has marked. Not what blocks that were freed
    /// meanwhile can make up for.
    fn compare(&mut self, claim: &Claim) {
        let (measured, usable) = (claim.heap.0, self.marked.get(&*claim.reporter).copied().unwrap_or(0));
        if measured <= usable + usable / 16 + CLAIM_SLACK {
            return;
        }
        let reporter = Some(self.builder.name(&claim.reporter));
        let (kind, address, trace, alloc, count) = (dmd::DefectKind::Unmarked, 0, None, None, 1);
        let about = self.builder.about();
        about.defects.push(dmd::Defect { kind, reporter, address, trace, alloc, measured, usable, count });
        about.defects_count += 1;
    }

    fn report(&mut self, mark: &Mark) -> Option<dmd::Report> {
        let trace = self.stack_entry(mark.stack).trace.unwrap_or_else(|| self.builder.trace(&[]));
        Some(dmd::Report { trace, reporter: Some(self.builder.name(mark.reporter)) })
    }

    fn stack_entry(&mut self, stack: Stack) -> StackEntry {
        if let Some(&stack_entry) = self.stacks.get(&stack.id()) {
            return stack_entry;
        }
        let frames: Vec<dmd::FrameId> = stack.frames().map(|frame| self.frame(frame.address)).collect();
        let mut scopes: Vec<&str> = stack.context().map(|scope| scope.name).collect();
        scopes.reverse();
        let stack_entry = StackEntry {
            trace: (!frames.is_empty()).then(|| self.builder.trace(&frames)),
            context: (!scopes.is_empty()).then(|| self.builder.name(&scopes.join("/"))),
        };
        self.stacks.insert(stack.id(), stack_entry);
        stack_entry
    }

    /// By an address in the instruction that made the call: in a log they are those to which the
    /// calls return.
    fn frame(&mut self, address: u64) -> dmd::FrameId {
        *self.frames.entry(address).or_insert_with(|| {
            let text = match self.modules.find(address) {
                Some(module) => format!("???[{} +0x{:x}]", module.path, module.own_address(address) + 1),
                // The address is in a library that was unloaded, or in code made at run time.
                None => format!("???[??? +0x{:x}]", address + 1),
            };
            self.builder.frame(&text)
        })
    }

    fn finish(mut self) -> dmd::Log {
        let about = self.builder.about();
        about.program = crate::collect::program();
        about.pid = std::process::id();
        let module = |module: &Module| dmd::Module { path: module.path.clone(), build_id: module.build_id.clone() };
        about.modules = self.modules.iter().map(module).collect();
        self.builder.finish()
    }
}
