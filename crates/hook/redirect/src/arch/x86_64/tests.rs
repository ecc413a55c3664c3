use std::backtrace::Backtrace;
use std::string::{String, ToString};
use std::sync::Mutex;

use heapledger_wire::entries::EntryKind;

use super::*;

static SEEN: Mutex<String> = Mutex::new(String::new());
static BLOCK: u64 = 0;
/// The site that the stub below leads to: made by the test, with the address of [`original`].
static mut SITE: Site =
    Site { pass: 0, original: 0, nothrow: 0, usable: 0, kind: EntryKind::Malloc as u8, reserved: [0; 7] };

/// The allocator's function: looks at its callers, as a heap profiler inside of it does.
extern "C" fn original() -> *const u64 {
    *SEEN.lock().unwrap() = Backtrace::force_capture().to_string();
    &raw const BLOCK
}

/// A stub, as the tool makes it.
#[unsafe(naked)]
unsafe extern "C" fn stub(size: usize) -> *const u64 {
    naked_asm!("push r11", "lea r11, [rip + {site}]", "jmp {thunk}", site = sym SITE, thunk = sym redirected)
}

#[inline(never)]
fn caller_of_a_redirected_entry() -> *const u64 {
    // SAFETY: the site's original is a C function, as the stub requires.
    core::hint::black_box(unsafe { stub(8) })
}

#[test]
fn unwinders_find_the_caller_from_inside_of_the_allocator() {
    // SAFETY: nobody else refers to it: only this test calls the stub.
    unsafe { (&raw mut SITE.original).write((original as *const ()).expose_provenance() as u64) };
    assert_eq!(caller_of_a_redirected_entry(), &raw const BLOCK);
    let seen = SEEN.lock().unwrap();
    assert!(seen.contains("caller_of_a_redirected_entry"), "{seen}");
    assert!(seen.contains("unwinders_find_the_caller"), "{seen}");
}
