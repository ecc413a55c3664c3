//! Names of functions, for heaps.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Instant;

use heapledger_query::{Frame, Stack};
use heapledger_reporters::internal::{self, untracked_thread};

/// The functions at addresses that have been looked up, the innermost first, kept from dump to
/// dump. The memory is Heapledger's, not the program's.
static KNOWN: Mutex<Option<HashMap<u64, Arc<[Function]>>>> = Mutex::new(None);

/// The number of addresses that are kept.
const ADDRESSES_MAX: usize = 1 << 18;

#[derive(Clone)]
struct Function {
    name: Arc<str>,
    /// True if the function is between the program and its allocator.
    is_allocators: bool,
}

fn with<R>(run: impl FnOnce(&mut HashMap<u64, Arc<[Function]>>) -> R) -> R {
    // Forks are blocked meanwhile.
    let _guard = internal::lock_dumps();
    run(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Looks up the functions at addresses that are not known yet, until `end`.
///
/// The look-up runs in a thread, since the first one reads the program's debug information and
/// takes an unbounded time. Names that are read after `end` are there for the next dump.
pub(crate) fn look_up(mut frames: HashSet<Frame>, end: Instant) {
    with(|known| {
        frames.retain(|frame| !known.contains_key(&frame.address));
        if known.len() + frames.len() > ADDRESSES_MAX {
            known.clear();
        }
    });
    if frames.is_empty() {
        return;
    }
    let (sender, done) = mpsc::channel::<()>();
    let run = move || {
        let _sender = sender;
        for frame in frames.into_iter().take(ADDRESSES_MAX) {
            if Instant::now() >= end {
                return;
            }
            let functions = functions_at(frame);
            with(|known| known.insert(frame.address, functions));
        }
    };
    if untracked_thread::spawn("heapledger-name", run).is_ok() {
        // The thread sends nothing: it ends, or is late.
        let _ = done.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// The names that are known so far.
pub(crate) struct Names(HashMap<u64, Arc<[Function]>>);

impl Names {
    pub(crate) fn known() -> Names {
        Names(with(|known| known.clone()))
    }

    /// Returns the scopes of the context, then the functions, both from the outermost, without the
    /// allocator's own. Unknown functions appear as their addresses.
    pub(crate) fn frames(&self, stack: Stack) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut is_own = true;
        for frame in stack.frames() {
            let Some(functions) = self.0.get(&frame.address) else {
                is_own = false;
                names.push(unnamed(frame).name);
                continue;
            };
            for function in functions.iter() {
                is_own = is_own && function.is_allocators;
                if !is_own {
                    names.push(Arc::clone(&function.name));
                }
            }
        }
        names.extend(stack.context().map(|scope| scope.to_string().into()));
        names.reverse();
        names
    }
}

fn unnamed(frame: Frame) -> Function {
    Function { name: format!("pc:{:x}", frame.address).into(), is_allocators: false }
}

#[cfg(feature = "symbols")]
fn functions_at(frame: Frame) -> Arc<[Function]> {
    let symbols = frame.symbols();
    if symbols.iter().all(|symbol| symbol.function.is_none()) {
        return [unnamed(frame)].into();
    }
    let named = symbols.into_iter().map(|symbol| {
        let is_allocators = symbol.is_allocator();
        Function { name: symbol.function.unwrap_or_else(|| "??".to_owned()).into(), is_allocators }
    });
    named.collect()
}

#[cfg(not(feature = "symbols"))]
fn functions_at(frame: Frame) -> Arc<[Function]> {
    [unnamed(frame)].into()
}
