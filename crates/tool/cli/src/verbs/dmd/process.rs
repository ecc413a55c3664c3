//! Logs of running processes: the process asks its reporters, and makes a log of its ledger.

use heapledger_dmd::Mode;
use heapledger_dmd::request::{DmdAnswer, DmdRequest};

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::process::{self, DEADLINE, REPORTER_DEADLINE};

/// The maximum length of an answer, compressed, in bytes.
const FILE_BYTES_MAX: usize = 1 << 30;

/// The answer of a process about its heap.
pub(super) enum HeapAnswer {
    /// The contents of a log file.
    Log(Vec<u8>),
    /// The program is recorded: its reporters have been asked, and the recorder knows what they
    /// said.
    Recorded,
}

/// Asks a process for a log.
pub(super) fn ask(pid: u32, mode: Mode, is_anonymous: bool) -> Result<HeapAnswer> {
    let request = DmdRequest {
        mode,
        report: mode == Mode::DarkMatter,
        anonymous: is_anonymous,
        reporter_deadline: REPORTER_DEADLINE,
        deadline: DEADLINE,
    };
    let mut bytes = process::ask(pid, &request.to_line(), "the heap", FILE_BYTES_MAX)?.unwrap_or_default();
    match DmdAnswer::parse(&bytes) {
        Some(DmdAnswer::Log(file)) => {
            let start = bytes.len() - file.len();
            bytes.drain(..start);
            Ok(HeapAnswer::Log(bytes))
        }
        Some(DmdAnswer::Recorded) => Ok(HeapAnswer::Recorded),
        Some(DmdAnswer::Refused(reason)) => {
            let failure = Failure::new(Exit::Unreadable, format_args!("process {pid} has no log: {reason}"));
            Err(failure.hint(match mode {
                Mode::Cumulative => {
                    "the program's ledger has to count blocks that are freed: in Rust by\n\
                     `heapledger::LedgerOptions::keep_freed`, in C and C++ by `heapledger_options.keep_freed`"
                }
                _ => {
                    "the program has to hold a ledger: in Rust `heapledger::Ledger::start(LedgerOptions::EXACT)`, in C\n\
                     and C++ `heapledger_start(NULL)`; or to run under `heapledger record`: see docs/reporters.md"
                }
            }))
        }
        None => Err(Failure::new(Exit::Unreadable, format_args!("process {pid} gives no log"))
            .hint("it has been built with a version of Heapledger that has none; see docs/reporters.md")),
    }
}
