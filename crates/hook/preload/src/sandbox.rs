//! Handles a program that puts itself in a sandbox (`seccomp`): the recording says so, and hook
//! libraries are notified.

use heapledger_core::sys;
use heapledger_interpose::sandbox::Moment;
use heapledger_recorder::hook::declarations;
use heapledger_recorder::{attach, session};
use heapledger_wire::event::code;

use crate::guard::with_guard;
use crate::libraries;

/// Handles [`heapledger_interpose::sandbox`]'s notification. In strict mode a thread may not even
/// read the time stamp counter: it records nothing more, and its calls are counted as lost.
#[unsafe(no_mangle)]
fn heapledger_family_sandbox(moment: Moment) {
    // Writing an annotation takes no system call.
    let annotate = || {
        with_guard(|sp| declarations::annotate(code::SANDBOX, &[], sp));
    };
    match moment {
        Moment::Before { is_strict } => {
            if is_strict {
                annotate();
                // Events have times.
                sys::forget_thread_id();
                with_guard(attach::detach_thread);
            } else if session::is_on() {
                with_guard(attach::prepare_for_sandbox);
            }
            libraries::sandbox_begins();
        }
        Moment::Refused => libraries::sandbox_refused(),
        Moment::Entered { is_strict: false } => annotate(),
        Moment::Entered { is_strict: true } => {}
    }
}
