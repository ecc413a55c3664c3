//! The stacks and blocks of a log that an analysis looks at, in memory or stored.

use std::convert::Infallible;

use crate::log::{FrameId, Group, Log, TraceId};

/// Stacks and blocks that can be visited several times, in the same order.
pub(crate) trait BlockSource {
    /// The error of a visit.
    type Error;

    /// Returns the log without stacks and blocks.
    fn log(&self) -> &Log;

    /// Visits the stacks. The last one with the same number counts.
    fn each_trace(&mut self, visit: impl FnMut(TraceId, &[FrameId])) -> Result<(), Self::Error>;

    /// Visits the blocks, those in common groups together.
    fn each_group(&mut self, visit: impl FnMut(&Group)) -> Result<(), Self::Error>;

    /// Visits the blocks whose addresses are known, each with its group.
    fn each_address(&mut self, visit: impl FnMut(&Group, u64)) -> Result<(), Self::Error>;
}

impl BlockSource for &Log {
    type Error = Infallible;

    fn log(&self) -> &Log {
        self
    }

    fn each_trace(&mut self, mut visit: impl FnMut(TraceId, &[FrameId])) -> Result<(), Infallible> {
        self.traces.iter().enumerate().for_each(|(at, frames)| visit(TraceId(at as u32), frames));
        Ok(())
    }

    fn each_group(&mut self, visit: impl FnMut(&Group)) -> Result<(), Infallible> {
        self.groups.iter().for_each(visit);
        Ok(())
    }

    fn each_address(&mut self, mut visit: impl FnMut(&Group, u64)) -> Result<(), Infallible> {
        let blocks = &self.scanned.blocks;
        blocks.iter().for_each(|block| visit(&self.groups[block.group as usize], block.address));
        Ok(())
    }
}
