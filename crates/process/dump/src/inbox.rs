//! Threads in which providers are called.

use std::collections::VecDeque;
use std::fmt;
use std::process;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use heapledger_report::between::{self, quiet, untracked};

/// Something to be done in a thread.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// Where a thread finds the calls of providers that are to run in it: it empties it in its loop.
///
/// ```
/// use heapledger_dump::{self as dump, *};
/// # struct Idle;
/// # impl Provider for Idle {
/// #     fn dump(&mut self, _: &DumpArgs, dump: &mut ProcessDump) -> Result<(), Failed> {
/// #         dump.allocator("window").set_size(1);
/// #         Ok(())
/// #     }
/// # }
/// let (wake, woken) = std::sync::mpsc::channel();
/// let inbox = Inbox::new(move || _ = wake.send(()));
/// let options = ProviderOptions { on: Some(inbox.clone()), ..ProviderOptions::default() };
/// let _registration = dump::register_with("Window", Idle, options);
///
/// let asking = std::thread::spawn(|| dump::dump(&dump::Options::default()));
/// woken.recv().unwrap(); // … in the thread's loop, with everything else that wakes it
/// inbox.run();
/// assert_eq!(asking.join().unwrap().own().size_of("window"), Some(1));
/// ```
#[derive(Clone)]
pub struct Inbox(Arc<Inner>);

struct Inner {
    waiting: Mutex<VecDeque<Task>>,
    wake: Box<dyn Fn() + Send + Sync>,
    /// Of the thread that made it, which may be another than the one that empties it.
    home: Mutex<ThreadId>,
}

impl Inbox {
    /// An inbox of the calling thread. `wake` is called, in another thread, when there is something in it.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Inbox {
        untracked::scope(|| {
            let home = Mutex::new(thread::current().id());
            Inbox(Arc::new(Inner { waiting: Mutex::default(), wake: Box::new(wake), home }))
        })
    }

    /// Calls what is in it, in the calling thread, which is its thread from then on.
    pub fn run(&self) {
        untracked::scope(|| {
            *lock(&self.0.home) = thread::current().id();
            while let Some(task) = self.next() {
                task();
            }
        });
    }

    fn next(&self) -> Option<Task> {
        lock(&self.0.waiting).pop_front()
    }

    /// Has something done in its thread: at once, if it is this one.
    pub(crate) fn post(&self, task: Task) {
        if *lock(&self.0.home) == thread::current().id() {
            return task();
        }
        lock(&self.0.waiting).push_back(task);
        untracked::callback(|| (self.0.wake)());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Inbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Inbox").field("waiting", &lock(&self.0.waiting).len()).finish_non_exhaustive()
    }
}

/// The thread `MemoryInfra`: where its tasks go, and of which process it is.
static MEMORY_INFRA: Mutex<Option<(u32, Sender<Task>)>> = Mutex::new(None);

/// Has something done in the thread `MemoryInfra`. Where there can be no thread, at once.
pub(crate) fn in_memory_infra(task: Task) {
    let guard = between::dumps();
    let mut own = lock(&MEMORY_INFRA);
    // A child has a copy of this, and not of the thread.
    if own.as_ref().is_none_or(|(process, _)| *process != process::id()) {
        std::mem::forget(own.take());
        let (sender, tasks) = mpsc::channel::<Task>();
        let run = move || tasks.into_iter().for_each(|task| task());
        match quiet::thread("MemoryInfra", run) {
            Ok(_) => *own = Some((process::id(), sender)),
            Err(_) => {
                drop((own, guard));
                return task();
            }
        }
    }
    if let Some((_, sender)) = own.as_ref() {
        // It takes all until the sender is gone.
        let _ = sender.send(task);
    }
}

/// Leaves the thread to the provider that does not return: another one takes its place.
pub(crate) fn abandon_memory_infra() {
    let _guard = between::dumps();
    *lock(&MEMORY_INFRA) = None;
}
