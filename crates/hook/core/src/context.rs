//! Contexts: the stack of named scopes that a thread of the program is in. The program keeps it,
//! hooks read it.
//!
//! All types have C layout: `heapledger.h` declares the same structures. A thread has at most one
//! [`ScopeStack`], in memory of the program's that lives as long as the thread; only that thread,
//! and hooks that run in it, access it. Everything that a stack refers to is static: names and
//! values are never freed or changed.
//!
//! The unsafe functions here take the **own stack** of the calling thread. That is a live, aligned
//! [`ScopeStack`] with two properties: no other thread accesses it, and no reference to it exists
//! while the function runs.
//!
//! Entering a scope stores a [`ScopeFrame`] and the depth; leaving it stores the depth. Neither
//! allocates, calls anything or can fail. A scope that is left by a jump (`longjmp`) is removed
//! when the scope around it is left.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// The number of frames that a stack holds. Scopes that are entered beyond are only counted: the
/// outermost frames are kept.
pub const DEPTH_MAX: usize = 128;
/// The number of bytes of a text that are reported; the rest is cut off.
pub const TEXT_MAX: usize = 1024;

/// A bit of [`ScopeStack::ignore`], set while code of Heapledger runs, whose blocks are not the
/// program's. Separate from the count of the program's own scopes, so that this bit alone can be
/// cleared while that code calls a function of the program.
pub const UNTRACKED: u32 = 1 << 31;

/// A text that lives for ever: the name of a scope, of a category or of a heap, or the value of a
/// scope.
///
/// The address identifies a name; readers merge equal texts.
///
/// # Contract of the fields
///
/// `text` is null or points to `length` bytes, `category` is null or points to a [`Category`]. Both
/// are static, and the bytes do not change.
#[derive(Debug)]
#[repr(C)]
pub struct Name {
    /// UTF-8, without terminator.
    pub text: *const u8,
    /// The length of the text in bytes.
    pub length: u32,
    /// Bits: [`Name::TASK`].
    pub flags: u32,
    /// The category that the scope belongs to; null for none.
    pub category: *const Category,
}

// SAFETY: everything that it points to is static and does not change, except for the category's
// switch, which is atomic.
unsafe impl Sync for Name {}
// SAFETY: a name owns nothing. It is numbers, and addresses of data that is static and may be read
// in any thread, by the contract of the fields.
unsafe impl Send for Name {}

impl Name {
    /// [`Name::flags`]: the scope is a task, work that threads take up, such as a request.
    pub const TASK: u32 = 1;

    /// Returns a name without category. A text whose length exceeds `u32` is cut off.
    pub const fn new(text: &'static str) -> Name {
        Name { text: text.as_ptr(), length: text.len() as u32, flags: 0, category: ptr::null() }
    }

    /// Returns the same name, in a category.
    pub const fn in_category(self, category: &'static Category) -> Name {
        Name { category, ..self }
    }

    /// Returns the same name, as that of a task.
    pub const fn of_task(self) -> Name {
        Name { flags: self.flags | Name::TASK, ..self }
    }

    /// Returns the first [`TEXT_MAX`] bytes of the text.
    pub fn bytes(&self) -> &'static [u8] {
        if self.text.is_null() {
            return &[];
        }
        let length = (self.length as usize).min(TEXT_MAX);
        // SAFETY: by the type's contract the text has `length` bytes, lives for ever, and does not
        // change.
        unsafe { core::slice::from_raw_parts(self.text, length) }
    }
}

/// A group of scopes that can be switched off and on while the program runs.
#[derive(Debug)]
#[repr(C)]
pub struct Category {
    /// The category's name.
    pub name: Name,
    /// 0 if its scopes are not entered.
    pub enabled: AtomicU32,
}

impl Category {
    /// Returns a category that is switched on.
    pub const fn new(name: &'static str) -> Category {
        Category { name: Name::new(name), enabled: AtomicU32::new(1) }
    }

    /// Returns a category that is switched off until the program enables it.
    pub const fn new_disabled(name: &'static str) -> Category {
        Category { name: Name::new(name), enabled: AtomicU32::new(0) }
    }

    /// Switches the category on or off, for scopes that are entered from now on, in all threads.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(u32::from(enabled), Ordering::Relaxed);
    }

    /// True if its scopes are entered.
    #[inline(always)]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed) != 0
    }
}

/// One entry of a stack.
///
/// # Contract of the fields
///
/// Both are null or point to a static [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ScopeFrame {
    /// The scope. Null for a barrier: frames further out are not part of the context.
    pub name: *const Name,
    /// The scope's value, such as `route=/users,method=GET`. Null for none.
    pub value: *const Name,
}

// SAFETY: everything that it points to is static and `Sync`.
unsafe impl Sync for ScopeFrame {}
// SAFETY: a frame owns nothing. It is two addresses of names that are static and `Sync`, by the
// contract of the fields.
unsafe impl Send for ScopeFrame {}

impl ScopeFrame {
    /// The barrier: frames further out are not part of the context.
    pub const BARRIER: ScopeFrame = ScopeFrame { name: ptr::null(), value: ptr::null() };

    /// Returns a scope without value.
    #[inline(always)]
    pub const fn new(name: &'static Name) -> ScopeFrame {
        ScopeFrame { name, value: ptr::null() }
    }

    /// Returns a scope with a value.
    #[inline(always)]
    pub const fn with_value(name: &'static Name, value: &'static Name) -> ScopeFrame {
        ScopeFrame { name, value }
    }
}

/// A thread's scopes, outermost first.
#[derive(Debug)]
#[repr(C)]
pub struct ScopeStack {
    /// The number of scopes that the thread is in. If it is more than [`DEPTH_MAX`], the innermost
    /// frames were not kept.
    pub depth: u32,
    /// Not 0 while allocations of the thread are not recorded: the number of scopes in which the
    /// program asks for that, and [`UNTRACKED`].
    pub ignore: u32,
    /// The frames; those below `depth` are in use.
    pub frames: [ScopeFrame; DEPTH_MAX],
}

impl Default for ScopeStack {
    fn default() -> ScopeStack {
        ScopeStack::new()
    }
}

impl ScopeStack {
    /// Returns the stack of a thread that is in no scope.
    pub const fn new() -> ScopeStack {
        ScopeStack { depth: 0, ignore: 0, frames: [ScopeFrame::BARRIER; DEPTH_MAX] }
    }
}

/// A [`ScopeStack`] for a thread-local variable, which hands out its address. Zeroed memory is a
/// valid one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct ScopeStackCell(UnsafeCell<ScopeStack>);

impl ScopeStackCell {
    /// Returns the stack of a thread that is in no scope.
    pub const fn new() -> ScopeStackCell {
        ScopeStackCell(UnsafeCell::new(ScopeStack::new()))
    }

    /// Returns its address, for [`enter`] and the others.
    #[inline(always)]
    pub const fn get(&self) -> *mut ScopeStack {
        self.0.get()
    }
}

/// Enters a scope. Returns the depth to pass to [`leave`].
///
/// The compiler knows that `malloc` reads no memory of the program, and would move these stores
/// across it: the fences forbid that.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self).
#[inline(always)]
pub unsafe fn enter(stack: *mut ScopeStack, frame: ScopeFrame) -> u32 {
    // SAFETY: by the caller's contract nobody else writes to it, except signal handlers of this
    // thread, which are done before we go on. The frame is written before the depth includes it, so
    // a handler never reads an unfinished one.
    unsafe {
        let depth = (*stack).depth;
        if let Some(slot) = (*stack).frames.get_mut(depth as usize) {
            store(slot, frame);
        }
        compiler_fence(Ordering::SeqCst);
        (&raw mut (*stack).depth).write_volatile(depth.wrapping_add(1));
        compiler_fence(Ordering::SeqCst);
        depth
    }
}

/// Stores a frame, by a single instruction if the processor has one.
#[inline(always)]
fn store(slot: &mut ScopeFrame, frame: ScopeFrame) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: both are 16 bytes, and the instructions accept any alignment; SSE2 is part of the
    // architecture.
    unsafe {
        use core::arch::x86_64::{_mm_loadu_si128, _mm_storeu_si128};
        _mm_storeu_si128(ptr::from_mut(slot).cast(), _mm_loadu_si128((&raw const frame).cast()));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        *slot = frame;
    }
}

/// Leaves the scope that was entered at this depth, and all that were entered in it. Scopes that
/// have been left already are not entered again.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self), as in [`enter`].
#[inline(always)]
pub unsafe fn leave(stack: *mut ScopeStack, depth: u32) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: reads and writes the depth of the caller's own stack, which is live and aligned. No
    // other thread accesses it.
    unsafe {
        let now = (*stack).depth;
        (&raw mut (*stack).depth).write_volatile(if depth < now { depth } else { now });
    }
    compiler_fence(Ordering::SeqCst);
}

/// Stops the recording of this thread's allocations until [`end_ignoring`]. Returns the value to
/// pass to it.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self), as in [`enter`].
#[inline(always)]
pub unsafe fn begin_ignoring(stack: *mut ScopeStack) -> u32 {
    // SAFETY: `change_ignoring` asks for the calling thread's own stack, and so does this function.
    unsafe { change_ignoring(stack, |before| before.wrapping_add(1)) }
}

/// Declares that code of Heapledger runs in this thread until [`end_ignoring`]: its allocations are
/// not recorded. Returns the value to pass to that function.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self), as in [`enter`].
#[inline(always)]
pub unsafe fn begin_untracked(stack: *mut ScopeStack) -> u32 {
    // SAFETY: `change_ignoring` asks for the calling thread's own stack, and so does this function.
    unsafe { change_ignoring(stack, |before| before | UNTRACKED) }
}

/// Declares that code of the program, called by code of Heapledger, runs in this thread until
/// [`end_ignoring`]: its allocations are recorded unless the program ignores them. Returns the
/// value to pass to that function.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self), as in [`enter`].
#[inline(always)]
pub unsafe fn begin_tracked(stack: *mut ScopeStack) -> u32 {
    // SAFETY: `change_ignoring` asks for the calling thread's own stack, and so does this function.
    unsafe { change_ignoring(stack, |before| before & !UNTRACKED) }
}

/// # Safety
///
/// `stack` is the calling thread's [own stack](self), as in [`enter`].
#[inline(always)]
unsafe fn change_ignoring(stack: *mut ScopeStack, change: impl FnOnce(u32) -> u32) -> u32 {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: reads and writes a field of the caller's own stack, which is live and aligned. No
    // other thread accesses it.
    unsafe {
        let before = (*stack).ignore;
        (&raw mut (*stack).ignore).write_volatile(change(before));
        compiler_fence(Ordering::SeqCst);
        before
    }
}

/// Restores the state before [`begin_ignoring`], [`begin_untracked`] or [`begin_tracked`].
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self), as in [`enter`].
#[inline(always)]
pub unsafe fn end_ignoring(stack: *mut ScopeStack, before: u32) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: writes a field of the caller's own stack, which is live and aligned. No other thread
    // accesses it.
    unsafe { (&raw mut (*stack).ignore).write_volatile(before) };
    compiler_fence(Ordering::SeqCst);
}

/// Returns the number of frames of a stack that can be read.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self).
#[inline(always)]
pub unsafe fn depth(stack: *const ScopeStack) -> usize {
    // SAFETY: reads a field of the caller's own stack, which is live, aligned and initialised. No
    // other thread writes to it. Volatile, because the compiler of the program does not know that
    // hooks read it.
    (unsafe { (&raw const (*stack).depth).read_volatile() } as usize).min(DEPTH_MAX)
}

/// True if allocations of the thread are not recorded.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self).
#[inline(always)]
pub unsafe fn is_ignoring(stack: *const ScopeStack) -> bool {
    // SAFETY: reads a field of the caller's own stack, which is live, aligned and initialised. No
    // other thread writes to it.
    unsafe { (&raw const (*stack).ignore).read_volatile() != 0 }
}

/// Returns a frame of a stack.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](self), and `index` is below [`depth`].
#[inline(always)]
pub unsafe fn frame(stack: *const ScopeStack, index: usize) -> ScopeFrame {
    // SAFETY: `index` is below `depth`, which is at most the length of the array: so the place is
    // within the caller's own stack, which is live and aligned. No other thread writes to it.
    unsafe { (&raw const (*stack).frames).cast::<ScopeFrame>().add(index).read_volatile() }
}

#[cfg(test)]
mod tests;
