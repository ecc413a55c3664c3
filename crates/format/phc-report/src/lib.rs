//! Reports of the probabilistic heap checker (`heapledger run --phc`).
//!
//! The file is text that the checker has written in the program whose error it reports, so anything
//! may be in it. It has these entries, each ending with a line break:
//!
//! ```text
//! report               a report begins: lines NAME=VALUE follow
//! maps                 the mappings of the process follow, and an empty line ends the report
//! end SAMPLED REFUSED  the blocks that were sampled, and those for which there was no slot, since
//!                      the process began; the last such line counts
//! off REASON           the checker does not run in the process: memory, allocator or system
//! ```
//!
//! Names that begin with `PHC` are those of Mozilla's crash annotations. Numbers are decimal. See
//! `docs/phc.md` for all names.
//!
//! [`read_core`] reads the reports from the core file of such a program.
#![forbid(unsafe_code)]

use std::fmt;

mod core_file;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod tests;

pub use self::core_file::{PhcCore, PhcCoreError, is_core, read_core};

/// Limits on what is read. A file within them takes at most some megabytes.
const REPORTS_MAX: usize = 4096;
/// The number of frames of a stack that are read.
const FRAMES_MAX: usize = 1024;

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhcFile<'a> {
    /// The reports.
    pub reports: Vec<PhcReport<'a>>,
    /// The blocks that were sampled; 0 if the process has not ended in an orderly way.
    pub blocks_sampled: u64,
    /// The blocks that were to be sampled, and for which there was no slot.
    pub blocks_refused: u64,
    /// The reasons why the checker did not run in a process.
    pub off: Vec<OffReason>,
}

/// A reason why the checker did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffReason {
    /// The machine has less memory than the option demands.
    Memory,
    /// The program has an allocator of its own.
    Allocator,
    /// The system refused memory.
    System,
}

/// A report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhcReport<'a> {
    /// The error, such as `use-after-free`.
    pub error: &'a str,
    /// The address that was accessed, or passed to a function.
    pub address: u64,
    /// `read`, `write`, `execute`, or `call`.
    pub access: &'a str,
    /// The offsets of the first and the last byte around the block that were found changed.
    pub overwritten: Option<[i64; 2]>,
    /// The process.
    pub process: u32,
    /// The name of the program.
    pub program: &'a str,
    /// The access or call.
    pub at: PhcCall,
    /// The kind of the address (`PHCKind`), such as `FreedPage`.
    pub kind: &'a str,
    /// The block that the error is about.
    pub block: Option<PhcBlock>,
    /// The mappings of the process, as in `/proc/PID/maps`.
    pub maps: Vec<&'a str>,
}

/// A thread and its stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhcCall {
    /// The kernel's id of the thread.
    pub thread: u32,
    /// Addresses in the instructions that made the calls, innermost first.
    pub stack: Vec<u64>,
    /// The scopes that the program had declared, outermost first: `request{17} > parse`. Empty if
    /// there were none.
    pub context: String,
}

/// A block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhcBlock {
    /// The address (`PHCBaseAddress`).
    pub base: u64,
    /// The usable size (`PHCUsableSize`).
    pub bytes_usable: u64,
    /// The size that the program asked for.
    pub bytes_requested: u64,
    /// The call that allocated the block (`PHCAllocStack`).
    pub allocated: PhcCall,
    /// The call that freed it (`PHCFreeStack`). `None` if it was live.
    pub freed: Option<PhcCall>,
}

/// The reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhcFileError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The reason.
    pub reason: PhcFileReason,
}

/// A reason why a line makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhcFileReason {
    /// The line is none of those that a file has.
    Unknown,
    /// A value is not as it should be.
    Value {
        /// The name of the value.
        name: String,
    },
    /// The file ends within a report.
    Cut,
    /// There are more reports than are read.
    TooMany,
}

impl fmt::Display for PhcFileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: ", self.line)?;
        match &self.reason {
            PhcFileReason::Unknown => out.write_str("this is no line of a report of the heap checker"),
            PhcFileReason::Value { name } => write!(out, "the value of {name} makes no sense"),
            PhcFileReason::Cut => out.write_str("the file ends within a report"),
            PhcFileReason::TooMany => write!(out, "the file has more than {REPORTS_MAX} reports"),
        }
    }
}

impl std::error::Error for PhcFileError {}

/// Reads a file. Takes memory in proportion to the text.
///
/// # Errors
///
/// See [`PhcFileError`].
pub fn parse(text: &str) -> Result<PhcFile<'_>, PhcFileError> {
    let mut file = PhcFile::default();
    let mut lines = (1..).zip(text.lines());
    let mut last = 0;
    while let Some((line, content)) = lines.next() {
        last = line;
        let error = |reason| Err(PhcFileError { line, reason });
        let value = |name: &str| Err(PhcFileError { line, reason: PhcFileReason::Value { name: name.to_owned() } });
        match content.split_once(' ').unwrap_or((content, "")) {
            ("", _) => {}
            ("report", "") if file.reports.len() == REPORTS_MAX => return error(PhcFileReason::TooMany),
            ("report", "") => file.reports.push(report(&mut lines, line)?),
            ("end", figures) => {
                let numbers = figures.split_once(' ').map(|(one, other)| (one.parse::<u64>(), other.parse::<u64>()));
                let Some((Ok(sampled), Ok(refused))) = numbers else { return value("end") };
                (file.blocks_sampled, file.blocks_refused) = (sampled, refused);
            }
            ("off", reason) => {
                let reason = match reason {
                    "memory" => OffReason::Memory,
                    "allocator" => OffReason::Allocator,
                    "system" => OffReason::System,
                    _ => return value("off"),
                };
                if file.off.len() < REPORTS_MAX {
                    file.off.push(reason);
                }
            }
            _ => return error(PhcFileReason::Unknown),
        }
    }
    if text.is_empty() {
        return Err(PhcFileError { line: last + 1, reason: PhcFileReason::Unknown });
    }
    Ok(file)
}

/// Reads a report after its first line, up to the empty line at its end.
fn report<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    first_line: usize,
) -> Result<PhcReport<'a>, PhcFileError> {
    let mut report = PhcReport::default();
    let mut block = PhcBlock::default();
    let (mut has_block, mut freed) = (false, PhcCall::default());
    let (mut is_freed, mut is_in_maps, mut last) = (false, false, first_line);
    for (line, content) in lines {
        last = line;
        if content.is_empty() {
            if is_freed {
                block.freed = Some(freed);
            }
            report.block = has_block.then_some(block);
            return Ok(report);
        }
        if is_in_maps {
            report.maps.push(content);
            continue;
        }
        if content == "maps" {
            is_in_maps = true;
            continue;
        }
        let Some((name, value)) = content.split_once('=') else {
            return Err(PhcFileError { line, reason: PhcFileReason::Unknown });
        };
        let number = || value.parse::<u64>().ok();
        let small = || value.parse::<u32>().ok();
        let done = match name {
            "Error" => set(&mut report.error, Some(value)),
            "Address" => set(&mut report.address, number()),
            "Access" => set(&mut report.access, Some(value)),
            "Overwritten" => set(&mut report.overwritten, overwritten(value).map(Some)),
            "Process" => set(&mut report.process, small()),
            "Program" => set(&mut report.program, Some(value)),
            "Thread" => set(&mut report.at.thread, small()),
            "Context" => set(&mut report.at.context, Some(value.to_owned())),
            "AllocContext" => set(&mut block.allocated.context, Some(value.to_owned())),
            "FreeContext" => set(&mut freed.context, Some(value.to_owned())),
            "Stack" => set(&mut report.at.stack, stack(value)),
            "PHCKind" => set(&mut report.kind, Some(value)),
            "PHCBaseAddress" => {
                has_block = true;
                set(&mut block.base, number())
            }
            "PHCUsableSize" => set(&mut block.bytes_usable, number()),
            "RequestedSize" => set(&mut block.bytes_requested, number()),
            "AllocThread" => set(&mut block.allocated.thread, small()),
            "PHCAllocStack" => set(&mut block.allocated.stack, stack(value)),
            "FreeThread" => {
                is_freed = true;
                set(&mut freed.thread, small())
            }
            "PHCFreeStack" => set(&mut freed.stack, stack(value)),
            // A name of a later version.
            _ => Some(()),
        };
        if done.is_none() {
            return Err(PhcFileError { line, reason: PhcFileReason::Value { name: name.to_owned() } });
        }
    }
    Err(PhcFileError { line: last, reason: PhcFileReason::Cut })
}

fn set<T>(field: &mut T, value: Option<T>) -> Option<()> {
    *field = value?;
    Some(())
}

fn overwritten(text: &str) -> Option<[i64; 2]> {
    let (first, last) = text.split_once(',')?;
    Some([first.parse().ok()?, last.parse().ok()?])
}

fn stack(text: &str) -> Option<Vec<u64>> {
    text.split(',').take(FRAMES_MAX).map(|address| address.parse().ok()).collect()
}
