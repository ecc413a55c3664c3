//! The choice of sites: stacks with a function of one list are sampled only, and those with a
//! function of another list never.
//!
//! Functions are found by the symbols of the loaded objects, which are read from their files when
//! a stack leads through an object for the first time. So this works in all programs that a program
//! starts, and in libraries that are opened later; functions that the compiler has inlined have no
//! symbols. A stack is looked at once, because the answer is kept by its id.
//!
//! An object that is loaded at the addresses of one that was closed is taken for that one.

mod matching;
mod symbols;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::lock::Lock;
use heapledger_core::{StackId, sys};
use heapledger_unwind::modules;

use crate::{slots, stack};

/// The number of functions that can be named.
pub const FUNCTIONS_MAX: usize = 64;
/// The bytes of all names.
pub const NAMES_BYTES_MAX: usize = 4096;
/// The number of symbols that the names may have in all objects, and the number of objects.
/// Further ones are ignored.
const RANGES_MAX: usize = 2048;
const OBJECTS_MAX: usize = 512;
/// The number of stacks whose answers are kept, a power of two.
const ANSWERS: usize = 4096;

/// The lists of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhcSites {
    /// Only blocks that were allocated in these are sampled.
    Only,
    /// Blocks that were allocated in these are never sampled.
    Never,
}

/// A name: its bytes end at `end` in [`Table::names`], and begin where those before it end.
#[derive(Clone, Copy)]
struct Name {
    end: usize,
    sites: PhcSites,
}

#[derive(Clone, Copy)]
struct Range {
    from: u64,
    to: u64,
    sites: PhcSites,
}

/// The names, and the places of their functions.
struct Table {
    names: [u8; NAMES_BYTES_MAX],
    functions: [Name; FUNCTIONS_MAX],
    functions_count: usize,
    ranges: [Range; RANGES_MAX],
    ranges_count: usize,
    /// The first addresses of the objects whose symbols were read.
    objects: [u64; OBJECTS_MAX],
    objects_count: usize,
}

/// **Guarded cell**: accessed in this module only, and only while `LOCK` is held.
struct Guarded(UnsafeCell<Table>);

// SAFETY: `Sync` demands that threads which share the value make no data race: it is a *guarded
// cell* of plain values.
unsafe impl Sync for Guarded {}

static TABLE: Guarded = Guarded(UnsafeCell::new(Table {
    names: [0; NAMES_BYTES_MAX],
    functions: [Name { end: 0, sites: PhcSites::Only }; FUNCTIONS_MAX],
    functions_count: 0,
    ranges: [Range { from: 0, to: 0, sites: PhcSites::Only }; RANGES_MAX],
    ranges_count: 0,
    objects: [0; OBJECTS_MAX],
    objects_count: 0,
}));
static LOCK: Lock = Lock::new();
/// The number of functions that are named: 0 if every site is sampled.
static FUNCTIONS: AtomicUsize = AtomicUsize::new(0);
/// True if a function is in the list of those that are sampled only.
static HAS_ONLY: AtomicBool = AtomicBool::new(false);
/// The answers: the id of a stack, shifted by 2, 2, and 1 if the stack is sampled.
static ANSWER: [AtomicU64; ANSWERS] = [const { AtomicU64::new(0) }; ANSWERS];

/// Names a function of a list: `main`, `Class::method` or `module::function`, without arguments and
/// parameters of types. The name of a namespace, class or module stands for all that is in it.
/// False if there is no room for it. To be called before the checker starts.
pub fn choose(sites: PhcSites, name: &str) -> bool {
    let added = with(|table| {
        let start = table.functions.get(..table.functions_count).and_then(|all| all.last()).map_or(0, |last| last.end);
        let end = start + name.len();
        let (Some(place), Some(function)) =
            (table.names.get_mut(start..end), table.functions.get_mut(table.functions_count))
        else {
            return false;
        };
        place.copy_from_slice(name.as_bytes());
        *function = Name { end, sites };
        table.functions_count += 1;
        true
    });
    if added && !name.is_empty() {
        HAS_ONLY.fetch_or(sites == PhcSites::Only, Ordering::Relaxed);
        FUNCTIONS.fetch_add(1, Ordering::Release);
    }
    added
}

/// Runs a function with the table, while no other thread has it and no signal is delivered.
fn with<R>(run: impl FnOnce(&mut Table) -> R) -> R {
    sys::without_signals(|| {
        let _guard = LOCK.lock();
        // SAFETY: no other reference to the *guarded cell* exists: `_guard` holds its lock until
        // `run` has returned.
        run(unsafe { &mut *TABLE.0.get() })
    })
}

/// Takes the lock until [`release`], around a fork.
pub(crate) fn hold() {
    core::mem::forget(LOCK.lock());
}

/// # Safety
///
/// This thread called `hold`, or is a copy of the one that did.
pub(crate) unsafe fn release() {
    // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
    // fork, took the lock and forgot the guard. `hold` does both.
    unsafe { LOCK.unlock() };
}

/// True if a function is named.
pub(crate) fn is_any() -> bool {
    FUNCTIONS.load(Ordering::Acquire) > 0
}

/// True if a block with this stack may be sampled.
pub(crate) fn accepts(stack: StackId) -> bool {
    if !is_any() {
        return true;
    }
    let index = (stack.0.wrapping_mul(0x9e37_79b1) >> 20) as usize;
    let Some(answer) = ANSWER.get(index % ANSWERS) else { return false };
    let key = u64::from(stack.0) << 2 | 2;
    let known = answer.load(Ordering::Relaxed);
    if known & !1 == key {
        return known & 1 != 0;
    }
    // A thread that forks holds the lock.
    if slots::is_forking() {
        return false;
    }
    let is_accepted = with(|table| table.accepts(stack));
    answer.store(key | u64::from(is_accepted), Ordering::Relaxed);
    is_accepted
}

impl Table {
    fn accepts(&mut self, stack: StackId) -> bool {
        let mut is_wanted = !HAS_ONLY.load(Ordering::Relaxed);
        for address in stack::frames(stack) {
            self.read_object(address);
            let ranges = self.ranges.get(..self.ranges_count).unwrap_or(&[]);
            for range in ranges.iter().filter(|range| (range.from..range.to).contains(&address)) {
                match range.sites {
                    PhcSites::Only => is_wanted = true,
                    PhcSites::Never => return false,
                }
            }
        }
        is_wanted
    }

    /// Reads the symbols of the loaded object around an address, unless they were read.
    fn read_object(&mut self, address: u64) {
        let Some(module) = modules::find(address) else { return };
        let known = self.objects.get(..self.objects_count).unwrap_or(&[]);
        if known.contains(&module.start()) {
            return;
        }
        let Some(object) = self.objects.get_mut(self.objects_count) else { return };
        *object = module.start();
        self.objects_count += 1;
        let (bias, path) = module.bias_and_path();
        let path = if path.is_empty() { c"/proc/self/exe".as_ptr().cast() } else { path.as_ptr() };
        // SAFETY: `each_function` demands a C string: the dynamic linker's path of a module is one.
        unsafe {
            symbols::each_function(path, |symbol, start, bytes| self.note(symbol, bias.wrapping_add(start), bytes))
        };
    }

    /// Notes the range of a function, for each list that has its name.
    fn note(&mut self, symbol: &[u8], from: u64, bytes: u64) {
        let mut start = 0;
        for name in self.functions.get(..self.functions_count).unwrap_or(&[]) {
            let text = self.names.get(start..name.end).unwrap_or(&[]);
            start = name.end;
            if !text.is_empty()
                && matching::is_named(symbol, text)
                && let Some(range) = self.ranges.get_mut(self.ranges_count)
            {
                *range = Range { from, to: from.saturating_add(bytes), sites: name.sites };
                self.ranges_count += 1;
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
