//! The ledger as a log.

use std::collections::HashMap;
use std::time::Duration;

use heapledger_core::StackId;
use heapledger_dmd as dmd;
use heapledger_inspect::{Block, Ledger, Mark, Misreport, Stack};

use super::modules::Modules;

/// What is in the ledger now.
pub(super) fn of_ledger(mode: dmd::Mode) -> dmd::Log {
    let ledger = Ledger::get();
    let mut writer = Writer::new(mode);
    let (blocks, pause) = blocks(ledger);
    for block in blocks {
        writer.add(&block);
    }
    if mode == dmd::Mode::DarkMatter {
        writer.builder.about().defects_count = ledger.misreports_count();
        for misreport in ledger.misreports() {
            writer.defect(&misreport);
        }
    }
    writer.builder.about().pause_ns = pause.as_nanos() as u64;
    writer.finish()
}

/// The live blocks, and for how long the program was held up for them.
fn blocks(ledger: Ledger) -> (impl Iterator<Item = Block>, Duration) {
    (ledger.blocks(), Duration::ZERO)
}

/// Gives the ledger's stacks and names numbers of the log.
struct Writer {
    builder: dmd::Builder,
    modules: Modules,
    mode: dmd::Mode,
    frames: HashMap<u64, dmd::FrameId>,
    stacks: HashMap<StackId, Place>,
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
        let (frames, stacks) = (HashMap::new(), HashMap::new());
        Writer { builder: dmd::Builder::new(mode), modules: Modules::of_this_process(), mode, frames, stacks }
    }

    fn add(&mut self, block: &Block) {
        let Place { trace, context } = self.place(block.stack);
        let marks = if self.mode == dmd::Mode::DarkMatter { block.marks } else { [None; 2] };
        let reports = marks.map(|mark| self.report(&mark?));
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
