//! The cell of this process: see [`heapledger_wire::armed`].

use heapledger_wire::armed::ArmedCell;

/// The cell of this process.
pub static CELL: ArmedCell = ArmedCell::new();
