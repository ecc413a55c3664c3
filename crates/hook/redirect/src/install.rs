//! Maps the stubs, and writes the jumps.

use core::ptr;

use heapledger_core::arch::nr;
use heapledger_core::hooks;
use heapledger_core::sys::{self, Errno, call, check};
use heapledger_wire::redirection::{Jump, Plan, Region};

use crate::calls::block_allocator;
use crate::nesting;

const PAGE: u64 = 4096;
const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;
const PROT_EXEC: usize = 4;
const MAP_PRIVATE: usize = 2;

/// Maps the stubs of a plan and writes its jumps. `fd` is the plan's file, and `length` that of the
/// plan in it; the code follows. Returns the number of entries that are redirected.
///
/// An entry whose code in memory is not that of the file is left alone: another tool may have
/// patched it. If a region of stubs cannot be mapped, its jumps are not written.
///
/// # Safety
///
/// The plan was made by the tool for this process, with the address of
/// [`thunk_address`](crate::thunk_address), and no thread is in one of the entries or can get
/// there: the process has one thread, or they are in modules that the dynamic linker has just
/// mapped. Nothing has been mapped since the tool looked, or else it is in no region.
pub unsafe fn install(fd: i32, length: usize) -> usize {
    let Some(plan) = MappedPlan::map(fd, length) else { return 0 };
    // SAFETY: the contract of `MappedPlan::install` is this function's.
    let installed = unsafe { plan.install(fd) };
    plan.unmap();
    installed
}

/// A plan in memory that nobody writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedPlan {
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl MappedPlan {
    /// Maps the plan at the beginning of its file.
    pub(crate) fn map(fd: i32, length: usize) -> Option<MappedPlan> {
        let start = map(0, length, PROT_READ, fd, 0).ok()?;
        Some(MappedPlan { start, length })
    }

    /// Gives the memory back. The regions stay.
    pub(crate) fn unmap(self) {
        // SAFETY: `munmap` gives back a mapping of `map`, to which nothing refers any more: the
        // methods below return no reference to it.
        unsafe { call(nr::MUNMAP, [self.start, self.length, 0, 0, 0, 0]) };
    }

    /// Maps the regions from the plan's file and writes the jumps. Returns the number of entries
    /// that are redirected.
    ///
    /// # Safety
    ///
    /// See [`install`].
    pub(crate) unsafe fn install(self, fd: i32) -> usize {
        let mut memory = None;
        self.sum(|plan, region| {
            // SAFETY: `install_region` and `write_jumps` require what this function's `# Safety`
            // gives.
            let written =
                unsafe { if map_region(fd, region) { write_jumps(plan, region, &mut memory) } else { return 0 } };
            if written == 0 && plan.jumps_of(region).next().is_some() {
                // Otherwise each opening of a module that another tool has patched would map more.
                // SAFETY: `munmap` gives back the mapping made just now: no entry leads to it.
                unsafe { call(nr::MUNMAP, [region.address as usize, region.length as usize, 0, 0, 0, 0]) };
            }
            written
        })
    }

    /// Writes the jumps again, after the modules have been unloaded and loaded at the same
    /// addresses. Returns the number of entries that are redirected.
    ///
    /// # Safety
    ///
    /// [`install`](MappedPlan::install) has mapped all regions of the plan, and they are still
    /// mapped. The modules are those of the plan; no thread is in one of the entries or can get
    /// there.
    pub(crate) unsafe fn install_again(self) -> usize {
        let mut memory = None;
        // SAFETY: `write_jumps` requires what this function's `# Safety` gives.
        self.sum(|plan, region| unsafe { write_jumps(plan, region, &mut memory) })
    }

    /// Returns the number of entries in the plan.
    pub(crate) fn entries(self) -> usize {
        self.sum(|plan, region| plan.jumps_of(region).count())
    }

    /// True if the code at an entry of the plan is still redirected to it.
    pub(crate) fn is_in_use(self) -> bool {
        self.sum(|plan, region| plan.jumps_of(region).filter(is_written).count()) != 0
    }

    /// Unmaps the regions of the plan.
    ///
    /// # Safety
    ///
    /// [`install`](MappedPlan::install) has mapped all of them. No entry leads to them any more,
    /// and no thread is in one.
    pub(crate) unsafe fn unmap_regions(self) {
        self.sum(|_, region| {
            // SAFETY: `munmap` gives back a mapping of `map_region`, to which by this function's
            // `# Safety` nothing refers any more.
            unsafe { call(nr::MUNMAP, [region.address as usize, region.length as usize, 0, 0, 0, 0]) };
            0
        });
    }

    /// Adds up the results for all regions.
    fn sum(self, mut of_region: impl FnMut(&Plan<'_>, &Region) -> usize) -> usize {
        // SAFETY: mapped by `map`, with this length, and sealed by the tool: nobody writes to it.
        // It stays until `unmap`, which takes `self`; its callers do not use a copy afterwards.
        let bytes = unsafe { core::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(self.start), self.length) };
        Plan::parse(bytes).map_or(0, |plan| plan.regions().map(|region| of_region(&plan, &region)).sum())
    }
}

/// Maps a region from the plan's file. False if that is not possible.
///
/// # Safety
///
/// See [`install`].
unsafe fn map_region(fd: i32, region: &Region) -> bool {
    const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
    let (address, length) = (region.address as usize, region.length as usize);
    let Ok(mapped) = map_at(address, length, fd, region.offset as usize, MAP_FIXED_NOREPLACE) else { return false };
    if mapped != address {
        // Kernels before 4.17 take the address for a hint.
        // SAFETY: `munmap` gives back the mapping made above, to which nothing refers.
        unsafe { call(nr::MUNMAP, [mapped, length, 0, 0, 0, 0]) };
    }
    mapped == address
}

/// Writes the jumps that lead into a region. Returns their number.
///
/// # Safety
///
/// The region is mapped, and see [`install`].
unsafe fn write_jumps(plan: &Plan<'_>, region: &Region, memory: &mut Option<Memory>) -> usize {
    // Before the first jump: the thunk needs nothing else.
    activate();
    let memory = memory.get_or_insert_with(Memory::open);
    // SAFETY: `Memory::write` requires the start of an instruction that no thread is in: by
    // `install`'s `# Safety` none is, or can get there.
    plan.jumps_of(region).filter(|jump| is_as_expected(jump) && unsafe { memory.write(jump) }).count()
}

/// Prepares for calls of redirected entries, before the first of them: [`install`] does so itself.
/// Call if somebody else has written the jumps.
pub fn activate() {
    hooks::set_block_allocator(block_allocator);
    nesting::activate();
}

fn map(address: usize, length: usize, protection: usize, fd: i32, offset: usize) -> Result<usize, Errno> {
    // SAFETY: `sys::call` asks for no effect that breaks assumptions: a new private mapping at an
    // address that the kernel chooses replaces nothing.
    check(unsafe { call(nr::MMAP, [address, length, protection, MAP_PRIVATE, fd as usize, offset]) })
}

fn map_at(address: usize, length: usize, fd: i32, offset: usize, flags: usize) -> Result<usize, Errno> {
    let flags = MAP_PRIVATE | flags;
    // SAFETY: `sys::call` asks for no effect that breaks assumptions: with MAP_FIXED_NOREPLACE, and
    // as a hint, an address replaces no mapping.
    check(unsafe { call(nr::MMAP, [address, length, PROT_READ | PROT_EXEC, flags, fd as usize, offset]) })
}

/// True if all instructions that the trampoline replaces are those of the file.
fn is_as_expected(jump: &Jump) -> bool {
    is_there(jump.address, jump.expected())
}

/// True if a jump has been written, and is still there.
fn is_written(jump: &Jump) -> bool {
    is_there(jump.address, &jump.jump)
}

/// True if this process's memory has these bytes, at most [`Jump::EXPECTED_MAX`], at an address.
pub(crate) fn is_there(address: u64, expected: &[u8]) -> bool {
    // By the kernel, which fails where a read would be a fault: the tool may have been mistaken.
    let mut words = [0_u64; Jump::EXPECTED_MAX / 8];
    let read = sys::read_own_pieces(&[[address, expected.len() as u64]], &mut words);
    let mut bytes = [0; Jump::EXPECTED_MAX];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_ne_bytes();
    }
    read == expected.len() && bytes.starts_with(expected)
}

/// The process's own memory, for writing to code.
pub(crate) enum Memory {
    /// `/proc/self/mem`: writes to a private page although it is not writable, so no page's
    /// protection ever changes.
    File(i32),
    /// The pages are made writable for the time of the write, and stay executable.
    Protection,
}

impl Memory {
    pub(crate) fn open() -> Memory {
        const O_RDWR_CLOEXEC: usize = 0o2000002;
        match sys::open(c"/proc/self/mem", O_RDWR_CLOEXEC, 0) {
            Ok(fd) => Memory::File(fd),
            Err(_) => Memory::Protection,
        }
    }

    /// Writes a jump. Returns false if that is not possible.
    ///
    /// # Safety
    ///
    /// The jump's address is the start of an instruction, in code that no thread is executing.
    pub(crate) unsafe fn write(&self, jump: &Jump) -> bool {
        if let Memory::File(fd) = self {
            let (bytes, length) = (jump.jump.as_ptr() as usize, jump.jump.len());
            // SAFETY: the kernel reads the live array, and writes to the code, as the caller wants.
            let written = unsafe { call(nr::PWRITE64, [*fd as usize, bytes, length, jump.address as usize, 0, 0]) };
            // Fails if the kernel is configured to refuse such writes (PROC_MEM_NO_FORCE).
            if check(written) == Ok(length) {
                return true;
            }
        }
        // SAFETY: `write_by_protection` requires what this function's `# Safety` gives.
        unsafe { write_by_protection(jump) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::File(fd) = self {
            sys::close(*fd);
        }
    }
}

/// Writes a jump into pages that are made writable for the time of the write. Returns false, and
/// leaves everything as it is, if that is not possible.
///
/// # Safety
///
/// See [`Memory::write`].
unsafe fn write_by_protection(jump: &Jump) -> bool {
    let first = jump.address & !(PAGE - 1);
    let end = (jump.address + jump.jump.len() as u64).next_multiple_of(PAGE);
    let (start, length) = (first as usize, (end - first) as usize);
    let protect = |protection| {
        // SAFETY: the pages are code, which is readable and executable. Both protections include
        // that, so nothing that relies on either can fail, here or in another thread.
        check(unsafe { call(nr::MPROTECT, [start, length, protection, 0, 0, 0]) }).is_ok()
    };
    // All three at once. Where the kernel refuses code that has been writable (PR_SET_MDWE, execmod
    // of SELinux), it refuses this: pages that are only writable could not become executable again.
    if !protect(PROT_READ | PROT_WRITE | PROT_EXEC) {
        return false;
    }
    let code: *mut u8 = ptr::with_exposed_provenance_mut(jump.address as usize);
    for (index, &byte) in jump.jump.iter().enumerate() {
        // SAFETY: the pages have just been made writable, and the jump ends inside of them.
        // Volatile, since the compiler does not know that these bytes are code.
        unsafe { code.add(index).write_volatile(byte) };
    }
    // If it fails, the pages stay writable, which harms nobody.
    protect(PROT_READ | PROT_EXEC);
    true
}

#[cfg(test)]
mod tests;
