//! The options of a recording.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_wire::session::{EXIT_WAIT_SHARE, mode};

use crate::broker;
use crate::heap_checker::HeapChecker;
use crate::libraries::CommandAllocator;

/// The options of a recording.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordOptions {
    /// The program and its arguments. The program is searched for as a shell would.
    pub command: Vec<OsString>,
    /// The file to write. `None`: `heapledger.PROGRAM.PID.hl` in the current directory.
    pub output: Option<PathBuf>,
    /// Replace the file if it exists. A device or a pipe is written to in any case.
    pub force: bool,
    /// Record until all processes have ended, not only the command.
    pub wait_for_descendants: bool,
    /// The treatment of events for which there is no room.
    pub on_full: OnFull,
    /// The time for which the recorder may stand still (stopped, or waiting for a disk) until
    /// programs continue without it. They then drop events as with [`OnFull::Drop`], until the
    /// recorder is back. `None`: they wait forever.
    pub stall_timeout: Option<Duration>,
    /// The maximum private memory of the recorder in each process, besides the shared rings. Beyond
    /// it, new stacks end at the innermost frame that is already known. `None`: no limit.
    pub target_memory: Option<Bytes>,
    /// Keep sites and totals only, no events. The size of the file is then bounded by the number of
    /// stacks, however long the run. The file is replaced from time to time, at most every ten
    /// seconds, by one with everything that is known then.
    pub totals_only: bool,
    /// Continue in another file from time to time. Without effect if only totals are kept.
    pub rotate: Option<Rotation>,
    /// The time at which to begin to record allocations.
    pub begin: Begin,
    /// The time for which to record, from the first moment at which allocations are recorded. After
    /// that the command continues unrecorded.
    pub duration: Option<Duration>,
    /// The preload library. It is put into a private directory for the duration of the session.
    pub library: Cow<'static, [u8]>,
    /// The library that is placed into statically linked programs. Without it, they run unrecorded.
    pub placed_library: Cow<'static, [u8]>,
    /// The absolute paths of hook libraries. They are loaded together with the preload library, in
    /// this order.
    pub hooks: Vec<PathBuf>,
    /// The allocator, which comes after the hook libraries.
    pub allocator: CommandAllocator,
    /// The heap checker, if it is to run in the program, too.
    pub heap_checker: Option<HeapChecker>,
    /// The size of a thread's ring in bytes: a power of two from 16 KiB to 64 MiB. Other values are
    /// clamped and rounded up. Processes with many threads get smaller rings.
    pub ring_capacity: usize,
    /// Record a sample of all blocks: each byte selects its block with the same small probability,
    /// such that the mean distance is this number, rounded to a power of two. Totals are then
    /// estimates. `None`: all blocks.
    pub sample_every: Option<Bytes>,
    /// Ask the allocator for the usable size of each recorded block.
    pub usable_sizes: bool,
    /// Record the calls that change mappings. Without effect if only totals are kept.
    pub mappings: bool,
    /// The moments at which to record where the resident memory is.
    pub resident: ResidentSnapshots,
    /// The parts of an allocation's stack and context that are recorded.
    pub stacks: StackMode,
    /// Compare every stack with the one from the program's C library.
    pub verify_stacks: bool,
    /// Handle the signals that the process gets meanwhile: ignore those of the keyboard, pass on
    /// requests to end, stop and continue together with the command, start recording on SIGUSR1 and
    /// stop it on SIGUSR2. Only one recording of a process can do so at a time.
    pub handle_signals: bool,
    /// The version of the tool, stored in the recording.
    pub tool_version: String,
    /// The options that were given, stored in the recording.
    pub options_text: String,
}

/// The treatment of events of a thread whose ring is full because the collector cannot keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// The thread waits until there is room: nothing is lost.
    #[default]
    Wait,
    /// Allocations and frees are dropped and counted. Totals are then lower bounds. The thread
    /// waits only if it would otherwise have no stacks from then on: for the nodes of a new stack
    /// that needs more than a quarter of the ring.
    Drop,
}

/// The parts of an allocation's stack and context that are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackMode {
    /// The stack, and the context that the program declares.
    #[default]
    Mixed,
    /// The stack.
    Native,
    /// The context that the program declares.
    Pseudo,
    /// Nothing.
    None,
}

/// The moments at which snapshots of resident memory are made, besides those that are
/// [asked for](crate::ControlRequest::Resident).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentSnapshots {
    /// Make one whenever resident memory has changed by a tenth, and now and then, as long as they
    /// take at most a fiftieth of the process's time, and all of them of the session's.
    pub automatic: bool,
    /// Make one after each such time.
    pub every: Option<Duration>,
    /// The longest time for which a process waits at its exit for a last one; none is made then if
    /// this is 0. `None`: a fiftieth of its run time, and at most 1 s, and it is made only if it is
    /// expected to take no longer. Nothing if no snapshots are made automatically.
    pub exit_wait: Option<Duration>,
}

impl ResidentSnapshots {
    /// Returns the [`exit_wait`](heapledger_wire::session::SessionPage::exit_wait) of the session
    /// page for these options.
    pub(crate) fn exit_wait(self) -> u32 {
        match self.exit_wait {
            Some(wait) => u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).min(EXIT_WAIT_SHARE - 1),
            None if self.automatic => EXIT_WAIT_SHARE,
            None => 0,
        }
    }
}

impl Default for ResidentSnapshots {
    fn default() -> ResidentSnapshots {
        ResidentSnapshots { automatic: true, every: None, exit_wait: None }
    }
}

/// The conditions for continuing in another file. Each file can be read on its own: it begins with
/// the blocks that are live then. The files are numbered from 1: `NAME.0001.hl`, `NAME.0002.hl` …
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The age of a file after which it ends.
    pub age: Option<Duration>,
    /// The length of a file after which it ends, if it has at least 65,536 events.
    pub bytes: Option<u64>,
    /// The number of files to keep; older ones are removed. `None`: all.
    pub keep: Option<u32>,
}

/// The time at which to begin to record allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// With the command.
    #[default]
    AtOnce,
    /// This long after the command was started.
    After(Duration),
    /// When it is requested: see [`RunningSession`](crate::RunningSession).
    OnRequest,
}

impl RecordOptions {
    /// Returns the default options.
    pub fn new(command: Vec<OsString>, library: impl Into<Cow<'static, [u8]>>) -> RecordOptions {
        RecordOptions {
            command,
            output: None,
            force: false,
            wait_for_descendants: false,
            on_full: OnFull::Wait,
            stall_timeout: Some(STALL_TIMEOUT),
            target_memory: None,
            rotate: None,
            begin: Begin::AtOnce,
            duration: None,
            totals_only: false,
            library: library.into(),
            placed_library: Cow::Borrowed(&[]),
            hooks: Vec::new(),
            allocator: CommandAllocator::System,
            heap_checker: None,
            ring_capacity: 256 << 10,
            sample_every: None,
            usable_sizes: false,
            mappings: false,
            resident: ResidentSnapshots::default(),
            stacks: StackMode::Mixed,
            verify_stacks: false,
            handle_signals: true,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            options_text: String::new(),
        }
    }

    /// Returns the mode in which the session begins.
    pub(crate) fn mode(&self) -> u32 {
        let on_full = match self.on_full {
            OnFull::Wait => 0,
            OnFull::Drop => mode::DROPS,
        };
        let begin = if self.begin == Begin::AtOnce { 0 } else { mode::PAUSED | mode::IDLE };
        let stacks = match self.stacks {
            StackMode::Mixed | StackMode::Native => 0,
            StackMode::Pseudo | StackMode::None => mode::NO_STACKS,
        };
        on_full | begin | stacks | if self.verify_stacks { mode::VERIFIES_STACKS } else { 0 }
    }

    /// True if context that the program declares is recorded.
    pub(crate) fn takes_contexts(&self) -> bool {
        matches!(self.stacks, StackMode::Mixed | StackMode::Pseudo)
    }

    /// Returns the conditions for continuing in another file, if there are events to divide.
    pub(crate) fn rotation(&self) -> Option<Rotation> {
        self.rotate.filter(|_| !self.totals_only)
    }

    /// Returns the size of a thread's ring in bytes.
    pub(crate) fn ring_capacity(&self) -> usize {
        self.ring_capacity.clamp(broker::CAPACITY_MIN, broker::CAPACITY_MAX).next_power_of_two()
    }
}

/// The default of [`RecordOptions::stall_timeout`].
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
