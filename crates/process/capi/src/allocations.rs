//! Allocation contexts and registers of `heapledger/dumps.h`.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use heapledger_annotate::{Context, untracked};
use heapledger_dump::{AllocationContext, AllocationRegister};

/// `heapledger_allocation_context`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CContext {
    /// The number of the scopes; 0: none.
    pub(crate) scopes: u32,
    reserved: u32,
    /// Static, or null.
    pub(crate) type_name: *const c_char,
}

/// `heapledger_allocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CAllocation {
    address: *const c_void,
    size: usize,
    context: CContext,
}

/// `heapledger_allocation_register`.
///
/// *Only shared*: between [`new`] and [`delete`] a register is a live value in a box, and all other
/// functions make shared references of it only. Several threads may, since the type is `Sync`.
pub type CRegister = AllocationRegister;

/// Numbers of scopes, from 1. They are kept: there are as many as places in the program that
/// allocate.
#[derive(Default)]
struct Numbers {
    all: Vec<Context>,
    numbers: HashMap<Context, u32>,
}

static NUMBERS: Mutex<Option<Numbers>> = Mutex::new(None);

fn numbers() -> MutexGuard<'static, Option<Numbers>> {
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(scopes: &Context) -> u32 {
    if scopes.is_none() {
        return 0;
    }
    let mut guard = numbers();
    let Numbers { all, numbers } = guard.get_or_insert_default();
    *numbers.entry(scopes.clone()).or_insert_with(|| {
        all.push(scopes.clone());
        all.len() as u32
    })
}

/// Returns the scopes with this number; none if there is no such.
pub(crate) fn scopes(number: u32) -> Context {
    let index = (number as usize).checked_sub(1);
    numbers().as_ref().and_then(|numbers| numbers.all.get(index?).cloned()).unwrap_or_default()
}

/// Returns the number of the scopes that the calling thread is in.
pub(crate) extern "C" fn current() -> u32 {
    let _untracked = untracked::enter();
    number(&Context::current())
}

pub(crate) extern "C" fn new() -> *mut CRegister {
    let _untracked = untracked::enter();
    Box::into_raw(Box::default())
}

/// # Safety
///
/// `register` is null, or what [`new`] returned, and is not used any more.
pub(crate) unsafe extern "C" fn delete(register: *mut CRegister) {
    if !register.is_null() {
        let _untracked = untracked::enter();
        // SAFETY: `Box::from_raw` requires a box that `Box::into_raw` gave away, once. By this
        // function's `# Safety` this is the one that `new` returned, and nobody uses it after this.
        drop(unsafe { Box::from_raw(register) });
    }
}

/// # Safety
///
/// `register` is null or a register that is not deleted. `context` is null or a context that nobody
/// changes during the call, whose type is null or a static text that ends with NUL.
pub(crate) unsafe extern "C" fn insert(
    register: *const CRegister,
    address: *const c_void,
    size: usize,
    context: *const CContext,
) {
    // SAFETY: `as_ref` requires null, or a live, aligned value of which nobody has a `&mut`. By
    // this function's `# Safety` the register is not deleted, and *only shared* (`CRegister`). The
    // same section says that the context is one, which nobody changes during the call.
    let (Some(register), context) = (unsafe { (register.as_ref(), context.as_ref()) }) else { return };
    let _untracked = untracked::enter();
    let context = context.map_or_else(AllocationContext::default, |context| AllocationContext {
        scopes: scopes(context.scopes),
        type_name: if context.type_name.is_null() {
            None
        } else {
            // SAFETY: `CStr::from_ptr` requires a text that ends with NUL and never changes, since
            // the result is `'static`. By this function's `# Safety` the type is such a text,
            // unless it is null, which the condition excludes.
            unsafe { CStr::from_ptr(context.type_name) }.to_str().ok()
        },
    });
    register.insert(address.addr() as u64, size as u64, &context);
}

/// # Safety
///
/// `register` is null, or a register that is not deleted.
pub(crate) unsafe extern "C" fn remove(register: *const CRegister, address: *const c_void) -> c_int {
    // SAFETY: `as_ref` requires null, or a live value of which nobody has a `&mut`. The register is
    // *only shared* (`CRegister`): by this function's `# Safety` it is null or not deleted.
    unsafe { register.as_ref() }.is_some_and(|register| register.remove(address.addr() as u64)).into()
}

/// Writes the first so many blocks, and returns how many there are.
///
/// # Safety
///
/// `register` is null or a register that is not deleted. `into` is null, or an array of `count`
/// elements that may be written, and that nobody else uses during the call.
pub(crate) unsafe extern "C" fn blocks(register: *const CRegister, into: *mut CAllocation, count: usize) -> usize {
    // SAFETY: `as_ref` requires null, or a live value of which nobody has a `&mut`. The register is
    // *only shared* (`CRegister`): by this function's `# Safety` it is null or not deleted.
    let Some(register) = (unsafe { register.as_ref() }) else { return 0 };
    let _untracked = untracked::enter();
    let mut found = 0;
    for (address, size, context) in register.iter() {
        if found < count && !into.is_null() {
            let context =
                CContext { scopes: number(&context.scopes), reserved: 0, type_name: type_name(context.type_name) };
            let block =
                CAllocation { address: std::ptr::without_provenance(address as usize), size: size as usize, context };
            // SAFETY: `add` and `write` require an aligned element of an array that may be written.
            // By this function's `# Safety` `into` has `count` elements; `found` is below that.
            // Elements have no destructors, so it does not matter what they hold before.
            unsafe { into.add(found).write(block) };
        }
        found += 1;
    }
    found
}

/// The text that [`insert`] was given: it ends with NUL.
fn type_name(name: Option<&'static str>) -> *const c_char {
    name.map_or(std::ptr::null(), |name| name.as_ptr().cast())
}
