//! Resident memory that a process does not touch for a while.
//!
//! The processor marks the pages that are touched. Writing 1 to `/proc/PID/clear_refs` clears the
//! marks, and `smaps` then counts the pages of each mapping that were touched since (`Referenced`).
//! Source: `proc_pid_clear_refs(5)`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::account::read_text;
use crate::advice::{BYTES_MIN, RESIDENT_PERCENT, ResidentAdvice, ResidentFinding};
use crate::error::ResidentError;
use crate::smaps::{self, SystemMapping, name_of};

/// The least part of a mapping, in percent, that is not touched if the mapping is taken for unused.
const UNUSED_PERCENT: u64 = 90;

/// The memory that a process did not touch for a while.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IdleMemory {
    /// The time between the two looks at the process.
    pub duration: Duration,
    /// All resident memory at the end, in bytes.
    pub resident: u64,
    /// The bytes of it that were not touched.
    pub idle: u64,
    /// The mappings with memory that was not touched, those with the most first.
    pub mappings: Vec<IdleMapping>,
}

/// A mapping with memory that was not touched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleMapping {
    /// The first address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The path of the file, or a name such as `[heap]`; empty if it has none.
    pub name: String,
    /// True for memory of this process alone that belongs to no file.
    pub is_private: bool,
    /// The resident bytes.
    pub resident: u64,
    /// The bytes of these that were not touched.
    pub idle: u64,
}

impl IdleMemory {
    /// Clears the marks of all pages of a process, waits, and returns the memory that was not
    /// touched meanwhile: in whole pages, or huge pages. The process is not stopped. It costs the
    /// process one flush of its translation caches, and the marks, which the processor sets again.
    ///
    /// Pages of files and shared memory count as touched if another process has touched them, too.
    /// The kernel takes pages whose marks are cleared for less used when it looks for memory.
    ///
    /// # Errors
    ///
    /// Fails if there is no such process, if this user may not see it (that takes the rights of a
    /// debugger), or if the kernel does not have these files.
    pub fn watch(process: u32, duration: Duration) -> Result<IdleMemory, ResidentError> {
        let begin = Instant::now();
        let path = format!("/proc/{process}/clear_refs");
        fs::write(path, "1").map_err(|error| ResidentError::of(process, "clear_refs", error))?;
        thread::sleep(duration);
        let mappings = smaps::parse(&read_text(process, "smaps")?);
        if mappings.is_empty() {
            return Err(ResidentError::NoProcess(process));
        }
        Ok(IdleMemory { duration: begin.elapsed(), ..IdleMemory::of(&mappings) })
    }

    fn of(mappings: &[SystemMapping]) -> IdleMemory {
        let idle = mappings.iter().map(|mapping| IdleMapping {
            start: mapping.addresses.start,
            end: mapping.addresses.end,
            name: name_of(&mapping.name).to_owned(),
            is_private: mapping.is_private_memory(),
            resident: mapping.amounts.resident,
            idle: mapping.amounts.resident.saturating_sub(mapping.amounts.referenced),
        });
        let mut idle: Vec<IdleMapping> = idle.filter(|mapping| mapping.idle > 0).collect();
        idle.sort_by_key(|mapping| (std::cmp::Reverse(mapping.idle), mapping.start));
        IdleMemory {
            duration: Duration::ZERO,
            resident: smaps::sum(mappings).resident,
            idle: idle.iter().map(|mapping| mapping.idle).fold(0, u64::saturating_add),
            mappings: idle,
        }
    }

    /// Returns the advice to do without mappings of private memory of which nine tenths were not
    /// touched, a MiB of each at least. `None` if that is less than 1 MiB or 5 % of all resident
    /// memory.
    pub fn advice(&self) -> Option<ResidentAdvice> {
        let is_unused = |mapping: &&IdleMapping| {
            let share = u128::from(mapping.idle) * 100 >= u128::from(mapping.resident) * u128::from(UNUSED_PERCENT);
            mapping.is_private && mapping.idle >= BYTES_MIN && share
        };
        let unused: Vec<&IdleMapping> = self.mappings.iter().filter(is_unused).collect();
        let bytes = unused.iter().map(|mapping| mapping.idle).fold(0, u64::saturating_add);
        let largest = unused.first().filter(|_| bytes >= BYTES_MIN.max(self.resident / 100 * RESIDENT_PERCENT))?;
        let finding = ResidentFinding::Idle {
            milliseconds: u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
            mappings: unused.len() as u64,
            largest: largest.start,
            largest_idle: largest.idle,
        };
        Some(ResidentAdvice { bytes, finding })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn pages_that_were_not_touched_are_idle() {
        let smaps = "\
55d0c0000000-55d0c4000000 rw-p 00000000 00:00 0                          [heap]
Rss:               65536 kB
Referenced:        65536 kB
7f0000000000-7f0004000000 rw-p 00000000 00:00 0 
Rss:               20480 kB
Referenced:          480 kB
7f0010000000-7f0014000000 rw-p 00000000 00:00 0 
Rss:               10240 kB
Referenced:         5120 kB
7f0020000000-7f0024000000 r--p 00000000 08:01 43                         /lib/c.so
Rss:               40960 kB
Referenced:            0 kB
";
        let idle = IdleMemory::of(&smaps::parse(smaps));
        let found: Vec<(u64, u64)> = idle.mappings.iter().map(|mapping| (mapping.start, mapping.idle >> 10)).collect();
        assert_eq!(found, [(0x7f00_2000_0000, 40960), (0x7f00_0000_0000, 20000), (0x7f00_1000_0000, 5120)]);
        assert_eq!((idle.resident >> 10, idle.idle >> 10), (137_216, 66080));
        // Half of a mapping is in use, and a file costs nothing that others do not have.
        let advice = idle.advice().unwrap();
        let finding = ResidentFinding::Idle {
            milliseconds: 0,
            mappings: 1,
            largest: 0x7f00_0000_0000,
            largest_idle: 20000 << 10,
        };
        assert_eq!((advice.bytes >> 10, advice.finding), (20000, finding));
        assert!(IdleMemory { resident: 1 << 30, ..idle }.advice().is_none());
    }

    /// Half of a buffer is touched, and the other half is not. In a process of its own: the kernel
    /// makes one mapping of buffers side by side, and other tests have such.
    #[test]
    fn a_buffer_of_a_process() {
        const IS_CHILD: &str = "HEAPLEDGER_TEST_IS_CHILD";
        const LENGTH: usize = 64 << 20;
        const WATCHES_MAX: usize = 200;
        if std::env::var_os(IS_CHILD).is_some() {
            return touch_half(LENGTH);
        }
        let name = format!("{}::a_buffer_of_a_process", module_path!());
        let (_, name) = name.split_once("::").unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(IS_CHILD, "");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let start: u64 = lines.find_map(|line| line.unwrap().strip_prefix("buffer ")?.parse().ok()).unwrap();
        let end = start + LENGTH as u64;
        // Touched at least once after the marks have been cleared, however long that takes.
        let watch = || {
            let idle = IdleMemory::watch(child.id(), Duration::from_millis(300)).unwrap();
            let of_buffer = idle.mappings.iter().filter(|mapping| mapping.start < end && start < mapping.end);
            of_buffer.map(|mapping| mapping.idle).sum::<u64>()
        };
        let is_touched = |bytes: &u64| *bytes < LENGTH as u64 * 3 / 4;
        let found = (0..WATCHES_MAX).map(|_| watch()).find(is_touched);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        // Huge pages are touched as a whole.
        assert!(found.is_some_and(|idle| idle >= LENGTH as u64 / 2 - (4 << 20)), "{found:?}");
    }

    /// Prints where a buffer is, and touches half of it until the input ends.
    fn touch_half(length: usize) {
        let mut buffer = vec![1_u8; length];
        println!("\nbuffer {}", buffer.as_ptr().addr());
        let (touched, _) = buffer.split_at_mut(length / 2);
        let waiting = thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        while !waiting.is_finished() {
            touched.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
        }
    }
}
