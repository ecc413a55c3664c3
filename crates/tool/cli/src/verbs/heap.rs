//! `heapledger heap`: who is in a JavaScript heap, who holds it, and what would be freed.

use std::path::Path;

use crate::args::{HeapAction, Written};
use crate::error::Result;
use crate::output::Output;

mod census;
pub(crate) mod diff;
pub(crate) mod dominators;
pub(crate) mod export;
pub(crate) mod find;
mod json;
mod names;
pub(crate) mod node;
pub(crate) mod paths;
mod report;
mod snapshot;

pub(crate) fn run(action: &HeapAction, out: &mut Output) -> Result<()> {
    match action {
        HeapAction::Census(arguments) => census::run(arguments, out),
        HeapAction::Diff(arguments) => diff::run(arguments, out),
        HeapAction::Find(arguments) => find::run(arguments, out),
        HeapAction::Dominators(arguments) => dominators::run(arguments, out),
        HeapAction::Node(arguments) => node::run(arguments, out),
        HeapAction::Paths(arguments) => paths::run(arguments, out),
        HeapAction::Export(arguments) => export::run(arguments, out),
    }
}

/// Begins the output file, if there is one, before the snapshot is read.
fn begin(written: &Written, inputs: &[&Path], out: &mut Output) -> Result<()> {
    match &written.output {
        Some(target) => out.direct(target, written.force, inputs),
        None => Ok(()),
    }
}
