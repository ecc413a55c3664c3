//! A context as a value: to take it elsewhere.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use heapledger_core::bridge;
use heapledger_core::context::{self, Frame, Name};

use crate::scope::ScopeGuard;
use crate::{stack, untracked};

/// The scopes that a thread is in, outermost first, as they were when this was made. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// `None`: no scopes, no memory.
    frames: Option<Arc<[Frame]>>,
}

impl Context {
    /// That of no scope.
    pub const NONE: Context = Context { frames: None };

    /// The scopes that the calling thread is in.
    pub fn current() -> Context {
        let Some(stack) = stack::known() else { return Context::NONE };
        // SAFETY: this thread's stack, and an index below its depth.
        let frame = |index| unsafe { context::frame(stack, index) };
        // SAFETY: this thread's stack.
        let depth = unsafe { context::depth(stack) };
        let first = (0..depth).rev().find(|&index| frame(index) == Frame::BARRIER).map_or(0, |barrier| barrier + 1);
        let frames = (first < depth).then(|| untracked::scope(|| (first..depth).map(frame).collect()));
        Context { frames }
    }

    /// Enters these scopes, and leaves all others, until the guard is dropped: then the thread is where it was.
    ///
    /// ```
    /// # extern crate heapledger_context as heapledger;
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
        // SAFETY: this thread's stack, here and below.
        let depth = unsafe { context::enter(stack, Frame::BARRIER) };
        for &frame in self.frames() {
            // SAFETY: as above.
            unsafe { context::enter(stack, frame) };
        }
        ScopeGuard::from_depth(depth)
    }

    /// Whether it is that of no scope.
    pub fn is_none(&self) -> bool {
        self.frames.is_none()
    }

    /// The scopes, the outermost first, each with its value as reports have it: `route{path=/users}`.
    pub fn scopes(&self) -> impl Iterator<Item = String> {
        self.frames().iter().map(|frame| scope(*frame))
    }

    fn frames(&self) -> &[Frame] {
        self.frames.as_deref().unwrap_or(&[])
    }
}

/// Says that a live block is of the scopes that the calling thread is in, whatever it was in when the block was
/// allocated: for memory that is handed from one part of a program to another. `block` is the address that the allocator
/// returned. Nothing happens where it is not known.
///
/// In a recording the block is reallocated, from where this was called, to where it is: it counts once more among
/// what was allocated in all. Takes as long as an allocation that is recorded.
///
/// ```
/// # extern crate heapledger_context as heapledger;
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

/// As reports have it: `outer > inner{key=value}`; `(no context)`.
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
fn scope(frame: Frame) -> String {
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

/// Equal contexts are those of the same scopes with the same values: by their places in the program, not by their texts.
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
