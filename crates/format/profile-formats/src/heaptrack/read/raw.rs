//! The stream of heaptrack's recorder (`heaptrack --raw`): addresses of blocks and of calls, and of
//! modules.

use std::collections::HashMap;

use super::{Common, Result1, Words};
use crate::gather::{Gather, Loaded};
use crate::profile::{Event, EventKind, Location, Module};

/// The state so far.
pub(super) struct Raw {
    program: String,
    /// The present addresses of modules.
    loaded: Loaded,
    /// The indices of all modules so far, by path and bias.
    modules: HashMap<(String, u64), usize>,
    /// The bytes and samples of live blocks, by address.
    live: HashMap<u64, (u64, usize)>,
}

impl Raw {
    pub(super) fn new(program: String) -> Raw {
        Raw { program, loaded: Loaded::default(), modules: HashMap::new(), live: HashMap::new() }
    }

    pub(super) fn line(
        &mut self,
        kind: u8,
        words: &mut Words<'_>,
        Common { gather, stacks, time_ns }: &mut Common,
        take: &mut dyn FnMut(Event),
    ) -> Result1<()> {
        match kind {
            b'm' => self.module(words, gather)?,
            b't' => {
                let (returns_to, caller) = (words.next()?, words.next()?);
                let address = returns_to.wrapping_sub(1);
                let place = Location { module: self.loaded.find(address), address, frames: Vec::new() };
                stacks.push(gather.location(place), caller)?;
            }
            b'+' => {
                let (bytes, stack, address) = (words.next()?, words.next()?, words.next()?);
                let sample = stacks.sample(gather, stack)?;
                self.live.insert(address, (bytes, sample));
                take(Event {
                    time_ns: *time_ns,
                    process: 0,
                    thread: 1,
                    address,
                    kind: EventKind::Allocated { bytes, sample },
                });
            }
            b'-' => {
                let address = words.next()?;
                // Other blocks were allocated before the recorder started.
                if let Some((bytes, sample)) = self.live.remove(&address) {
                    take(Event {
                        time_ns: *time_ns,
                        process: 0,
                        thread: 1,
                        address,
                        kind: EventKind::Freed { bytes, sample },
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a module, or the line after which all modules are listed again.
    fn module(&mut self, words: &mut Words<'_>, gather: &mut Gather) -> Result1<()> {
        let name = words.text()?;
        if name == "-" {
            self.loaded.clear();
            return Ok(());
        }
        let path = if name == "x" { self.program.clone() } else { name };
        let bias = words.next()?;
        let modules = &mut gather.profile.modules;
        let at = *self.modules.entry((path, bias)).or_insert_with_key(|(path, bias)| {
            modules.push(Module { path: path.clone(), bias: Some(*bias), ..Module::default() });
            modules.len() - 1
        });
        let module = &mut modules[at];
        while let Some(own) = words.optional()? {
            let start = bias.wrapping_add(own);
            let end = start.saturating_add(words.next()?);
            let is_first = module.start == module.end;
            module.start = if is_first { start } else { module.start.min(start) };
            module.end = module.end.max(end);
            self.loaded.insert(start, end, at);
        }
        Ok(())
    }
}
