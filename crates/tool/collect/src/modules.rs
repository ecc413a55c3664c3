//! The modules of a session.

use std::collections::HashMap;

use heapledger_recording::{Module, ModuleId};

use crate::generated;

/// The modules of a session, by path and build id.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    by_name: HashMap<(Vec<u8>, Vec<u8>), ModuleId>,
    /// The modules that stand for generated code, one for each image that has some.
    generated: Vec<ModuleId>,
}

impl Modules {
    /// Returns all known modules.
    pub(crate) fn all(&self) -> impl Iterator<Item = Module> {
        let module = |((path, build_id), &module): (&(Vec<u8>, Vec<u8>), &ModuleId)| Module {
            module,
            path: path.clone(),
            build_id: build_id.clone(),
        };
        self.by_name.iter().map(module).chain(self.generated.iter().copied().map(generated::module))
    }

    /// Returns the id of a module, with its record if it is new.
    pub(crate) fn id(&mut self, path: &[u8], build_id: &[u8]) -> (ModuleId, Option<Module>) {
        let next = self.next();
        let id = *self.by_name.entry((path.to_vec(), build_id.to_vec())).or_insert(next);
        let new = (id == next).then(|| Module { module: id, path: path.to_vec(), build_id: build_id.to_vec() });
        (id, new)
    }

    /// Returns a new module that stands for the generated code of one image.
    pub(crate) fn generated(&mut self) -> Module {
        let next = self.next();
        self.generated.push(next);
        generated::module(next)
    }

    fn next(&self) -> ModuleId {
        ModuleId((self.by_name.len() + self.generated.len()) as u32 + 1)
    }
}

#[cfg(test)]
mod tests;
