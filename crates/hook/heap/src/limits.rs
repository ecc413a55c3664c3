//! The limits that make the system refuse memory.
//!
//! Linux has one error for all of them: `ENOMEM`. The cause follows from the figures that the
//! kernel compares (mm/mmap.c and mm/util.c of Linux 6), which are read here without allocation,
//! after the refusal. Other threads change them meanwhile, so the cause is an estimate.

use core::ffi::CStr;

use heapledger_core::arch::nr;
use heapledger_core::sys::{self, Errno, check};

use crate::page;

mod group;
mod text;

use text::{for_lines, number_after};

/// The length of the addresses that a process on x86-64 has.
const ADDRESSES: usize = 1 << 47;
/// The values of `vm.overcommit_memory`: refuse what the machine cannot have, and refuse what is
/// promised to others. With the third value, 1, nothing is refused.
const HEURISTIC: usize = 0;
const NEVER: usize = 2;
/// The mappings that may be missing at the limit: a request can need more than one.
const MAPPINGS_SLACK: usize = 3;

/// The causes of a refusal by the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShortageCause {
    /// The request is larger than the address space, than the memory of the machine if it does not
    /// overcommit, or than a limit that cannot be raised.
    TooLarge,
    /// `RLIMIT_AS` (`ulimit -v`) of the process. It can be raised if `true`.
    AddressSpace(bool),
    /// `RLIMIT_DATA` (`ulimit -d`) of the process. It can be raised if `true`.
    Data(bool),
    /// The number of mappings of the process, which `vm.max_map_count` limits.
    Mappings,
    /// The memory that all processes have been promised: `vm.overcommit_memory` is 2.
    Commit,
    /// Something else, while the memory cgroup of the process is nearly full.
    Group,
    /// An error other than `ENOMEM`: a sandbox of the program, or locked memory beyond the limit.
    Refused,
    /// None of the limits explains the refusal. The kernel may be short of memory itself.
    Unknown,
}

impl ShortageCause {
    /// True if the same request may succeed a little later without anything that this process does.
    pub(crate) fn may_pass(self) -> bool {
        match self {
            ShortageCause::AddressSpace(can_rise) | ShortageCause::Data(can_rise) => can_rise,
            ShortageCause::Commit | ShortageCause::Unknown => true,
            ShortageCause::TooLarge | ShortageCause::Mappings | ShortageCause::Group | ShortageCause::Refused => false,
        }
    }
}

/// A limit of the process in bytes, as getrlimit(2) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    soft: usize,
    hard: usize,
}

impl Limit {
    const NONE: Limit = Limit { soft: usize::MAX, hard: usize::MAX };

    fn of_process(resource: usize) -> Limit {
        let mut limit = [usize::MAX; 2];
        let to = limit.as_mut_ptr().expose_provenance();
        // SAFETY: prlimit64 for this process (0) reads no new limit (null), and writes two 64-bit
        // words to `limit`, which is live.
        let answer = unsafe { sys::call(nr::PRLIMIT64, [0, resource, 0, to, 0, 0]) };
        let [soft, hard] = limit;
        check(answer).map_or(Limit::NONE, |_| Limit { soft, hard })
    }

    /// Returns true if `length` more bytes are over the limit, and in there: true if the limit may
    /// rise far enough for a process that has nothing else.
    fn exceeded_by(self, used: usize, length: usize) -> Option<bool> {
        let is_exceeded = used.saturating_add(length) > self.soft;
        is_exceeded.then_some(self.soft < self.hard && length <= self.hard)
    }
}

/// The figures that the kernel compares, except for the number of mappings, which takes long to
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    address_space: Limit,
    data: Limit,
    /// The bytes that the process has mapped.
    mapped: usize,
    /// The bytes of them that count as data.
    mapped_data: usize,
    /// `vm.overcommit_memory`.
    overcommit: usize,
    /// The bytes that all processes may be promised, and those that they have been promised.
    commit: (usize, usize),
    /// The memory and swap space of the machine in bytes.
    memory: usize,
}

impl Figures {
    /// Reads the figures that matter: those of limits that the process does not have are left out,
    /// because some programs are refused memory often.
    fn read() -> Figures {
        const RLIMIT_DATA: usize = 2;
        const RLIMIT_AS: usize = 9;
        let mut figures = Figures {
            address_space: Limit::of_process(RLIMIT_AS),
            data: Limit::of_process(RLIMIT_DATA),
            mapped: 0,
            mapped_data: 0,
            overcommit: text::number_in(c"/proc/sys/vm/overcommit_memory").unwrap_or(HEURISTIC),
            commit: (usize::MAX, 0),
            memory: usize::MAX,
        };
        let kibibytes = |line: &[u8], name: &str| number_after(line, name).map(|number| number.saturating_mul(1024));
        if figures.address_space.soft != usize::MAX {
            figures.mapped = text::number_in(c"/proc/self/statm").unwrap_or(0).saturating_mul(page::system_size());
        }
        if figures.data.soft != usize::MAX {
            for_lines(c"/proc/self/status", |line| {
                figures.mapped_data = kibibytes(line, "VmData:").unwrap_or(figures.mapped_data);
            });
        }
        if figures.overcommit == HEURISTIC {
            figures.memory = memory();
        }
        if figures.overcommit == NEVER {
            for_lines(c"/proc/meminfo", |line| {
                figures.commit.0 = kibibytes(line, "CommitLimit:").unwrap_or(figures.commit.0);
                figures.commit.1 = kibibytes(line, "Committed_AS:").unwrap_or(figures.commit.1);
            });
        }
        figures
    }

    /// Returns the limit that `length` bytes more would exceed.
    fn exceeded_by(&self, length: usize) -> Option<ShortageCause> {
        if let Some(can_rise) = self.address_space.exceeded_by(self.mapped, length) {
            return Some(ShortageCause::AddressSpace(can_rise));
        }
        if let Some(can_rise) = self.data.exceeded_by(self.mapped_data, length) {
            return Some(ShortageCause::Data(can_rise));
        }
        let (commit_max, committed) = self.commit;
        match self.overcommit {
            HEURISTIC if length > self.memory => Some(ShortageCause::TooLarge),
            NEVER if length > commit_max => Some(ShortageCause::TooLarge),
            NEVER if committed.saturating_add(length) > commit_max => Some(ShortageCause::Commit),
            _ => None,
        }
    }
}

/// Returns the memory and the swap space of the machine in bytes.
fn memory() -> usize {
    let mut information = [0_u64; 14];
    let to = information.as_mut_ptr().expose_provenance();
    // SAFETY: sysinfo(2) writes one `struct sysinfo`, which has 112 bytes on x86-64, to its
    // argument: `information`, which is live, has as many, and any bits are valid integers.
    if check(unsafe { sys::call(nr::SYSINFO, [to, 0, 0, 0, 0, 0]) }).is_err() {
        return usize::MAX;
    }
    // The total of memory is at 32, that of swap space at 64, and their unit in bytes at 104.
    let [_, _, _, _, memory, _, _, _, swap, _, _, _, _, unit] = information;
    let unit = (unit as u32).max(1) as usize;
    (memory as usize).saturating_add(swap as usize).saturating_mul(unit)
}

/// Returns the number of mappings of the process.
fn mappings() -> Option<usize> {
    text::lines_in(c"/proc/self/maps")
}

/// True if no process can have a mapping of this length.
pub(crate) fn is_too_long(length: usize) -> bool {
    length >= ADDRESSES
}

/// Returns the cause of a refusal to map `length` bytes. Takes some tens of microseconds; in a
/// process with 65,530 mappings that no other limit stops, it takes as long as it takes to count
/// them, some tens of milliseconds.
pub(crate) fn cause_of(error: Errno, length: usize) -> ShortageCause {
    const ENOMEM: Errno = Errno(12);
    if is_too_long(length) {
        return ShortageCause::TooLarge;
    }
    if error != ENOMEM {
        return ShortageCause::Refused;
    }
    let cause = Figures::read().exceeded_by(length).unwrap_or_else(|| {
        let mappings_max = text::number_in(c"/proc/sys/vm/max_map_count").unwrap_or(usize::MAX);
        let is_full = mappings().is_some_and(|count| count.saturating_add(MAPPINGS_SLACK) >= mappings_max);
        if is_full { ShortageCause::Mappings } else { ShortageCause::Unknown }
    });
    if cause.may_pass() && group::is_pressed(c"/sys/fs/cgroup") { ShortageCause::Group } else { cause }
}

/// Opens a file for reading. `None` if that is not possible.
fn open(path: &CStr) -> Option<i32> {
    const O_CLOEXEC: usize = 0o2000000;
    sys::open(path, O_CLOEXEC, 0).ok()
}

#[cfg(test)]
mod tests;
