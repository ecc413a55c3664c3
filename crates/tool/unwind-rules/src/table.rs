//! The table of a process's modules, as the hook reads it.

use heapledger_wire::module_table::{FramesIndex, MODULES_MAX, ModuleRecord, ModuleTable, TABLE_LENGTH_MAX};

use crate::file::FileRules;

/// A module of a process.
#[derive(Clone, Copy, Debug)]
pub struct MappedModule<'a> {
    /// The value to subtract from an address to get the module's own.
    pub bias: u64,
    /// The path, as the recording will have it; empty for the program itself.
    pub path: &'a [u8],
    /// The unwind information of its file.
    pub rules: &'a FileRules,
}

/// Returns the bytes of a table of modules ([`heapledger_wire::module_table`]). Modules that
/// overlap an earlier one, and those for which there is no room, are left out.
pub fn table(modules: &[MappedModule<'_>]) -> Vec<u8> {
    let mut modules: Vec<_> = modules.iter().filter(|module| module.range().is_some()).collect();
    modules.sort_by_key(|module| module.range());
    modules.dedup_by(|second, first| second.range().map(|(start, _)| start) < first.range().map(|(_, end)| end));
    modules.truncate(MODULES_MAX);
    let head = ModuleTable::head_length(modules.len());
    let mut rest = Vec::new();
    let mut records = Vec::new();
    for module in &modules {
        let length = module.path.len() + module.rules.length();
        if head + rest.len() + length < TABLE_LENGTH_MAX {
            records.extend(module.record(head, &mut rest));
        }
    }
    // A record that was left out leaves room that nothing refers to.
    let length = head + rest.len();
    let words = records.iter().flat_map(ModuleRecord::to_words);
    let mut bytes: Vec<u8> =
        [length as u64, records.len() as u64].into_iter().chain(words).flat_map(u64::to_ne_bytes).collect();
    bytes.resize(head, 0);
    bytes.extend(rest);
    bytes
}

impl MappedModule<'_> {
    /// Returns the first address, and the one after the last; `None` if they are impossible.
    fn range(&self) -> Option<(u64, u64)> {
        let (start, end) = self.rules.range();
        let (start, end) = (self.bias.wrapping_add(start), self.bias.wrapping_add(end));
        (start < end).then_some((start, end))
    }

    /// Returns the record, and appends what it refers to; `rest` begins at the offset `head`.
    fn record(&self, head: usize, rest: &mut Vec<u8>) -> Option<ModuleRecord> {
        let (start, end) = self.range()?;
        let mut append = |bytes: &mut dyn Iterator<Item = u8>| {
            rest.resize(rest.len().next_multiple_of(8), 0);
            let at = (head + rest.len()) as u64;
            rest.extend(bytes);
            at
        };
        let address = |own: u64| self.bias.wrapping_add(own);
        let path_at = append(&mut self.path.iter().copied());
        let found = self.rules.found().map_or(FramesIndex::default(), |found| FramesIndex {
            pairs_at: append(&mut found.pairs.iter().flatten().copied()),
            pairs: found.pairs.len() as u64,
            frames_at: address(found.address),
            frames_length: found.length,
        });
        let generated = self.rules.generated().map_or(FramesIndex::default(), |generated| FramesIndex {
            pairs_at: append(&mut generated.pairs.iter().flatten().copied()),
            pairs: generated.pairs.len() as u64,
            frames_at: append(&mut generated.frames.iter().copied()),
            frames_length: generated.frames.len() as u64,
        });
        Some(ModuleRecord {
            start,
            end,
            bias: self.bias,
            eh_frame_hdr: self.rules.eh_frame_hdr().map_or(0, address),
            path_at,
            path_length: self.path.len() as u64,
            found,
            generated,
            keeps_frame_pointers: self.rules.keeps_frame_pointers().into(),
        })
    }
}

#[cfg(test)]
mod tests;
