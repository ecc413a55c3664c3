//! A context as a value, which can be passed to another thread or kept.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use heapledger_core::bridge;
use heapledger_core::context::{self, Name, ScopeFrame};

use crate::scope::ScopeGuard;
use crate::{stack, untracked};

/// The scopes that a thread was in when this value was made, the outermost first. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// `None` for no scopes: this takes no memory.
    frames: Option<Arc<[ScopeFrame]>>,
}

impl Context {
    /// The context of no scope.
    pub const NONE: Context = Context { frames: None };

    /// Returns the context of the calling thread.
    pub fn current() -> Context {
        let Some(stack) = stack::known() else { return Context::NONE };
        // SAFETY: `frame` requires the calling thread's *own stack* (see `stack`), which `known`
        // has returned, and an index below `depth`, which each caller below keeps to.
        let frame = |index| unsafe { context::frame(stack, index) };
        // SAFETY: `depth` requires the calling thread's *own stack* (see `stack`), which `known`
        // has returned.
        let depth = unsafe { context::depth(stack) };
        let first =
            (0..depth).rev().find(|&index| frame(index) == ScopeFrame::BARRIER).map_or(0, |barrier| barrier + 1);
        let frames = (first < depth).then(|| untracked::scope(|| (first..depth).map(frame).collect()));
        Context { frames }
    }

    /// Enters these scopes, and leaves all others, until the guard is dropped: then the thread
    /// returns to its previous scopes.
    ///
    /// ```
    /// # extern crate heapledger_annotate as heapledger;
    /// use heapledger::{Context, context};
    ///
    /// let _request = context!(task, "http.request");
    /// let request = Context::current();
    /// std::thread::spawn(move || {
    ///     let _request = request.enter();
    ///     assert_eq!(Context::current().to_string(), "http.request");
    /// })
    /// .join()
    /// .unwrap();
    /// ```
    #[inline]
    pub fn enter(&self) -> ScopeGuard {
        let stack = stack::current();
        // SAFETY: `enter` requires the calling thread's *own stack* (see `stack`), which `current`
        // has returned.
        let depth = unsafe { context::enter(stack, ScopeFrame::BARRIER) };
        for &frame in self.frames() {
            // SAFETY: `enter` requires the calling thread's *own stack* (see `stack`): it is that
            // of the call before, and this is the same thread.
            unsafe { context::enter(stack, frame) };
        }
        ScopeGuard::from_depth(depth)
    }

    /// True if this is the context of no scope.
    pub fn is_none(&self) -> bool {
        self.frames.is_none()
    }

    /// Returns the scopes, the outermost first, each with its value in the form of reports:
    /// `route{path=/users}`.
    pub fn scopes(&self) -> impl Iterator<Item = String> {
        self.frames().iter().map(|frame| scope(*frame))
    }

    fn frames(&self) -> &[ScopeFrame] {
        self.frames.as_deref().unwrap_or(&[])
    }
}

/// Sets the context of a live block to the scopes that the calling thread is in, in place of those
/// in which the block was allocated: for memory that is handed from one part of a program to
/// another. `block` is the address that the allocator returned. Does nothing if the block is not
/// known.
///
/// In a recording this is a reallocation of the block, by the caller, to the same address: the
/// block counts once more in the total of allocations. Takes as long as an allocation that is
/// recorded.
///
/// ```
/// # extern crate heapledger_annotate as heapledger;
/// let buffer = vec![0_u8; 4096]; // from a pool of buffers, say
/// {
///     let _request = heapledger::context!(task, "http.request");
///     heapledger::set_context(buffer.as_ptr());
/// }
/// ```
pub fn set_context<T: ?Sized>(block: *const T) {
    if let Some(set_context) = bridge::find().and_then(|observer| observer.set_context()) {
        // SAFETY: an address is all that is asked for; what is no block is not known.
        unsafe { set_context(block.cast::<u8>().expose_provenance() as u64) };
    }
}

/// Prints the context in the form of reports: `outer > inner{key=value}`; `(no context)`.
impl fmt::Display for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return formatter.write_str("(no context)");
        }
        for (index, scope) in self.scopes().enumerate() {
            let separator = if index > 0 { " > " } else { "" };
            write!(formatter, "{separator}{scope}")?;
        }
        Ok(())
    }
}

/// A scope, with its value.
fn scope(frame: ScopeFrame) -> String {
    let text = |name: *const Name| {
        // SAFETY: null, or a static name: that is what frames are made of.
        unsafe { name.as_ref() }.map(|name| String::from_utf8_lossy(name.bytes()))
    };
    let name = text(frame.name).unwrap_or_default();
    match text(frame.value) {
        Some(value) => format!("{name}{{{value}}}"),
        None => name.into_owned(),
    }
}

/// Contexts are equal if they have the same scopes with the same values. Scopes are compared by
/// their locations in the program, not by their texts.
impl Hash for Context {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.frames().iter().for_each(|frame| (frame.name, frame.value).hash(state));
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Context({self})")
    }
}
