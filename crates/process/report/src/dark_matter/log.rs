//! The ledger as a log.

use std::collections::HashMap;

use heapledger_core::StackId;
use heapledger_dmd as dmd;
use heapledger_inspect::{Block, Ledger, Mark, Misreport, SnapshotError, SnapshotOptions, Stack};
use heapledger_resident::internally;

use super::modules::Modules;
use crate::collect::Claim;

/// Bytes by which a claim may be wrong, whatever its size.
const CLAIM_SLACK: u64 = 4096;

/// What is in the ledger now. `claims` are what those reporters say who have just been asked.
pub(super) fn of_ledger(mode: dmd::Mode, claims: &[Claim]) -> Result<dmd::Log, SnapshotError> {
    let ledger = Ledger::get();
    let snapshot = ledger.snapshot(&SnapshotOptions::default())?;
    let (misreports_count, misreports) = match mode {
        dmd::Mode::DarkMatter => (ledger.misreports_count(), ledger.misreports().collect()),
        _ => (0, Vec::new()),
    };
    // Nothing is asked of the ledger any more; what is allocated, and freed, is not the program's.
    Ok(internally(|| {
        let mut writer = Writer::new(mode);
        for block in snapshot.blocks() {
            writer.add(&block);
        }
        for misreport in &misreports {
            writer.defect(misreport);
        }
        let about = writer.builder.about();
        about.defects_count = misreports_count;
        about.pause_ns = snapshot.pause().as_nanos() as u64;
        // What has been marked of a sample says little of the whole.
        for claim in claims.iter().filter(|_| !snapshot.totals().is_estimate) {
            writer.compare(claim);
        }
        writer.finish()
    }))
}

/// Gives the ledger's stacks and names numbers of the log.
struct Writer {
    builder: dmd::Builder,
    modules: Modules,
    mode: dmd::Mode,
    frames: HashMap<u64, dmd::FrameId>,
    stacks: HashMap<StackId, Place>,
    /// Usable bytes of the blocks that a reporter has marked.
    marked: HashMap<&'static str, u64>,
}

/// What a stack of the ledger is in the log.
#[derive(Clone, Copy)]
struct Place {
    /// Its frames; `None`: it has none.
    trace: Option<dmd::TraceId>,
    context: Option<dmd::NameId>,
}

impl Writer {
    fn new(mode: dmd::Mode) -> Writer {
        let (frames, stacks, marked) = (HashMap::new(), HashMap::new(), HashMap::new());
        Writer { builder: dmd::Builder::new(mode), modules: Modules::of_this_process(), mode, frames, stacks, marked }
    }

    fn add(&mut self, block: &Block) {
        let Place { trace, context } = self.place(block.stack);
        let marks = if self.mode == dmd::Mode::DarkMatter { block.marks } else { [None; 2] };
        let reports = marks.map(|mark| self.report(&mark?));
        let again = marks[1].filter(|again| marks[0].is_none_or(|first| first.reporter != again.reporter));
        for mark in marks[0].iter().chain(&again) {
            *self.marked.entry(mark.reporter).or_default() += block.usable.0;
        }
        let type_name = block.type_name().map(|name| self.builder.name(name));
        self.builder.add(&dmd::Block {
            requested: block.size.0,
            slop: block.usable.0.saturating_sub(block.size.0),
            count: 1,
            weight: block.weight,
            // Chosen with the probability 1 / weight.
            variance: block.weight * (block.weight - 1.0),
            alloc: trace,
            reports,
            type_name,
            context,
        });
    }

    fn defect(&mut self, misreport: &Misreport) {
        let Misreport { address, mark, inside, .. } = *misreport;
        let kind = if inside.is_some() { dmd::DefectKind::Interior } else { dmd::DefectKind::NoBlock };
        let reporter = Some(self.builder.name(mark.reporter));
        let trace = self.place(mark.stack).trace;
        let (alloc, measured, usable, count) = (None, 0, 0, 1);
        let defect = dmd::Defect { kind, reporter, address, trace, alloc, measured, usable, count };
        self.builder.about().defects.push(defect);
    }

    /// A reporter that says it holds more heap than it has marked. Not what blocks that were freed meanwhile can make up for.
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
        let trace = self.place(mark.stack).trace.unwrap_or_else(|| self.builder.trace(&[]));
        Some(dmd::Report { trace, reporter: Some(self.builder.name(mark.reporter)) })
    }

    fn place(&mut self, stack: Stack) -> Place {
        if let Some(&place) = self.stacks.get(&stack.id()) {
            return place;
        }
        let frames: Vec<dmd::FrameId> = stack.frames().map(|frame| self.frame(frame.address)).collect();
        let mut scopes: Vec<&str> = stack.context().map(|scope| scope.name).collect();
        scopes.reverse();
        let place = Place {
            trace: (!frames.is_empty()).then(|| self.builder.trace(&frames)),
            context: (!scopes.is_empty()).then(|| self.builder.name(&scopes.join("/"))),
        };
        self.stacks.insert(stack.id(), place);
        place
    }

    /// By an address in the instruction that made the call: in a log they are those to which the calls return.
    fn frame(&mut self, address: u64) -> dmd::FrameId {
        *self.frames.entry(address).or_insert_with(|| {
            let text = match self.modules.place(address) {
                Some((file, offset)) => format!("???[{} +0x{:x}]", file.path, offset + 1),
                // Of a library that is gone, or made while the program runs.
                None => format!("???[??? +0x{:x}]", address + 1),
            };
            self.builder.frame(&text)
        })
    }

    fn finish(mut self) -> dmd::Log {
        let about = self.builder.about();
        about.program = crate::collect::program();
        about.pid = std::process::id();
        about.modules = self.modules.files();
        self.builder.finish()
    }
}
