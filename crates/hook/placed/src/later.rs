//! Libraries that the program opens: the recorder redirects their allocators before any of their
//! code runs, from outside. Here a thread only tells it, and waits until that is done.

use core::sync::atomic::{AtomicU32, Ordering};

use heapledger_core::sandbox;
use heapledger_recorder::connect::request_redirection;
use heapledger_recorder::{process, session};
use heapledger_wire::linker::{RT_ADD, RT_CONSISTENT};

use crate::start::{heapledger_placed_starts, linker_state, session_to_be_joined};

/// The function that the dynamic linker calls. It is not to be called otherwise.
pub(crate) const EVENT: unsafe extern "C" fn() = linker_event;

heapledger_redirect::linker_event!(linker_event calls linker_calls);

/// `r_state` at the last call.
static LAST: AtomicU32 = AtomicU32::new(RT_CONSISTENT);

/// Handles a call of the dynamic linker, which is in the middle of a `dlopen` or `dlclose`.
extern "C" fn linker_calls() {
    let state = linker_state();
    let has_loaded = match state {
        Some(state) => LAST.swap(state, Ordering::Relaxed) == RT_ADD && state == RT_CONSISTENT,
        // musl calls only when it has loaded modules.
        None => true,
    };
    // In a vfork child, it would be the parent's memory.
    if !has_loaded || sandbox::is_entered() || session_to_be_joined().is_some() || process::is_in_vfork_child() {
        return;
    }
    // musl's linker calls no entry that is redirected.
    heapledger_placed_starts();
    if session::is_on() {
        request_redirection();
    }
}
