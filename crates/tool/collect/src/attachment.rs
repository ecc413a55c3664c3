//! The recorder's library, placed into a process that runs, and taken out of it again.
//!
//! 1. One thread of the process is stopped, and maps memory: for the library, and for stubs near
//!    each module with an allocator.
//! 2. The memory is filled while the program runs. Nothing leads there yet.
//! 3. All threads are stopped, and a jump of five bytes is written at each entry. A thread that is
//!    just between the instructions that the jump replaces goes on until it is elsewhere.
//!
//! The first call of an entry joins the session. To leave, the original bytes are written back in
//! the same way. When no thread is in the library's code, or returns to it, its memory is unmapped.
//!
//! The tracer of a thread is a thread: each step here has one of its own, whose end lets every
//! thread of the process go.

mod later;
mod refusal;
mod wanted;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heapledger_inject::{Caller, Image, InjectError, Mapping, Memory, Place, Threads};
use heapledger_wire::placed::{Description, MAPPINGS_WORDS, Parameters, SYMBOL};
use heapledger_wire::redirection::{Jump, Region, Thunk};

use crate::process;
use crate::redirection::{self, PlacedCode, RunningPlan, STUB_LENGTH, is_placed_stub};
use later::Later;
use wanted::{Part, Wanted};

pub(crate) use refusal::check;
pub use refusal::{AttachError, TraceDenial};

/// How often it is planned again, since the program has mapped memory meanwhile.
const PLANS_MAX: u32 = 20;
/// How often all threads are stopped until none is at a place that is to be replaced.
const TRIES_MAX: u32 = 500;
/// How often the library is taken out anew, since a module with jumps was closed meanwhile.
const REMOVALS_MAX: u32 = 5;
/// The time for which they are stopped in all these attempts.
const STOPPED_MAX: Duration = Duration::from_secs(5);
/// The pause after an attempt, as a multiple of the time for which the threads were stopped.
const PAUSE_FACTOR: u32 = 10;
/// The bytes of each stack that are searched for addresses of instructions that a jump replaces. A
/// signal handler's frame, which has the place to go back to, is at the beginning.
const SEARCHED: u64 = 64 << 10;
/// The time for which threads are waited for that are inside the library.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which calls that the library counts are waited for before threads are stopped.
const COUNTED_TIMEOUT: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// The most bytes of the library's table of threads that are read at once.
const TABLE_LENGTH_MAX: u64 = 64 << 20;
/// The most pages of the library's list of mappings that are read.
const LIST_PAGES_MAX: usize = 4096;
const PAGE: u64 = 4096;

/// The stop in which the code of a process was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// The number of threads.
    pub threads: usize,
    /// The time from the request to stop the first thread until the last one went on.
    pub time: Duration,
}

/// A library in a process that runs.
#[derive(Debug)]
pub(crate) struct Attachment {
    pid: u32,
    /// The memory of the program that was there, which another one does not have.
    memory: Arc<Memory>,
    /// The path of the program, as the kernel has it.
    pub(crate) program: PathBuf,
    /// The memory of the library and of the stubs.
    mapped: Vec<Range<u64>>,
    /// The part of it that is code, in ascending order.
    code: Vec<Range<u64>>,
    jumps: Vec<Jump>,
    /// The mappings with jumps, as they were when these were written.
    modules: Vec<Mapping>,
    /// The address of the library's thunk.
    thunk: u64,
    /// The modules that were redirected since.
    later: Later,
    /// The address of the library's list of its own mappings.
    list: u64,
    slots: SlotTable,
    /// Memory that an earlier recorder had shared with the process, and left behind.
    shared_before: Vec<Range<u64>>,
    /// The stop in which the jumps were written.
    pub(crate) stop: Stop,
}

impl Attachment {
    /// Places a library into a process, which joins the session at this address by its next call of
    /// its allocator.
    pub(crate) fn place(pid: u32, library: &[u8], session: &OsStr) -> Result<Attachment, AttachError> {
        let is_taken = |error: &AttachError| match error {
            AttachError::Inject { source: InjectError::Call { source, .. }, .. } => {
                source.kind() == io::ErrorKind::AlreadyExists
            }
            _ => false,
        };
        // The program may map memory that was free when it was planned with.
        let mut placed = Attachment::place_once(pid, library, session);
        for _ in 1..PLANS_MAX {
            if !placed.as_ref().is_err_and(is_taken) {
                break;
            }
            placed = Attachment::place_once(pid, library, session);
        }
        placed
    }

    fn place_once(pid: u32, library: &[u8], session: &OsStr) -> Result<Attachment, AttachError> {
        let denied = |error| refusal::of(pid, error);
        // The one of the last attempt may have ended.
        let thread = check(pid)?;
        let image = Image::parse(library).map_err(denied)?;
        let memory = Arc::new(Memory::open(pid).map_err(denied)?);
        let description = image.symbol(SYMBOL).map_err(denied)?;
        let mut loaded = None;
        let find_object = redirection::linker_symbol(thread, "_dl_find_object");
        let choose = |base| {
            let found = image.load_with(base, |name| find_object.filter(|_| name == "_dl_find_object")).ok()?;
            let word = |field| found.word(found.at(description) + field);
            let [thunks, exec, linker_event] =
                [Description::THUNKS_AT, Description::EXEC_AT, Description::LINKER_EVENT_AT].map(word);
            loaded = Some(found);
            Some(PlacedCode { thunk: Thunk::first(thunks?), exec: exec?, linker_event: linker_event? })
        };
        let wants = (find_object.is_none(), crate::session::records_mappings(session));
        let plan = redirection::plan_running(thread, image.length(), wants, choose);
        let (Some(plan), Some(loaded)) = (plan, loaded) else { return Err(AttachError::NotExamined { pid }) };
        if plan.parts.jumps.is_empty() {
            return Err(AttachError::NoAllocator { pid });
        }
        let at = |field| loaded.word(loaded.at(description) + field).ok_or(AttachError::NotExamined { pid });
        let (parameters_at, list) = (at(Description::PARAMETERS_AT)?, at(Description::MAPPINGS_AT)?);
        let slots = SlotTable::new(|field| at(Description::SLOTS_AT + field))?;
        let parameters = parameters(thread, session, &plan).ok_or(AttachError::NotExamined { pid })?;
        let wanted = Wanted::new(&loaded, &image, &plan);
        in_tracer(|| wanted.map(pid, &memory)).map_err(denied)?;
        let shared_before = shared(&memory).map_err(denied)?;
        let attachment = Attachment {
            pid,
            memory,
            program: program(thread),
            mapped: wanted.mapped.iter().map(|part| part.range.clone()).collect(),
            code: wanted.code(),
            jumps: plan.parts.jumps.clone(),
            modules: Vec::new(),
            thunk: Thunk::first(at(Description::THUNKS_AT)?),
            later: Later::default(),
            list,
            slots,
            shared_before,
            stop: Stop::default(),
        };
        let code = |write: Write<'_>| {
            for segment in &loaded.segments {
                write(segment.start, &segment.bytes)?;
            }
            for region in &plan.parts.regions {
                write(region.address, stubs(&plan, region))?;
            }
            write(parameters_at, &parameters.to_bytes())
        };
        let filled = attachment.fill(&code);
        let written = filled.map_err(AttachError::from).and_then(|()| attachment.write_jumps());
        match written {
            Ok(stop) => Ok(Attachment { modules: attachment.modules(), stop, ..attachment }),
            Err(error) => {
                // Nothing leads there.
                let _ = in_tracer(|| attachment.unmap());
                match attachment.memory.is_current() {
                    true => Err(error.of(pid)),
                    false => Err(AttachError::Inject { pid, source: InjectError::OtherProgram }),
                }
            }
        }
    }

    /// Fills memory of the process by a function that writes all of it.
    fn fill(&self, fill: &(dyn Fn(Write<'_>) -> Result<(), InjectError> + Sync)) -> Result<(), InjectError> {
        let memory = &self.memory;
        // The kernel may refuse to write to pages that are not writable, except by a stopped
        // thread.
        fill(&|at, bytes| memory.write(at, bytes)).or_else(|_| {
            in_tracer(|| {
                let threads = Threads::stop_one(self.pid)?;
                if !memory.is_current() {
                    return Err(InjectError::OtherProgram);
                }
                fill(&|at, bytes| threads.write(memory, at, bytes))
            })
        })
    }

    /// Returns the mappings with jumps.
    fn modules(&self) -> Vec<Mapping> {
        let mut modules = self.memory.mappings().unwrap_or_default();
        modules.retain(|module| self.jumps.iter().any(|jump| module.range.contains(&jump.address)));
        modules
    }

    /// Writes the jumps.
    fn write_jumps(&self) -> Result<Stop, AttachError> {
        let changes: Vec<Change<'_>> = self.jumps.iter().map(Change::to_jump).collect();
        change(self.pid, &self.memory, &changes)
    }

    /// Takes the library out of the process: the code of the program is as before, and the memory
    /// of the library is unmapped when no thread is inside. `None` if it is not there any more:
    /// the process has ended, or has started another program.
    pub(crate) fn remove(&self) -> Result<Option<Stop>, AttachError> {
        // The threads of another program are not stopped.
        if !self.memory.is_current() {
            return Ok(None);
        }
        let opened = self.later.close();
        let take_out = || self.with(self.pid, &self.memory, &opened).take_out();
        let is_closed_meanwhile = |error: &AttachError| match error {
            AttachError::OtherCode { .. } => true,
            AttachError::Inject { source, .. } => matches!(source, InjectError::Memory { .. }),
            _ => false,
        };
        let mut taken_out = take_out();
        for _ in 1..REMOVALS_MAX {
            if !taken_out.as_ref().is_err_and(is_closed_meanwhile) {
                break;
            }
            taken_out = take_out();
        }
        match taken_out {
            Ok(stop) => Ok(Some(stop)),
            Err(_) if !self.memory.is_current() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take_out(&self) -> Result<Stop, AttachError> {
        let failed = |error: AttachError| error.of(self.pid);
        let changes: Vec<Change<'_>> = self.jumps.iter().map(Change::from_jump).collect();
        let stop = change(self.pid, &self.memory, &changes).map_err(failed)?;
        self.wait_until_left().map_err(failed)?;
        in_tracer(|| self.unmap()).map_err(|error| AttachError::from(error).of(self.pid))?;
        Ok(stop)
    }

    /// Takes the library out of the processes that have been forked meanwhile: they have the code
    /// and the memory of their parent.
    pub(crate) fn remove_from_children(&self) {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.filter(|&pid| pid != self.pid && program(pid) == self.program) {
            let Ok(memory) = Memory::open(pid) else { continue };
            if !self.is_in(&memory) {
                continue;
            }
            // It passes the calls through if that fails.
            let _ = self.with(pid, &Arc::new(memory), &self.later.close()).remove();
        }
    }

    /// True if a process has the library at the same place, and jumps to it. It may have closed
    /// some modules.
    fn is_in(&self, other: &Memory) -> bool {
        let has_jump = |jump: &Jump| has_jump(other, jump);
        // The stubs have been made for this attachment: each leads to its thunk.
        let has_code = |range: &Range<u64>| other.read(range.start, &mut [0]).is_ok();
        self.jumps.iter().any(has_jump) && self.code.iter().all(has_code)
    }

    /// Waits until no thread is in the library's code, or returns to it.
    fn wait_until_left(&self) -> Result<(), AttachError> {
        let until = Instant::now() + LEAVE_TIMEOUT;
        let mut pause = PAUSE_MIN;
        loop {
            self.wait_until_uncounted();
            let (is_any, stopped) = in_tracer(|| self.is_any_inside()).map_err(AttachError::from)?;
            if !is_any {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(AttachError::Inside { pid: self.pid });
            }
            thread::sleep(pause.max(pause_after(stopped)));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits until the library counts no call, for at most [`COUNTED_TIMEOUT`]. No thread is
    /// stopped. The count of a thread that has left a call by a jump, or has ended in one, stays.
    fn wait_until_uncounted(&self) {
        let until = Instant::now() + COUNTED_TIMEOUT;
        let mut pause = PAUSE_MIN;
        while self.slots.has_any_inside(&self.memory) && Instant::now() < until {
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// True if a thread is in the library's code, or returns to it; with the time for which the
    /// threads were stopped. The library counts the calls that each thread is in. Before it has
    /// counted one, and afterwards, a thread is between its instructions, or in a signal handler
    /// that goes back there.
    fn is_any_inside(&self) -> Result<(bool, Duration), InjectError> {
        let memory = &self.memory;
        let mut threads = Threads::seize(self.pid)?;
        let began = Instant::now();
        threads.stop()?;
        if !memory.is_current() {
            return Err(InjectError::OtherProgram);
        }
        let is_inside = |place: Place| {
            self.code.iter().any(|range| range.contains(&place.instruction))
                || self.slots.is_inside(place.thread_pointer, memory)
        };
        let any = threads.places().any(is_inside);
        let any = any || threads.are_interrupted_in(&self.code, memory, &memory.mappings()?);
        drop(threads);
        Ok((any, began.elapsed()))
    }

    /// Unmaps all memory of the library. Nothing may lead there.
    fn unmap(&self) -> Result<(), InjectError> {
        let memory = &self.memory;
        let mut threads = Threads::stop_one(self.pid)?;
        if !memory.is_current() {
            return Err(InjectError::OtherProgram);
        }
        let mappings = memory.mappings()?;
        let mut ranges = self.own_mappings(memory);
        ranges.extend(shared(memory)?.into_iter().filter(|range| !self.shared_before.contains(range)));
        ranges.extend(self.mapped.iter().cloned());
        let instruction = memory.syscall_instruction(&mappings).ok_or(InjectError::NoVdso)?;
        let mut caller = Caller::new(&mut threads, instruction)?;
        for range in ranges {
            let length = range.end - range.start;
            caller.syscall("give memory back", libc::SYS_munmap, [range.start, length, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Returns the private mappings that the library has made, and the pages of its list of them.
    fn own_mappings(&self, memory: &Memory) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let mut word = [0; 8];
        let mut next = memory.read(self.list, &mut word).map_or(0, |()| u64::from_ne_bytes(word));
        for _ in 0..LIST_PAGES_MAX {
            let mut page = vec![0; MAPPINGS_WORDS * 8];
            if next == 0 || memory.read(next, &mut page).is_err() {
                break;
            }
            ranges.push(next..next + PAGE);
            let words: Vec<u64> = page.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            let pairs = words.get(2..).unwrap_or(&[]).as_chunks::<2>().0;
            let made = pairs.iter().filter(|[start, length]| *start != 0 && *length != 0);
            ranges.extend(made.map(|[start, length]| *start..start.saturating_add(length.next_multiple_of(PAGE))));
            next = words.first().copied().unwrap_or(0);
        }
        ranges
    }
}

/// The library's table of threads: see [`Slots`](heapledger_wire::placed::Slots).
#[derive(Clone, Copy, Debug)]
struct SlotTable {
    table: u64,
    multiplier: u64,
    bits: u64,
    length: u64,
    inside_at: u64,
}

impl SlotTable {
    /// Reads the description of a table, whose words `word` returns by their positions.
    fn new(word: impl Fn(u64) -> Result<u64, AttachError>) -> Result<SlotTable, AttachError> {
        let (table, multiplier, bits) = (word(0)?, word(8)?, word(16)?);
        Ok(SlotTable { table, multiplier, bits, length: word(24)?, inside_at: word(32)? })
    }

    /// True if a thread is in a call, or has left one by a jump.
    fn is_inside(&self, thread_pointer: u64, memory: &Memory) -> bool {
        let word = |at: u64| {
            let mut word = [0; 8];
            memory.read(at, &mut word).map_or(0, |()| u64::from_ne_bytes(word))
        };
        let count = 1_u64 << self.bits;
        let product = (thread_pointer as u32).wrapping_mul(self.multiplier as u32);
        let first = u64::from(product >> 32_u64.saturating_sub(self.bits).min(31));
        for step in 0..count {
            let slot = self.table + (first + step) % count * self.length;
            match word(slot) {
                0 => return false,
                owner if owner == thread_pointer => return word(slot + self.inside_at) != 0,
                _ => {}
            }
        }
        false
    }

    /// True if any thread is in a call, has left one by a jump, or has ended in one. False if the
    /// table cannot be read.
    fn has_any_inside(&self, memory: &Memory) -> bool {
        let Some(length) = self.length.checked_mul(1_u64 << self.bits.min(63)) else { return false };
        let mut table = vec![0; length.min(TABLE_LENGTH_MAX) as usize];
        if self.length == 0 || memory.read(self.table, &mut table).is_err() {
            return false;
        }
        let word = |slot: &[u8], at: usize| slot.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
        let is_inside = |slot: &[u8]| {
            let (owner, inside) = (word(slot, 0), word(slot, self.inside_at as usize));
            owner.is_some_and(|owner| owner != 0) && inside.is_some_and(|inside| inside != 0)
        };
        table.chunks_exact(self.length as usize).any(is_inside)
    }
}

/// True if a jump is in memory.
fn has_jump(memory: &Memory, jump: &Jump) -> bool {
    let mut found = [0; Jump::LENGTH];
    memory.read(jump.address, &mut found).is_ok() && found == jump.jump
}

/// Returns the path of a process's program; empty if it cannot be read.
fn program(pid: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default()
}

/// Returns the memory of a process that a recorder shares with it.
fn shared(memory: &Memory) -> Result<Vec<Range<u64>>, InjectError> {
    let mappings = memory.mappings()?.into_iter();
    let shared = mappings.filter(|mapping| mapping.name.starts_with(b"/memfd:heapledger"));
    Ok(shared.map(|mapping| mapping.range).collect())
}

/// Returns the code of the stubs in a region.
fn stubs<'a>(plan: &'a RunningPlan, region: &Region) -> &'a [u8] {
    let (from, length) = (region.offset as usize, region.length as usize);
    plan.parts.code.get(from..from + length).unwrap_or(&[])
}

/// Returns what the library is told.
fn parameters(pid: u32, session: &OsStr, plan: &RunningPlan) -> Option<Parameters> {
    let made = Parameters::new(session.as_bytes(), &plan.modules)?;
    let missed = plan.parts.entries.saturating_sub(plan.entries_planned as u64);
    let own_code = plan.parts.own_code.unwrap_or_default();
    let (stack_top, allocator) = (first_stack_top(pid)?, plan.parts.allocator as u64);
    // `struct r_debug` of `<link.h>`: a version, two addresses, and the state.
    let linker_state = redirection::linker_symbol(pid, "_r_debug").map_or(0, |debug| debug + 24);
    Some(Parameters { stack_top, entries_missed: missed, is_late: 1, allocator, own_code, linker_state, ..made })
}

/// Returns the address at which the first thread's stack began: the 28th field of proc_pid_stat(5).
fn first_stack_top(pid: u32) -> Option<u64> {
    let stat = process::text(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(25)?.parse().ok()
}

/// Writes bytes to an address of a process.
type Write<'a> = &'a dyn Fn(u64, &[u8]) -> Result<(), InjectError>;

/// A change of code.
struct Change<'a> {
    address: u64,
    /// The bytes that have to be there.
    from: &'a [u8],
    to: &'a [u8],
    /// The addresses at which no thread may be, or return to.
    inside: Range<u64>,
}

impl Change<'_> {
    fn to_jump(jump: &Jump) -> Change<'_> {
        let (from, address) = (jump.expected(), jump.address);
        Change { address, from, to: &jump.jump, inside: address + 1..address + from.len() as u64 }
    }

    /// True if the bytes that were found are a jump to a stub of an earlier recorder, which was
    /// killed: its jumps are replaced. The bytes that the program had there are known from its
    /// file.
    fn takes_over(&self, found: &[u8], memory: &Memory) -> bool {
        let (Some((jump, rest)), Some((_, expected))) =
            (found.split_first_chunk::<{ Jump::LENGTH }>(), self.from.split_first_chunk::<{ Jump::LENGTH }>())
        else {
            return false;
        };
        let [0xe9, a, b, c, d] = *jump else { return false };
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        let stub = self.address.wrapping_add(Jump::LENGTH as u64).wrapping_add_signed(distance);
        let mut code = [0; STUB_LENGTH];
        rest == expected && memory.read(stub, &mut code).is_ok() && is_placed_stub(&code)
    }

    fn from_jump(jump: &Jump) -> Change<'_> {
        let to = jump.expected().get(..Jump::LENGTH).unwrap_or(&[]);
        Change { address: jump.address, from: &jump.jump, to, inside: jump.address + 1..jump.address + 1 }
    }
}

/// Changes code while all threads are stopped: all of it, or nothing.
fn change(pid: u32, memory: &Memory, changes: &[Change<'_>]) -> Result<Stop, AttachError> {
    change_within(STOPPED_MAX, pid, memory, changes)
}

/// Does the same in attempts in which the threads are stopped for little more than `stopped_max`.
fn change_within(
    stopped_max: Duration,
    pid: u32,
    memory: &Memory,
    changes: &[Change<'_>],
) -> Result<Stop, AttachError> {
    let mut inside: Vec<Range<u64>> = changes.iter().map(|change| change.inside.clone()).collect();
    inside.retain(|range| !range.is_empty());
    inside.sort_by_key(|range| range.start);
    let mut stopped = Duration::ZERO;
    for _ in 0..TRIES_MAX {
        let time = match in_tracer(|| change_once(pid, memory, changes, &inside))? {
            Attempt::Changed(stop) => return Ok(stop),
            Attempt::Occupied(time) => time,
        };
        stopped += time;
        if stopped > stopped_max {
            break;
        }
        thread::sleep(pause_after(time));
    }
    Err(AttachError::Busy { pid })
}

/// Returns the time for which the threads of a program are to run after a stop, so that attempts
/// one after the other do not take more than a tenth of its time.
fn pause_after(stopped: Duration) -> Duration {
    (stopped * PAUSE_FACTOR).max(PAUSE_MIN)
}

/// The result of one attempt to change code.
enum Attempt {
    /// All of it is changed.
    Changed(Stop),
    /// Nothing is changed, because a thread is where it may not be. All were stopped for this time.
    Occupied(Duration),
}

/// Attempts that once.
fn change_once(
    pid: u32,
    memory: &Memory,
    changes: &[Change<'_>],
    inside: &[Range<u64>],
) -> Result<Attempt, AttachError> {
    // Before the stop, because it takes time.
    let mut mappings = memory.mappings()?;
    let mut threads = Threads::seize(pid)?;
    let began = Instant::now();
    threads.stop()?;
    // The process may have started another program since.
    if !memory.is_current() {
        return Err(InjectError::OtherProgram.into());
    }
    let mut before = Vec::new();
    for change in changes {
        let mut found = vec![0; change.from.len()];
        memory.read(change.address, &mut found)?;
        if found != change.from && !change.takes_over(&found, memory) {
            return Err(AttachError::OtherCode { pid, address: change.address });
        }
        found.truncate(Jump::LENGTH);
        before.push(found);
    }
    let is_there = |address: u64| inside.iter().any(|range| range.contains(&address));
    let mut is_occupied = !inside.is_empty() && !threads.move_out(is_there)?;
    if !inside.is_empty() && !is_occupied {
        if !threads.have_stacks_in(&mappings) {
            mappings = memory.mappings()?;
        }
        is_occupied = threads.refer_to(inside, memory, &mappings, SEARCHED);
    }
    if is_occupied {
        drop(threads);
        return Ok(Attempt::Occupied(began.elapsed()));
    }
    for (index, change) in changes.iter().enumerate() {
        if let Err(error) = threads.write(memory, change.address, change.to) {
            for (change, before) in changes.iter().zip(&before).take(index) {
                let _ = threads.write(memory, change.address, before);
            }
            return Err(error.into());
        }
    }
    let count = threads.count();
    drop(threads);
    Ok(Attempt::Changed(Stop { threads: count, time: began.elapsed() }))
}

/// Runs a step in a thread of its own.
fn in_tracer<T: Send, E: Send>(step: impl FnOnce() -> Result<T, E> + Send) -> Result<T, E> {
    thread::scope(|scope| scope.spawn(step).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests;
