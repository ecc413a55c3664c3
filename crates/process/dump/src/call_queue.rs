//! Threads in which providers are called.

use std::collections::VecDeque;
use std::fmt;
use std::process;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use heapledger_reporters::internal::{self, untracked, untracked_thread};

/// A function to be run in a thread.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// A queue of calls of providers that a thread runs in its loop.
///
/// ```
/// use heapledger_dump::{self as dump, *};
/// # struct Idle;
/// # impl Provider for Idle {
/// #     fn dump(&mut self, _: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError> {
/// #         dump.allocator("window").set_size(1);
/// #         Ok(())
/// #     }
/// # }
/// let (wake, woken) = std::sync::mpsc::channel();
/// let queue = CallQueue::new(move || _ = wake.send(()));
/// let options = ProviderOptions { on: Some(queue.clone()), ..ProviderOptions::default() };
/// let _registration = dump::register_with("Window", Idle, options);
///
/// let asking = std::thread::spawn(|| dump::dump(&dump::DumpOptions::default()));
/// woken.recv().unwrap(); // … in the thread's loop, with everything else that wakes it
/// queue.run();
/// assert_eq!(asking.join().unwrap().own().size_of("window"), Some(1));
/// ```
#[derive(Clone)]
pub struct CallQueue(Arc<Inner>);

struct Inner {
    waiting: Mutex<VecDeque<Task>>,
    wake: Box<dyn Fn() + Send + Sync>,
    /// The thread that made the queue, which may be another one than the thread that empties it.
    owner_thread: Mutex<ThreadId>,
}

impl CallQueue {
    /// Returns a queue for the calling thread. `wake` is called, in another thread, when there is
    /// something in the queue.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> CallQueue {
        untracked::scope(|| {
            let owner_thread = Mutex::new(thread::current().id());
            CallQueue(Arc::new(Inner { waiting: Mutex::default(), wake: Box::new(wake), owner_thread }))
        })
    }

    /// Runs the queued calls in the calling thread, which is the queue's thread from then on.
    pub fn run(&self) {
        untracked::scope(|| {
            *lock(&self.0.owner_thread) = thread::current().id();
            while let Some(task) = self.next() {
                task();
            }
        });
    }

    fn next(&self) -> Option<Task> {
        lock(&self.0.waiting).pop_front()
    }

    /// Queues a task for the queue's thread, or runs it at once in that thread.
    pub(crate) fn post(&self, task: Task) {
        if *lock(&self.0.owner_thread) == thread::current().id() {
            return task();
        }
        lock(&self.0.waiting).push_back(task);
        untracked::callback(|| (self.0.wake)());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for CallQueue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CallQueue").field("waiting", &lock(&self.0.waiting).len()).finish_non_exhaustive()
    }
}

/// The thread `MemoryInfra`: the sender of its tasks, and its process.
static MEMORY_INFRA: Mutex<Option<(u32, Sender<Task>)>> = Mutex::new(None);

/// Runs a task in the thread `MemoryInfra`; in the calling thread if no thread can be made.
pub(crate) fn in_memory_infra(task: Task) {
    let guard = internal::lock_dumps();
    let mut own = lock(&MEMORY_INFRA);
    // After a fork the child has a copy of the sender, but not the thread.
    if own.as_ref().is_none_or(|(process, _)| *process != process::id()) {
        std::mem::forget(own.take());
        let (sender, tasks) = mpsc::channel::<Task>();
        let run = move || tasks.into_iter().for_each(|task| task());
        match untracked_thread::spawn("MemoryInfra", run) {
            Ok(_) => *own = Some((process::id(), sender)),
            Err(_) => {
                drop((own, guard));
                return task();
            }
        }
    }
    if let Some((_, sender)) = own.as_ref() {
        // The thread takes all tasks until the sender is dropped.
        let _ = sender.send(task);
    }
}

/// Leaves the thread to a provider that does not return. The next task makes another thread.
pub(crate) fn abandon_memory_infra() {
    let _guard = internal::lock_dumps();
    *lock(&MEMORY_INFRA) = None;
}
