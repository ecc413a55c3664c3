//! The listener to a verb that answers a page in place of a terminal: it gets what would be
//! printed on stderr, and can end the verb early.

use std::fmt;

#[cfg(feature = "viewer")]
pub(crate) use self::work::listen;

/// Passes a message on to the listener of this thread. False if there is none.
pub(crate) fn note(text: &impl fmt::Display) -> bool {
    #[cfg(feature = "viewer")]
    return work::note(text);
    #[cfg(not(feature = "viewer"))]
    return {
        let _ = text;
        false
    };
}

/// Reports progress to the listener of this thread. False if there is none. Unwinds if the listener
/// has cancelled the work.
pub(crate) fn progress(done: u64, all: u64) -> bool {
    #[cfg(feature = "viewer")]
    return work::progress(done, all);
    #[cfg(not(feature = "viewer"))]
    return {
        let _ = (done, all);
        false
    };
}

#[cfg(feature = "viewer")]
mod work {
    use std::cell::RefCell;
    use std::fmt;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use heapledger_viewer::Work;

    thread_local! {
        static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
    }

    /// The payload by which a verb unwinds that is cancelled.
    struct Cancelled;

    /// Runs a part of a verb, and listens to it. `None` if it was cancelled.
    ///
    /// A verb that is cancelled unwinds from where it reports its progress, with all that it has
    /// made so far. What it borrowed from the session is dropped, so nobody sees what it leaves
    /// halfway.
    pub(crate) fn listen<R>(to: &Work, run: impl FnOnce() -> R) -> Option<R> {
        let before = WORK.replace(Some(to.clone()));
        let result = catch_unwind(AssertUnwindSafe(run));
        WORK.set(before);
        match result {
            Ok(result) => Some(result),
            Err(payload) if payload.is::<Cancelled>() => None,
            Err(payload) => resume_unwind(payload),
        }
    }

    pub(super) fn note(text: &impl fmt::Display) -> bool {
        let Some(work) = current() else { return false };
        work.note(text.to_string());
        true
    }

    pub(super) fn progress(done: u64, all: u64) -> bool {
        let Some(work) = current() else { return false };
        work.report(done, all);
        if work.is_cancelled() {
            // Does not call the panic hook: nothing is printed.
            resume_unwind(Box::new(Cancelled));
        }
        true
    }

    fn current() -> Option<Work> {
        WORK.with_borrow(Clone::clone)
    }
}

#[cfg(all(test, feature = "viewer"))]
mod tests {
    use heapledger_viewer::Work;

    use super::*;

    #[test]
    fn a_listener_hears_its_own_thread_and_ends_it() {
        assert!(!note(&"nobody") && !progress(1, 2));
        let work = Work::default();
        let heard = listen(&work, || {
            assert!(!std::thread::spawn(|| progress(1, 1)).join().unwrap());
            note(&"somebody") && progress(1, 2)
        });
        assert_eq!((heard, work.progress()), (Some(true), Some(0.5)));
        work.cancel();
        let mut has_gone_on = false;
        assert!(
            listen(&work, || {
                progress(1, 2);
                has_gone_on = true;
            })
            .is_none()
        );
        assert!(!has_gone_on && !progress(1, 2));
        let defect = std::panic::catch_unwind(|| listen(&Work::default(), || std::panic::resume_unwind(Box::new(7))));
        assert_eq!(*defect.unwrap_err().downcast::<i32>().unwrap(), 7);
        assert!(!note(&"nobody"));
    }
}
