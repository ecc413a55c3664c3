//! The addresses of programs and libraries. A capture has a new map each time a library is loaded.

use std::collections::HashMap;

use crate::gather::{Gather, Loaded};
use crate::input::{Input, Step};
use crate::profile::Module;

/// The modules that are loaded now.
#[derive(Debug, Default)]
pub(super) struct Maps {
    pub(super) loaded: Loaded,
    /// Indices of all modules of the capture, by path and bias.
    modules: HashMap<(String, u64), usize>,
    /// The number of the map, from 1.
    pub(super) generation: u32,
}

/// The kind of the record of a module's segment.
const SEGMENT: u8 = 8;

impl Maps {
    /// Begins a new map and returns the previous one.
    pub(super) fn begin(&mut self) -> Loaded {
        self.generation = self.generation.saturating_add(1);
        std::mem::take(&mut self.loaded)
    }

    /// Reads a module and its segments.
    pub(super) fn module(&mut self, input: &mut Input<'_>, gather: &mut Gather) -> Step<()> {
        let (path, parts, bias) = (input.text()?, input.varint()?, input.u64()?);
        let modules = &mut gather.profile.modules;
        let at = *self.modules.entry((path, bias)).or_insert_with_key(|(path, bias)| {
            modules.push(Module { path: path.clone(), bias: Some(*bias), ..Module::default() });
            modules.len() - 1
        });
        for _ in 0..parts {
            if input.byte()? != SEGMENT {
                return input.wrong("a module has fewer parts than it says");
            }
            let start = bias.wrapping_add(input.u64()?);
            let end = start.saturating_add(input.varint()?);
            let module = &mut modules[at];
            let is_first = module.start == module.end;
            module.start = if is_first { start } else { module.start.min(start) };
            module.end = module.end.max(end);
            self.loaded.insert(start, end, at);
        }
        Ok(())
    }
}
