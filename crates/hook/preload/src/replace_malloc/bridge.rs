//! The bridge of a library: a C++ object by which the program reaches the library, besides its
//! malloc functions. `replace_init` hands it out.
//!
//! The program gets it by `get_bridge()`, and calls its virtual functions itself, after comparing
//! the version in it with the one that it needs. In Firefox 140 the object is a pointer to the
//! virtual table, followed by the version as an `int`. The virtual functions are, in this order:
//! `GetDMDFuncs` (since version 1), `InitDebugFd` (2), `RegisterHook` (3).

use core::arch::naked_asm;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::{restore_vectors, save_vectors};
use heapledger_interpose::next::Objects;

use super::{Init, Table};
use crate::linker::iterate_objects;

/// The bridge that was handed out last; null if there is none.
static BRIDGE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Asks a library for its functions and its bridge. Returns `ours` with the functions that it
/// replaces.
///
/// # Safety
///
/// `init` is a function of a library of the protocol, which may be called now.
pub(super) unsafe fn ask(init: Init, ours: Table) -> Table {
    let (mut table, mut bridge) = (ours, BRIDGE.load(Ordering::Acquire));
    // SAFETY: both are variables of ours, which live until the function returns; the table is
    // complete.
    unsafe { init(&raw mut table, &raw mut bridge) };
    BRIDGE.store(bridge, Ordering::Release);
    table
}

/// Returns the bridge that was handed out last; null if there is none.
pub(super) fn last() -> *mut c_void {
    BRIDGE.load(Ordering::Acquire)
}

/// Returns the `get_bridge` of another object that this caller means: the one of its own object, or
/// the first. 0 if there is none.
extern "C" fn other_definition(caller: usize) -> usize {
    // The functions that start this object look it up. Only constructors that precede all
    // allocations come here before that.
    let Some(iterate) = iterate_objects() else { return 0 };
    let search = |objects: &Objects<'_>| {
        let (mut first, mut own) = (0, 0);
        objects.definitions(c"get_bridge", |definition| {
            if first == 0 {
                first = definition.address;
            }
            if (definition.object..objects.next_object(definition.object)).contains(&caller) {
                own = definition.address;
            }
        });
        if own == 0 { first } else { own }
    };
    // SAFETY: the C library's function of this name, by which it was looked up.
    unsafe { Objects::locked(iterate, search) }.unwrap_or(0)
}

/// `ReplaceMallocBridge* get_bridge(void)` of the protocol. Returns null if no library has handed
/// out a bridge.
///
/// The name is a common one. If the program or one of its libraries defines a function of this
/// name, the call goes there with its arguments, whatever these are.
///
/// # Safety
///
/// The contract of the other function, if there is one.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn get_bridge() {
    naked_asm!(
        // All registers that may hold arguments.
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        "sub rsp, 128",
        save_vectors!(),
        "mov rdi, [rsp + 184]",
        "call {other_definition}",
        "mov r11, rax",
        restore_vectors!(),
        "add rsp, 128",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "mov rax, [rip + {bridge}]",
        "ret",
        other_definition = sym other_definition,
        bridge = sym BRIDGE,
    )
}
