//! A dump of this process and its descendants.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use heapledger_core::sys::monotonic_nanoseconds;
use heapledger_profile_formats::chrome::request::DumpRequest;
use heapledger_profile_formats::chrome::{Guid, Kind, Level, ProcessDump};
use heapledger_reporters::internal::{self, untracked};

use crate::process::{self as own, DumpFailure, Limits};
use crate::provider::DumpArgs;

/// Options of a memory dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpOptions {
    /// The level of detail.
    pub level: Level,
    /// The reason for the dump, which providers see.
    pub kind: Kind,
    /// True to include the descendants of this process that [listen](heapledger_reporters::listen).
    pub children: bool,
    /// The time that each provider, and each reporter, may take.
    pub provider_deadline: Duration,
    /// The time that the whole dump may take. Functions of heaps whose names have not been looked
    /// up by then appear as their addresses.
    pub deadline: Duration,
}

impl Default for DumpOptions {
    /// A light summary of this process; 5 seconds for a provider, 30 for all.
    fn default() -> DumpOptions {
        DumpOptions {
            level: Level::Light,
            kind: Kind::Summary,
            children: false,
            provider_deadline: Duration::from_secs(5),
            deadline: Duration::from_secs(30),
        }
    }
}

/// The dumps of several processes, taken at nearly the same moment: all are asked at the same time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GlobalDump {
    /// The number of the dump, the same in all processes.
    pub guid: Guid,
    /// The reason for the dump.
    pub kind: Kind,
    /// This process, then the others.
    pub processes: Vec<ProcessDump>,
    /// The parts that are missing, and why. Providers of other processes are not named.
    pub failures: Vec<DumpFailure>,
}

impl GlobalDump {
    /// Returns the dump of this process.
    pub fn own(&self) -> &ProcessDump {
        &self.processes[0]
    }
}

/// Makes a dump and returns it. If two dumps are requested at a time, the second waits for the
/// first. Providers and reporters must not call this.
pub fn dump(options: &DumpOptions) -> GlobalDump {
    untracked::scope(|| dump_now(options))
}

fn dump_now(options: &DumpOptions) -> GlobalDump {
    static DUMPS_MADE: AtomicU64 = AtomicU64::new(0);
    let number = DUMPS_MADE.fetch_add(1, Ordering::Relaxed);
    let guid = Guid::of(&format!("{}:{}:{number}", process::id(), monotonic_nanoseconds()));
    let DumpOptions { level, kind, children, provider_deadline, deadline } = *options;
    let others = children.then(|| {
        let descendants_deadline = internal::descendants_deadline(deadline);
        let request = DumpRequest { guid, level, kind, provider_deadline, deadline: descendants_deadline };
        internal::ask_all(&request.to_line(), deadline)
    });
    let (own, mut failures) = own::dump(&DumpArgs::new(level, kind, guid), Limits { provider_deadline, deadline });
    let mut processes = vec![own];
    for (pid, answer) in others.into_iter().flat_map(internal::PendingAnswers::answers) {
        let parsed = |answer: Vec<u8>| match answer.as_slice() {
            [] => Err("it makes no dumps".to_owned()),
            answer => ProcessDump::parse(answer).map_err(|error| format!("its answer cannot be read: {error}")),
        };
        match answer.and_then(parsed) {
            // The answer is used whatever process it claims to be from.
            Ok(mut dump) => {
                (dump.pid, dump.level) = (pid, level);
                processes.push(dump);
            }
            Err(reason) => failures.push(DumpFailure { name: format!("pid {pid}"), reason, is_disabled: false }),
        }
    }
    GlobalDump { guid, kind, processes, failures }
}

/// Answers another process that asks for a dump. `None` if the request is another one.
pub(crate) fn answer(line: &[u8]) -> Option<Vec<u8>> {
    let DumpRequest { guid, level, kind, provider_deadline, deadline } = DumpRequest::parse(line)?;
    let (dump, _) = own::dump(&DumpArgs::new(level, kind, guid), Limits { provider_deadline, deadline });
    Some(dump.to_bytes())
}
