//! Reads all of `/proc/PID/maps`: what is mapped in a process, with names.

use heapledger_inject::Mapping;
use heapledger_recording::Protection;

/// The most bytes of the file that are read: those of the 65,530 mappings that Linux allows by
/// default, with long names.
pub(crate) const LENGTH_MAX: u64 = 32 << 20;

/// Returns the mapped regions of a process in ascending order; `None` if it has ended, has no
/// memory any more, or may not be read, or if there are more regions than are read.
pub(crate) fn read(pid: u32) -> Option<Vec<Mapping>> {
    let regions = Mapping::read_list(format!("/proc/{pid}/maps"), LENGTH_MAX).ok()?;
    (!regions.is_empty()).then_some(regions)
}

/// True if a process has something mapped that has these bytes in its name.
pub(crate) fn has_name(pid: u32, part: &[u8]) -> bool {
    read(pid).is_some_and(|regions| regions.iter().any(|region| region.is_named_like(part)))
}

/// Returns the protection of a region.
pub(crate) fn protection(region: &Mapping) -> Protection {
    let bit = |is_set: bool, bit: Protection| if is_set { bit.bits() } else { 0 };
    Protection::from_bits(
        bit(region.is_readable, Protection::READ)
            | bit(region.is_writable, Protection::WRITE)
            | bit(region.is_executable, Protection::EXECUTE),
    )
}

#[cfg(test)]
mod tests;
