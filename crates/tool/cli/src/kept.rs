//! Data about a recording that a session of questions keeps between them: the names of functions
//! that were looked up, and the sites.
//!
//! A thread that answers a page says by [`keep`] where its answer finds them. A question that the
//! recorder's totals answer borrows them ([`lend`]), alone: others wait, and need the data that the
//! first one reads. Questions that replay events take nothing, so nobody waits for a replay.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heapledger_analysis::{KnownNames, Names, Selection, SiteSet, SiteTable};

use crate::args::Symbols;
use crate::input::Input;
use crate::listener;

/// The number of tables that are kept of a file: one for all processes, and some for single ones.
const TABLES_MAX: usize = 4;
/// The time after which a question that waits looks whether it was cancelled.
const WAIT: Duration = Duration::from_millis(20);

thread_local! {
    static KEPT: RefCell<Option<Arc<Kept>>> = const { RefCell::new(None) };
}

/// Runs a part of a verb that may use what is kept of a file.
pub(crate) fn keep<R>(kept: &Arc<Kept>, run: impl FnOnce() -> R) -> R {
    /// Puts the earlier value back, also when the verb unwinds.
    struct Before(Option<Arc<Kept>>);
    impl Drop for Before {
        fn drop(&mut self) {
            KEPT.set(self.0.take());
        }
    }
    let _before = Before(KEPT.replace(Some(Arc::clone(kept))));
    run()
}

/// Borrows what this thread's session keeps of a file, if the question is one that it answers.
/// Waits for other questions that have borrowed it.
pub(crate) fn lend(input: &Input, symbols: &Symbols, selection: &Selection) -> Option<Lent> {
    let is_of_totals = !selection.counts_slop && selection.moment.time().is_none() && !selection.filter.needs_events();
    if !is_of_totals || input.is_converted() || input.counts_mappings() {
        return None;
    }
    // A question that is asked on behalf of another one would wait for that one.
    let kept = KEPT.take()?;
    if kept.path != input.path {
        return None;
    }
    let options = format!("{:?} {:?}", symbols.files, symbols.wrapper);
    let mut state = kept.state();
    while state.is_lent {
        state = kept.returned.wait_timeout(state, WAIT).unwrap_or_else(PoisonError::into_inner).0;
        if state.is_lent {
            drop(state);
            listener::progress(0, 0);
            state = kept.state();
        }
    }
    let contents = match &state.contents {
        // Other options find other names: they are asked for too rarely to be kept as well.
        Some(contents) if contents.options != options => return None,
        _ => state.contents.take().unwrap_or_else(|| Contents { options, ..Contents::default() }),
    };
    state.is_lent = true;
    let version = state.version;
    drop(state);
    Some(Lent { kept, contents, version })
}

/// The place where a session keeps data about one file. It is shared between threads.
pub(crate) struct Kept {
    path: PathBuf,
    state: Mutex<State>,
    returned: Condvar,
    /// An estimate of the memory of the contents, in bytes.
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The state of the file that the contents are of.
    version: u64,
    file: Option<String>,
    is_lent: bool,
    contents: Option<Contents>,
}

#[derive(Default)]
struct Contents {
    /// The options by which names were looked up.
    options: String,
    names: Option<KnownNames>,
    /// The sites by the processes that were asked for.
    tables: Vec<(String, Arc<SiteTable>)>,
}

impl Kept {
    /// Creates a place in which nothing is kept.
    pub(crate) fn new(path: &Path) -> Kept {
        let (state, returned, bytes) = Default::default();
        Kept { path: path.to_owned(), state, returned, bytes }
    }

    /// Drops what is kept if it is of another state of the file than this one. What is lent at the
    /// time is dropped when it is returned.
    pub(crate) fn expect(&self, file: Option<&str>) {
        let mut state = self.state();
        if state.file.as_deref() != file {
            state.file = file.map(str::to_owned);
            state.version += 1;
            state.contents = None;
            self.bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Drops what is kept.
    pub(crate) fn forget(&self) {
        self.state().contents = None;
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Returns an estimate of the memory that is taken, in bytes, without that of debug
    /// information.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A thread that panics while it holds the lock has changed nothing halfway.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kept").field("path", &self.path).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The contents of a [`Kept`], which one question has borrowed. They are returned when this is
/// dropped, unless the question is unwinding.
pub(crate) struct Lent {
    kept: Arc<Kept>,
    contents: Contents,
    version: u64,
}

impl Lent {
    /// Takes the names out. They must be given back by [`Lent::give_back`].
    pub(crate) fn take_names(&mut self) -> Option<KnownNames> {
        self.contents.names.take()
    }

    /// Gives the names back. While the question unwinds, everything is dropped: the tables would
    /// refer to names that are not there.
    pub(crate) fn give_back(&mut self, names: &mut Names<'_, '_>) {
        if !std::thread::panicking() {
            self.contents.names = Some(names.take_known());
        }
    }

    /// Returns the sites of a selection, and those of them that meet its conditions on stacks.
    /// Reads them if they are not kept. `None` if only events tell them, or if they cannot be read:
    /// the usual way then says why.
    pub(crate) fn sites(
        &mut self,
        names: &mut Names<'_, '_>,
        selection: &Selection,
    ) -> Option<(Arc<SiteTable>, SiteSet)> {
        let processes = format!("{:?}", selection.filter.processes);
        let tables = &mut self.contents.tables;
        let table = match tables.iter().find(|(key, _)| *key == processes) {
            Some((_, table)) => Arc::clone(table),
            None => {
                let table = Arc::new(SiteTable::load_recorded(names, &selection.filter).ok()??);
                if tables.len() == TABLES_MAX {
                    tables.remove(0);
                }
                tables.push((processes, Arc::clone(&table)));
                table
            }
        };
        let set = table.select(names, &selection.filter);
        Some((table, set))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let contents = std::mem::take(&mut self.contents);
        let bytes = contents.names.as_ref().map(|names| {
            names.memory_bytes() + contents.tables.iter().map(|(_, table)| table.memory_bytes()).sum::<u64>()
        });
        let mut state = self.kept.state();
        state.is_lent = false;
        // Without names, the question has unwound.
        if let Some(bytes) = bytes.filter(|_| state.version == self.version) {
            state.contents = Some(contents);
            self.kept.bytes.store(bytes, Ordering::Relaxed);
        } else {
            self.kept.bytes.store(0, Ordering::Relaxed);
        }
        drop(state);
        self.kept.returned.notify_one();
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lent").field("kept", &self.kept).finish_non_exhaustive()
    }
}
