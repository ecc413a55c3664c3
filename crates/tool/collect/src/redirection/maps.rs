//! The mappings of a process: its modules, and room near them.

use std::path::{Path, PathBuf};

use heapledger_inject::Mapping;

/// The most bytes of `/proc/PID/maps` that are read.
const MAPS_MAX: u64 = 16 << 20;
/// The largest distance of stubs from the code that they belong to: a jump reaches 2 GiB, and
/// displaced instructions may refer to data of the module.
const DISTANCE_MAX: u64 = (2 << 30) - (16 << 20);
/// Room that is left free beside other mappings, because they may grow.
const CLEARANCE: u64 = 1 << 20;
/// Room that is left free beside modules that may be unloaded: the kernel aligns large files to
/// 2 MiB, and finds the same address again only if there is as much room as before.
const CLEARANCE_LATER: u64 = 16 << 20;
/// The smallest address that programs may map, by default.
const ADDRESS_MIN: u64 = 1 << 16;
/// The end of the addresses of programs.
const ADDRESS_END: u64 = 1 << 47;

/// The mappings of a process.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    mapped: Vec<Mapped>,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The offset in the file.
    pub(crate) offset: u64,
    pub(crate) inode: u64,
    pub(crate) is_executable: bool,
    /// The path; empty if it has no file with a path.
    pub(crate) path: PathBuf,
}

impl Mappings {
    /// Reads the mappings of a process.
    pub(crate) fn of(pid: u32) -> Option<Mappings> {
        Mapping::read_list(format!("/proc/{pid}/maps"), MAPS_MAX).ok().map(Mappings::new)
    }

    fn new(mappings: Vec<Mapping>) -> Mappings {
        Mappings { mapped: mappings.into_iter().map(Mapped::from).collect() }
    }

    /// Returns the mapping of the code of each module. A module that has been deleted has no path
    /// by which it could be read.
    pub(crate) fn modules(&self) -> Vec<Mapped> {
        let is_module = |mapping: &&Mapped| mapping.is_executable && mapping.inode != 0 && mapping.path.is_absolute();
        let mut modules: Vec<Mapped> = self.mapped.iter().filter(is_module).cloned().collect();
        modules.dedup_by(|second, first| second.path == first.path);
        modules
    }

    /// Returns the path of the file that is mapped at an address.
    pub(super) fn path_at(&self, address: u64) -> Option<&Path> {
        let is_it = |mapping: &&Mapped| (mapping.start..mapping.end).contains(&address);
        self.mapped.iter().find(is_it).map(|mapping| mapping.path.as_path()).filter(|path| path.is_absolute())
    }

    /// Finds `length` bytes, in whole pages, that are not mapped and from which all of a module can
    /// be reached, and takes them.
    ///
    /// Prefers gaps with room to spare: the program maps the plan before the stubs, and the kernel
    /// puts it at the end of the highest gap where it fits. Among them, prefers those below the
    /// module: the heap of `brk` is above the program. Beside a module that the program has opened
    /// later there should be more room.
    pub(crate) fn take_gap_near(&mut self, module: &Mapped, length: u64, is_later: bool) -> Option<u64> {
        let of_module = || self.mapped.iter().filter(|mapping| mapping.path == module.path);
        let first = of_module().map(|mapping| mapping.start).min()?;
        let end = of_module().map(|mapping| mapping.end).max()?;
        let is_near = |address: u64| {
            address >= ADDRESS_MIN
                && address.checked_add(length).is_some_and(|end| end <= ADDRESS_END)
                && end.saturating_sub(address) < DISTANCE_MAX
                && (address + length).saturating_sub(first) < DISTANCE_MAX
        };
        let gaps = || {
            let ends = self.mapped.iter().map(|mapping| mapping.end);
            let starts = self.mapped.iter().map(|mapping| mapping.start).chain([ADDRESS_END]);
            [ADDRESS_MIN].into_iter().chain(ends).zip(starts).filter(|(from, to)| to.saturating_sub(*from) >= length)
        };
        // The top of a gap below.
        let below = |clearance| {
            let roomy = gaps().filter(move |(from, to)| to - from >= length + 2 * clearance);
            roomy.filter(|&(_, to)| to <= first).map(move |(_, to)| to - length - clearance)
        };
        // Above, the middle of a gap: what is at its beginning may grow up, and what is at its end
        // down, as stacks and the C library's arenas do.
        let above = |clearance| {
            let roomy = gaps().filter(move |(from, to)| to - from >= length + 2 * clearance);
            roomy.filter(|&(from, _)| from >= end).map(|(from, to)| {
                let reach = to.min(first.saturating_add(DISTANCE_MAX));
                from.saturating_add(reach.saturating_sub(from) / 2).saturating_sub(length / 2) & !0xfff
            })
        };
        let fits = |address: &u64| is_near(*address) && self.is_free(*address, length);
        let with = |clearance| below(clearance).filter(fits).max().or_else(|| above(clearance).filter(fits).min());
        let most = if is_later { CLEARANCE_LATER } else { CLEARANCE };
        let address = [most, CLEARANCE, 0].into_iter().find_map(with)?;
        self.take(address, length);
        Some(address)
    }

    /// Takes memory that is about to be mapped.
    pub(super) fn take(&mut self, address: u64, length: u64) {
        self.mapped.push(Mapped {
            start: address,
            end: address + length,
            offset: 0,
            inode: 0,
            is_executable: false,
            path: PathBuf::new(),
        });
        self.mapped.sort_by_key(|mapping| mapping.start);
    }

    fn is_free(&self, address: u64, length: u64) -> bool {
        self.mapped.iter().all(|mapping| mapping.end <= address || mapping.start >= address + length)
    }
}

impl From<Mapping> for Mapped {
    fn from(mapping: Mapping) -> Mapped {
        Mapped {
            path: mapping.path().unwrap_or_default(),
            start: mapping.range.start,
            end: mapping.range.end,
            offset: mapping.offset,
            inode: mapping.inode,
            is_executable: mapping.is_executable,
        }
    }
}

#[cfg(test)]
mod tests;
