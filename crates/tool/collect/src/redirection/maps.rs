//! The mappings of a process: its modules, and room near them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most bytes of `/proc/PID/maps` that are read.
const MAPS_MAX: usize = 16 << 20;
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
    /// The path; empty if it is anonymous.
    pub(crate) path: PathBuf,
}

impl Mappings {
    /// Reads the mappings of a process.
    pub(crate) fn of(pid: u32) -> Option<Mappings> {
        let text = fs::read(format!("/proc/{pid}/maps")).ok().filter(|text| text.len() <= MAPS_MAX)?;
        Some(Mappings::parse(&text))
    }

    fn parse(text: &[u8]) -> Mappings {
        let mut mapped: Vec<Mapped> = text.split(|&byte| byte == b'\n').filter_map(parse_line).collect();
        mapped.sort_by_key(|mapping| mapping.start);
        Mappings { mapped }
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

/// Parses a line: `55d0…-55d1… r-xp 00001000 08:01 1234   /usr/bin/program`.
fn parse_line(line: &[u8]) -> Option<Mapped> {
    fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        let text = rest.get(start..)?;
        let length = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
        let (field, after) = text.split_at_checked(length)?;
        *rest = after;
        Some(field)
    }
    let number = |text: &[u8], radix| u64::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok();
    let mut rest = line;
    let range = field(&mut rest)?;
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let (start, end) = (number(range.get(..dash)?, 16)?, number(range.get(dash + 1..)?, 16)?);
    let protection = field(&mut rest)?;
    let offset = number(field(&mut rest)?, 16)?;
    let _device = field(&mut rest)?;
    let inode = number(field(&mut rest)?, 10)?;
    let path = rest.iter().position(|byte| *byte != b' ').and_then(|start| rest.get(start..)).unwrap_or(&[]);
    (start < end).then(|| Mapped {
        start,
        end,
        offset,
        inode,
        is_executable: protection.get(2) == Some(&b'x'),
        path: PathBuf::from(OsStr::from_bytes(path)),
    })
}

#[cfg(test)]
mod tests;
