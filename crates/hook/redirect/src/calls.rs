//! Makes the calls of redirected entries, and notifies the observers.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use heapledger_core::Api;
use heapledger_core::hooks::dispatch_path::{self, REQUESTED};
use heapledger_core::hooks::{BlockAllocator, Caller, Pointer, UsableSize, dispatch, notify};
use heapledger_wire::entries::{ARGUMENTS_MAX, Effect, EntryKind, Layout};
use heapledger_wire::redirection::{Site, Thunk};

use crate::arch::{self, Next, Registers};

mod plain;

pub(crate) use plain::{aligned, calloc, free, malloc, new, realloc};

/// The function that [`set_start`] has set.
static START: AtomicPtr<()> = AtomicPtr::new(FIRST_START);

#[cfg(not(placed))]
const FIRST_START: *mut () = ptr::null_mut();
/// A placed library has no code that runs before the first call: it defines this function.
#[cfg(placed)]
const FIRST_START: *mut () = heapledger_placed_starts as *mut ();

#[cfg(placed)]
unsafe extern "Rust" {
    safe fn heapledger_placed_starts();
}

/// Sets the function that starts this loaded object, if a redirected entry is called before
/// anything else. It may be called more than once, and returns when the object has started.
pub fn set_start(start: fn()) {
    START.store(start as *mut (), Ordering::Release);
}

/// The function that [`set_request_handler`] has set, or null.
static REQUEST_HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Calls `handler` at the next outermost call of a redirected entry, and at every later one, while
/// [`REQUESTED`] is not 0: a program that an armed one has started may make no other calls.
pub fn set_request_handler(handler: fn()) {
    REQUEST_HANDLER.store(handler as *mut (), Ordering::Release);
}

/// Returns to the caller, with the result in the saved registers.
const RETURN: Next = Next { goes_on: 0, pass: 0 };

/// Makes an outermost call of an entry of any kind. Called by two thunks only, with the saved
/// registers, the stub's site, and the caller's frame pointer.
///
/// # Safety
///
/// *Redirected call*: `site` is the site of a stub that the tool made for an entry of its kind,
/// which a call has just reached with these registers; `rbp` is the caller's frame pointer. All
/// functions here that thunks call require this.
pub(crate) unsafe extern "C" fn call(registers: &mut Registers, site: &Site, rbp: u64) -> Next {
    prepare();
    let caller = Caller { slot: ptr::from_ref(&registers.return_address).expose_provenance() as u64, rbp };
    let call = Call { site, mark: registers.mark(), caller };
    // A kind of another version of the tool: nobody is notified.
    let kind = EntryKind::from_number(site.kind);
    // SAFETY: all of these require a call of an entry of the site's kind, with the arguments of the
    // registers: this function's `# Safety` gives that. The kinds of a thunk have the layout that
    // its function assumes, which a test checks.
    unsafe {
        match kind.map(|kind| (kind, Thunk::of(kind))) {
            Some((_, Thunk::Malloc)) => registers.rax = call.malloc(site.original, &registers.arguments),
            Some((_, Thunk::New)) => {
                registers.rax = call.malloc(site.nothrow, &with_nothrow(&registers.arguments, 1, site));
                return go_on_unless(registers.rax, site);
            }
            // A function without a result changes no register that the caller may rely on: rax is
            // not set.
            Some((_, Thunk::Free)) => call.free(registers),
            Some((kind, _)) => return call.any(&kind.layout(), registers),
            None => registers.rax = original(site.original, &registers.arguments),
        }
    }
    RETURN
}

/// Does what may have to be done before a call is made.
#[inline(always)]
fn prepare() {
    if !is_started() {
        call_function(&START);
    }
    if REQUESTED.load(Ordering::Relaxed) != 0 {
        call_function(&REQUEST_HANDLER);
    }
}

/// True if this loaded object has started.
#[inline(always)]
fn is_started() -> bool {
    // Where all calls come through here, the hook table makes none.
    if cfg!(placed) { dispatch_path::is_initialised() } else { dispatch::functions().is_some() }
}

/// The first address of the allocator's own code, and its length.
static OWN_CODE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Does not notify the observers of frees that code between two addresses makes: the allocator
/// frees blocks there that have been freed before.
pub fn set_own_code(start: u64, end: u64) {
    let [first, length] = &OWN_CODE;
    first.store(start, Ordering::Relaxed);
    length.store(end.saturating_sub(start), Ordering::Relaxed);
}

/// True if an address is in the allocator's own code. An allocator that the dynamic linker finds
/// calls its functions without it.
#[inline(always)]
fn is_own_code(address: u64) -> bool {
    let [first, length] = &OWN_CODE;
    cfg!(placed) && address.wrapping_sub(first.load(Ordering::Relaxed)) < length.load(Ordering::Relaxed)
}

/// Returns the allocator of the block that this thread is notifying the observers of.
pub(crate) fn block_allocator() -> BlockAllocator {
    let site: *const Site = ptr::with_exposed_provenance(arch::site() as usize);
    // SAFETY: null, or the site of the call that this thread is in: it is in a mapping that nobody
    // writes to and that stays.
    let Some(site) = (unsafe { site.as_ref() }) else { return BlockAllocator::Usual };
    // SAFETY: the tool gives the address of the allocator's function for usable sizes, which takes
    // a block and returns a size, or 0, which is `None`.
    BlockAllocator::Redirected(unsafe {
        core::mem::transmute::<*const (), Option<UsableSize>>(ptr::with_exposed_provenance(site.usable as usize))
    })
}

/// Calls the function in [`START`] or [`REQUEST_HANDLER`], if there is one.
#[cold]
#[inline(never)]
fn call_function(cell: &AtomicPtr<()>) {
    let function = cell.load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: `transmute` requires that the pointer is a `fn()`. It is not null, and both
        // statics are stored to only by `set_start` and `set_request_handler`, from a `fn()`.
        unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
    }
}

/// Returns the arguments with a reference to a `std::nothrow_t` at an index: an object without
/// contents, whose address alone is passed.
#[inline(always)]
fn with_nothrow(arguments: &Arguments, index: usize, site: &Site) -> Arguments {
    let mut arguments = *arguments;
    if let Some(argument) = arguments.get_mut(index) {
        *argument = ptr::from_ref(site).expose_provenance() as u64;
    }
    arguments
}

/// Returns if there is a block; otherwise the original is to fail in its own way.
#[inline(always)]
fn go_on_unless(block: u64, site: &Site) -> Next {
    if block == 0 { Next { goes_on: 1, pass: site.pass } } else { RETURN }
}

/// Notifies the observers of an allocation that failed: the bytes, the alignment and the number of
/// elements that were asked for.
///
/// # Safety
///
/// See [`Call::returned`].
#[cold]
#[inline(never)]
unsafe fn failed(api: Api, size: u64, [alignment, count]: [u64; 2], caller: Caller) {
    // SAFETY: `notify::failed` asks for the same as this function.
    unsafe { notify::failed(api, size as usize, alignment as usize, count as usize, caller) };
}

type Arguments = [u64; ARGUMENTS_MAX as usize];

#[inline(always)]
fn pointer(address: u64) -> Pointer {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Calls a function of the allocator by its address.
///
/// # Safety
///
/// It is a trampoline of the site, whose entry the program has called with these arguments, or that
/// of the entry's nothrow sibling.
#[inline(always)]
unsafe fn original(address: u64, arguments: &Arguments) -> u64 {
    type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: by this function's `# Safety` the address is that of a C function. It takes at most
    // six integers, in registers, and ignores those that it does not have (System V psABI). A
    // result that it does not have is whatever is in rax.
    unsafe {
        core::mem::transmute::<*const (), Function>(ptr::with_exposed_provenance(address as usize))(a, b, c, d, e, f)
    }
}

/// A call of a redirected entry.
struct Call<'a> {
    site: &'a Site,
    /// The thread's word while the call is the outermost one.
    mark: u64,
    caller: Caller,
}

impl Call<'_> {
    /// Calls a function of the allocator, and marks the thread again.
    ///
    /// # Safety
    ///
    /// See [`original`] and [`call`].
    #[inline(always)]
    unsafe fn original(&self, function: u64, arguments: &Arguments) -> u64 {
        // SAFETY: `original` and `mark_again` require what this function's `# Safety` gives.
        unsafe {
            let result = original(function, arguments);
            self.mark_again();
            result
        }
    }

    /// Marks the thread again: while the allocator was at work, a signal handler on another stack
    /// may have made calls, which looked like outermost ones, and taken the mark away.
    ///
    /// # Safety
    ///
    /// See [`call`].
    #[inline(always)]
    unsafe fn mark_again(&self) {
        // SAFETY: `arch::mark_again` requires the caller of a call that this thread is in: this
        // function's `# Safety` gives that.
        unsafe { arch::mark_again(self.caller, self.mark, ptr::from_ref(self.site).expose_provenance() as u64) };
    }

    /// Makes a call of a plain allocation of as many bytes as the first argument says. Returns the
    /// block.
    ///
    /// # Safety
    ///
    /// See [`original`] and [`call`].
    #[inline(always)]
    unsafe fn malloc(&self, function: u64, arguments: &Arguments) -> u64 {
        // SAFETY: `original` requires what this function's `# Safety` gives, and `returned` the
        // call that has been made.
        unsafe {
            let block = original(function, arguments);
            self.returned(block, arguments[0]);
            block
        }
    }

    /// Marks the thread again, and notifies the observers of the result of a plain allocation: a
    /// block, or null.
    ///
    /// # Safety
    ///
    /// See [`call`]: the call has been made, with this many bytes.
    #[inline(always)]
    unsafe fn returned(&self, block: u64, size: u64) {
        // SAFETY: `mark_again` and the notifications require the live calling frame of this thread,
        // which the thunk has passed, and a call that has been made as told: this function's `#
        // Safety` gives that.
        unsafe {
            self.mark_again();
            match block {
                0 => failed(Api::Malloc, size, [0, 0], self.caller),
                _ => notify::malloc(pointer(block), size as usize, self.caller),
            }
        }
    }

    /// Makes a call that frees the block of the first argument, unless that is null. The observers
    /// are notified before.
    ///
    /// # Safety
    ///
    /// See [`original`] and [`call`].
    #[inline(always)]
    unsafe fn free(&self, Registers { arguments, return_address, .. }: &Registers) {
        // SAFETY: the notification requires the live calling frame of this thread, which the thunk
        // has passed, and a call that is about to be made: it is, just below. `original` requires
        // what this function's `# Safety` gives.
        unsafe {
            if arguments[0] != 0 && !is_own_code(*return_address) {
                notify::free(pointer(arguments[0]), self.caller);
            }
            original(self.site.original, arguments);
        }
    }

    /// Makes a call of any kind, as its layout says.
    ///
    /// # Safety
    ///
    /// See [`call`]: the layout is that of the site's kind.
    #[inline(never)]
    unsafe fn any(&self, layout: &Layout, registers: &mut Registers) -> Next {
        let mut arguments = registers.arguments;
        // SAFETY: all of these require a call of an entry with this layout.
        unsafe {
            match layout.effect {
                Effect::Allocate if layout.throws => {
                    // The kinds with a sibling that come here are C++'s aligned operators, which a
                    // test checks: the third argument of their siblings is a `nothrow_t`.
                    arguments = with_nothrow(&arguments, 2, self.site);
                    let block = self.original(self.site.nothrow, &arguments);
                    self.allocated(layout, &arguments, block);
                    registers.rax = block;
                    return go_on_unless(block, self.site);
                }
                Effect::Allocate => {
                    registers.rax = self.original(self.site.original, &arguments);
                    self.allocated(layout, &arguments, registers.rax);
                }
                Effect::AllocateOut => {
                    registers.rax = self.original(self.site.original, &arguments);
                    let out = layout.out.and_then(|out| arguments.get(usize::from(out))).copied().unwrap_or(0);
                    // The result is an `int`: the upper half of the register is undefined.
                    let block = match (registers.rax as u32, out) {
                        (0, 1..) => pointer(out).cast::<u64>().read_unaligned(),
                        _ => 0,
                    };
                    self.allocated(layout, &arguments, block);
                }
                Effect::AllocateText => {
                    registers.rax = self.original(self.site.original, &arguments);
                    self.text_allocated(registers.rax);
                }
                Effect::Reallocate => registers.rax = self.reallocate(layout, &arguments),
                Effect::Expand | Effect::ResizeInPlace => registers.rax = self.resize(layout, &arguments),
                Effect::Free => {
                    let block = layout.block_of(&arguments).unwrap_or(0);
                    if block != 0 {
                        notify::free(pointer(block), self.caller);
                    }
                    self.original(self.site.original, &arguments);
                }
                Effect::UsableSize => registers.rax = self.original(self.site.original, &arguments),
            }
        }
        RETURN
    }

    /// Notifies that a call returned a block, or none.
    ///
    /// # Safety
    ///
    /// See [`call`]: the call has been made, and returned `block`.
    unsafe fn allocated(&self, layout: &Layout, arguments: &Arguments, block: u64) {
        let (caller, api) = (self.caller, layout.api);
        let size = layout.requested(arguments).unwrap_or(u64::MAX) as usize;
        let alignment = layout.requested_alignment(arguments).unwrap_or(0) as usize;
        let count = layout.count.and_then(|count| arguments.get(usize::from(count))).copied().unwrap_or(0) as usize;
        // SAFETY: the notifications require the live calling frame of this thread, and a call made
        // as told: this function's `# Safety` gives both.
        unsafe {
            match (block, api) {
                (0, _) => notify::failed(api, size, alignment, count, caller),
                (_, Api::Calloc) => {
                    notify::calloc(pointer(block), count, size.checked_div(count).unwrap_or(0), caller);
                }
                (_, Api::Malloc) => notify::malloc(pointer(block), size, caller),
                _ => notify::aligned(api, pointer(block), alignment, size, caller),
            }
        }
    }

    /// Notifies that a call returned a block with a text, or none.
    ///
    /// # Safety
    ///
    /// See [`call`]: the call has been made, and returned `block`.
    unsafe fn text_allocated(&self, block: u64) {
        // SAFETY: the block is new, and has a text with a NUL at its end, by the contract of
        // `strdup`. The notifications require the live calling frame of this thread, and a call
        // made as told: this function's `# Safety` gives both.
        unsafe {
            match block {
                0 => notify::failed(Api::Malloc, 0, 0, 0, self.caller),
                _ => {
                    let length = CStr::from_ptr(pointer(block).cast()).count_bytes() + 1;
                    notify::malloc(pointer(block), length, self.caller);
                }
            }
        }
    }

    /// Makes a call that moves or resizes a block. Returns the block's new address, or 0.
    ///
    /// # Safety
    ///
    /// See [`call`].
    unsafe fn reallocate(&self, layout: &Layout, arguments: &Arguments) -> u64 {
        let old = layout.block_of(arguments).unwrap_or(0);
        // SAFETY: `original` requires the arguments of the call. The notifications require the live
        // calling frame of this thread, and a call made as told: the old block is live before the
        // call, and the new one has been returned after it.
        unsafe {
            // The product of an array's sizes overflows: the call fails, and nothing is freed,
            // unless the function says so.
            let Some(size) = layout.requested(arguments) else {
                let block = self.original(self.site.original, arguments);
                notify::failed(layout.api, usize::MAX, 0, 0, self.caller);
                return block;
            };
            if old != 0 {
                notify::realloc_begins(layout.api, pointer(old), self.caller);
            }
            let block = self.original(self.site.original, arguments);
            match (layout.frees_on_failure && block == 0, layout.count) {
                // A reallocation to no bytes that returns no block has freed the old one.
                (true, _) if old != 0 => notify::realloc_ends(pointer(old), pointer(0), 0, self.caller),
                (_, Some(count)) if layout.api == Api::Reallocarray => {
                    let count = arguments.get(usize::from(count)).copied().unwrap_or(0);
                    let each = size.checked_div(count).unwrap_or(0) as usize;
                    notify::reallocarray_ends(pointer(old), pointer(block), count as usize, each, self.caller);
                }
                _ => notify::realloc_ends(pointer(old), pointer(block), size as usize, self.caller),
            }
            block
        }
    }

    /// Makes a call that resizes a block where it is. Returns the result.
    ///
    /// # Safety
    ///
    /// See [`call`].
    unsafe fn resize(&self, layout: &Layout, arguments: &Arguments) -> u64 {
        // SAFETY: `original` requires the arguments of the call.
        let result = unsafe { self.original(self.site.original, arguments) };
        let (Some(block), Some(size)) = (layout.block_of(arguments), layout.requested(arguments)) else {
            return result;
        };
        let is_resized = match layout.effect {
            // The usable size: smaller than what was asked for if the block could not grow.
            Effect::ResizeInPlace => result >= size,
            _ => result != 0,
        };
        if is_resized && block != 0 {
            // SAFETY: the notifications require the live calling frame of this thread, and a call
            // made as told. The block has been live all the time, so no other thread can have got
            // its address, and both halves may be told after the call.
            unsafe {
                notify::realloc_begins(layout.api, pointer(block), self.caller);
                notify::realloc_ends(pointer(block), pointer(block), size as usize, self.caller);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests;
