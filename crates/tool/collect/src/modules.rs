//! The modules of a session.

use std::collections::HashMap;

use heapledger_recording::{Module, ModuleId};

/// The modules of a session, by path and build id.
#[derive(Debug, Default)]
pub(crate) struct Modules(HashMap<(Vec<u8>, Vec<u8>), ModuleId>);

impl Modules {
    /// Returns all known modules.
    pub(crate) fn all(&self) -> impl Iterator<Item = Module> {
        let module = |((path, build_id), &module): (&(Vec<u8>, Vec<u8>), &ModuleId)| Module {
            module,
            path: path.clone(),
            build_id: build_id.clone(),
        };
        self.0.iter().map(module)
    }

    /// Returns the id of a module, with its record if it is new.
    pub(crate) fn id(&mut self, path: &[u8], build_id: &[u8]) -> (ModuleId, Option<Module>) {
        let next = ModuleId(self.0.len() as u32 + 1);
        let id = *self.0.entry((path.to_vec(), build_id.to_vec())).or_insert(next);
        let new = (id == next).then(|| Module { module: id, path: path.to_vec(), build_id: build_id.to_vec() });
        (id, new)
    }
}

#[cfg(test)]
mod tests;
