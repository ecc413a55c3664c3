use std::backtrace::Backtrace;
use std::string::{String, ToString};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use heapledger_wire::entries::EntryKind;

use super::*;
use crate::arch;

/// A [`Site`], its words in their order.
type Words = [AtomicU64; 5];

const _: () = assert!(Site::LENGTH == size_of::<Words>());

/// Defines a stub as the tool makes it, and a function that calls it. A test sets the site's words
/// and the thunk's address first; each test has a stub of its own.
macro_rules! stub {
    ($name:ident, $site:ident, $thunk:ident) => {
        static $site: Words = [const { AtomicU64::new(0) }; 5];
        static $thunk: AtomicU64 = AtomicU64::new(0);

        #[unsafe(naked)]
        unsafe extern "C" fn $name(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
            naked_asm!(
                "lea r11, [rip + {site}]",
                "jmp qword ptr [rip + {thunk}]",
                site = sym $site,
                thunk = sym $thunk,
            )
        }
    };
}

type Function = extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;

/// Prepares a stub for an entry of a kind that changes all registers.
fn prepare(site: &Words, thunk: &AtomicU64, kind: EntryKind, functions: [Function; 3]) {
    let [pass, original, nothrow] = functions.map(|function| (function as *const ()).expose_provenance() as u64);
    for (word, value) in site.iter().zip([pass, original, nothrow, 0, u64::from(kind.number())]) {
        word.store(value, Ordering::Relaxed);
    }
    thunk.store(Thunk::of(kind).address(thunk_address()), Ordering::Relaxed);
}

/// A function that must not be called.
extern "C" fn never(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    std::process::abort()
}

extern "C" fn fails(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    0
}

/// Returns a number that all arguments are part of.
extern "C" fn combined(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
    [a, b, c, d, e, f].iter().fold(0, |all, argument| all * 10 + argument)
}

fn marks() -> [u64; 2] {
    [arch::outermost(), arch::site()]
}

#[test]
fn thunks_are_where_stubs_lead() {
    let code_at = |thunk: Thunk| {
        let code = core::ptr::with_exposed_provenance::<[u8; 3]>(thunk.address(thunk_address()) as usize);
        // SAFETY: the thunks are code of this program, which is readable.
        unsafe { code.read() }
    };
    let whole = [Thunk::Malloc, Thunk::Free, Thunk::New, Thunk::Calloc, Thunk::Realloc, Thunk::Aligned];
    for thunk in whole {
        // mov r10, [rip + …]; or with a constant, if this is part of an executable.
        let begin = code_at(thunk);
        assert!([[0x4c, 0x8b, 0x15], [0x49, 0xc7, 0xc2]].contains(&begin), "{thunk:?}: {begin:x?}");
    }
    for thunk in [Thunk::Preserving, Thunk::Other] {
        let [first, ..] = code_at(thunk);
        assert!([0xe9, 0xeb].contains(&first), "{thunk:?}: {first:#x}");
    }
}

stub!(malloc_stub, MALLOC_SITE, MALLOC_THUNK);

/// A call inside of the call goes on in the original, at `pass`.
#[test]
fn an_allocation_is_made_while_the_thread_is_marked() {
    extern "C" fn original(a: u64, b: u64, c: u64, _: u64, _: u64, _: u64) -> u64 {
        assert_eq!(marks()[1], (&raw const MALLOC_SITE).expose_provenance() as u64);
        // SAFETY: its thunk leads to `combined`, or to this function.
        let nested = unsafe { malloc_stub(a, b, c, 4, 5, 6) };
        assert_eq!(nested, 123_456);
        nested + 1
    }
    prepare(&MALLOC_SITE, &MALLOC_THUNK, EntryKind::Malloc, [combined, original, never]);
    // SAFETY: its thunk leads to the functions above.
    assert_eq!(unsafe { malloc_stub(1, 2, 3, 0, 0, 0) }, 123_457);
    assert_eq!(marks(), [0, 0]);
}

stub!(free_stub, FREE_SITE, FREE_THUNK);

#[test]
fn a_free_gets_its_arguments() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    extern "C" fn original(a: u64, b: u64, c: u64, _: u64, _: u64, _: u64) -> u64 {
        assert_ne!(marks(), [0, 0]);
        SEEN.store(combined(0, 0, 0, a, b, c), Ordering::Relaxed);
        0
    }
    prepare(&FREE_SITE, &FREE_THUNK, EntryKind::FreeAlignedSized, [never, original, never]);
    // SAFETY: its thunk leads to the function above.
    unsafe { free_stub(7, 8, 9, 0, 0, 0) };
    assert_eq!((SEEN.load(Ordering::Relaxed), marks()), (789, [0, 0]));
}

stub!(new_stub, NEW_SITE, NEW_THUNK);

/// The original throws through its own frames: it is no nested call of ours.
#[test]
fn an_operator_that_fails_goes_on_in_the_original() {
    extern "C" fn original(size: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
        assert_eq!(marks(), [0, 0]);
        size + 1
    }
    prepare(&NEW_SITE, &NEW_THUNK, EntryKind::New, [original, never, fails]);
    // SAFETY: its thunk leads to the functions above.
    assert_eq!(unsafe { new_stub(40, 0, 0, 0, 0, 0) }, 41);
    extern "C" fn nothrow(size: u64, nothrow: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
        assert_ne!(nothrow, 0);
        size + 2
    }
    prepare(&NEW_SITE, &NEW_THUNK, EntryKind::NewArray, [never, never, nothrow]);
    // SAFETY: its thunk leads to the functions above.
    assert_eq!(unsafe { new_stub(40, 0, 0, 0, 0, 0) }, 42);
    assert_eq!(marks(), [0, 0]);
}

stub!(other_stub, OTHER_SITE, OTHER_THUNK);

#[test]
fn other_calls_get_all_arguments() {
    prepare(&OTHER_SITE, &OTHER_THUNK, EntryKind::AlignedRealloc, [never, combined, never]);
    // SAFETY: its thunk leads to the function above.
    assert_eq!(unsafe { other_stub(1, 2, 3, 4, 5, 6) }, 123_456);
    prepare(&OTHER_SITE, &OTHER_THUNK, EntryKind::NewAligned, [combined, never, fails]);
    // SAFETY: its thunk leads to the functions above.
    assert_eq!(unsafe { other_stub(1, 2, 3, 4, 5, 6) }, 123_456);
    assert_eq!(marks(), [0, 0]);
}

stub!(few_stub, FEW_SITE, FEW_THUNK);

/// Kinds whose functions have three arguments, or four.
#[test]
fn calls_with_few_arguments_get_them() {
    extern "C" fn original(a: u64, b: u64, c: u64, d: u64, _: u64, _: u64) -> u64 {
        assert_eq!(marks()[1], (&raw const FEW_SITE).expose_provenance() as u64);
        let has_four = FEW_SITE[4].load(Ordering::Relaxed) == u64::from(EntryKind::Rallocx.number());
        if has_four { combined(0, 0, a, b, c, d) } else { combined(0, 0, 0, a, b, c) }
    }
    for (kind, expected) in [(EntryKind::Calloc, 123), (EntryKind::MallocAligned, 123), (EntryKind::Rallocx, 1234)] {
        prepare(&FEW_SITE, &FEW_THUNK, kind, [never, original, never]);
        // SAFETY: its thunk leads to the function above.
        assert_eq!(unsafe { few_stub(1, 2, 3, 4, 0, 0) }, expected, "{kind:?}");
        assert_eq!(marks(), [0, 0]);
    }
}

static SEEN: Mutex<String> = Mutex::new(String::new());

/// The allocator's function: looks at its callers, as a heap profiler inside of it does.
extern "C" fn looks(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    *SEEN.lock().unwrap() = Backtrace::force_capture().to_string();
    5
}

static PRESERVING_SITE: Words = [const { AtomicU64::new(0) }; 5];

#[unsafe(naked)]
unsafe extern "C" fn preserving_stub(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
    naked_asm!("push r11", "lea r11, [rip + {site}]", "jmp {thunk}", site = sym PRESERVING_SITE, thunk = sym preserving)
}

stub!(looking_stub, LOOKING_SITE, LOOKING_THUNK);

#[inline(never)]
fn caller_of_a_redirected_entry(stub: unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64) -> u64 {
    // SAFETY: the site's functions are C functions, as the stub requires.
    core::hint::black_box(unsafe { stub(8, 0, 0, 0, 0, 0) })
}

#[test]
fn unwinders_find_the_caller_from_inside_of_the_allocator() {
    let check = |stub| {
        SEEN.lock().unwrap().clear();
        assert_eq!(caller_of_a_redirected_entry(stub), 5);
        let seen = SEEN.lock().unwrap();
        assert!(seen.contains("caller_of_a_redirected_entry"), "{seen}");
        assert!(seen.contains("unwinders_find_the_caller"), "{seen}");
    };
    prepare(&PRESERVING_SITE, &LOOKING_THUNK, EntryKind::Malloc, [never, looks, never]);
    check(preserving_stub);
    let kinds = [EntryKind::Calloc, EntryKind::Realloc, EntryKind::MallocAligned, EntryKind::Memalign];
    for kind in [EntryKind::Malloc, EntryKind::New].into_iter().chain(kinds) {
        prepare(&LOOKING_SITE, &LOOKING_THUNK, kind, [never, looks, looks]);
        check(looking_stub);
    }
}
