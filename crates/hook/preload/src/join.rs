//! Joins a session: at the start of the program, or while it runs.

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::hooks::{self, dispatch_path};
use heapledger_interpose::next::{Objects, Scope};
use heapledger_recorder::connect::{self, Address};
use heapledger_recorder::hook::sample;
use heapledger_recorder::{leave, observer, process, threads};
use heapledger_thread::KeyFunctions;

use crate::replace_malloc::asking;
use crate::thread_library::thread_library;
use crate::{allocator, linker};

/// All that joining a session takes from the program's libraries, found at the start.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    /// The address where the first thread's stack began.
    stack_end: u64,
    /// `None` before glibc 2.34, in a program without the library for threads.
    threads: Option<KeyFunctions>,
    allocator: (AllocatorKind, AllocatorVersion),
}

impl Library {
    /// Finds it, and watches from now on how many threads there are. Call once: the C library stops
    /// knowing that when a namespace has another one.
    pub(crate) fn find(stack_end: u64, objects: &Objects<'_>) -> Library {
        let threads = thread_library(|name| objects.lookup(Scope::Next, name));
        let has_one_thread = objects.lookup(Scope::All, c"__libc_single_threaded");
        if has_one_thread != 0 {
            // SAFETY: glibc's variable (since 2.32), which pthread_create clears before it makes a
            // thread.
            unsafe { threads::watch_threads(core::ptr::with_exposed_provenance(has_one_thread)) };
        }
        let allocator = match asking::is_underlying() {
            true => (AllocatorKind::Other, AllocatorVersion::default()),
            false => allocator::next_allocator(objects),
        };
        Library { stack_end, threads, allocator }
    }

    /// Joins a session, whose events are recorded from now on. `is_late` says that the program ran
    /// before.
    ///
    /// # Safety
    ///
    /// The process belongs to no session, and no other thread is joining one.
    pub(crate) unsafe fn join(self, session: Address, is_late: bool) {
        let observer = if session.samples() {
            dispatch_path::set_sampling(&sample::OBSERVER, dispatch_path::EXTERNAL_RATE);
            &raw const sample::OBSERVER
        } else if session.wants_usable() {
            &raw const observer::OBSERVER_WITH_USABLE
        } else {
            &raw const observer::OBSERVER
        };
        let (kind, version) = self.allocator;
        connect::set_allocator(kind, version);
        // SAFETY: `start` requires that this is the first call, or that the process has left its
        // session: this function's `# Safety`. `stack_end` is where the first thread's stack began.
        unsafe { process::start(session, self.stack_end, is_late) };
        match self.threads {
            // SAFETY: started just above. At the first call no thread has a block, because no hook
            // has been installed.
            Some(threads) => unsafe { process::create_key(threads) },
            // SAFETY: `find_threads` looks the C library's functions up, under the linker's lock,
            // which may be taken in any thread at any time.
            None => unsafe { process::create_key_later(find_threads) },
        }
        leave::joined(observer);
        // SAFETY: a table of ours, whose functions keep the contract.
        let _ = unsafe { hooks::install_observer(observer) };
    }
}

/// Returns the functions by which threads' ends are noticed, if they are there by now.
fn find_threads() -> Option<KeyFunctions> {
    let find = |objects: &Objects<'_>| thread_library(|name| objects.lookup(Scope::Next, name));
    // SAFETY: the C library's function of this name, by which it was looked up.
    unsafe { Objects::locked(linker::iterate_objects()?, find) }?
}
