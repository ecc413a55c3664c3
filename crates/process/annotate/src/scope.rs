//! Guards and macros for scopes that last until the end of a block.

use std::marker::PhantomData;

use heapledger_core::context::{self, Category, ScopeFrame};

use crate::stack;

/// A scope that the thread is in until this is dropped. Made by [`context!`](crate::context!) and
/// [`Context::enter`](crate::Context::enter).
///
/// The guard stays in the thread that made it.
#[derive(Debug)]
#[must_use = "the scope is left when this is dropped"]
pub struct ScopeGuard {
    depth: u32,
    _of_one_thread: PhantomData<*mut ()>,
}

/// A scope to enter; empty if its category is switched off.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Entry(Option<ScopeFrame>);

impl Entry {
    #[inline(always)]
    pub const fn new(frame: ScopeFrame) -> Entry {
        Entry(Some(frame))
    }

    #[inline(always)]
    pub fn of_category(category: &Category, frame: impl FnOnce() -> ScopeFrame) -> Entry {
        Entry(category.is_enabled().then(frame))
    }

    /// Enters the scope.
    #[inline(always)]
    pub fn enter(self) -> ScopeGuard {
        let depth = match self.0 {
            // SAFETY: `enter` requires the calling thread's *own stack* (see `stack`), which
            // `current` returns.
            Some(frame) => unsafe { context::enter(stack::current(), frame) },
            // Leaving this depth has no effect.
            None => u32::MAX,
        };
        ScopeGuard::from_depth(depth)
    }
}

impl ScopeGuard {
    /// Returns a guard that goes back to this depth.
    #[inline(always)]
    pub(crate) fn from_depth(depth: u32) -> ScopeGuard {
        ScopeGuard { depth, _of_one_thread: PhantomData }
    }
}

impl Drop for ScopeGuard {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(stack) = stack::known() {
            // SAFETY: `leave` requires the calling thread's *own stack* (see `stack`), which
            // `known` has returned. The guard is not `Send`, so this is the thread that entered the
            // scope.
            unsafe { context::leave(stack, self.depth) };
        }
    }
}

/// A guard during whose life allocations of the thread are not recorded. Made by [`ignore`].
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct IgnoreGuard {
    before: u32,
    _of_one_thread: PhantomData<*mut ()>,
}

/// Ignores allocations of this thread until the guard is dropped: for memory that exists only for
/// the measurement. Their frees are not recorded either, whenever and wherever they happen.
///
/// ```
/// # extern crate heapledger_annotate as heapledger;
/// let report = {
///     let _ignored = heapledger::ignore();
///     String::from("this is in no ledger")
/// };
/// # drop(report);
/// ```
#[inline]
pub fn ignore() -> IgnoreGuard {
    // SAFETY: `begin_ignoring` requires the calling thread's *own stack* (see `stack`), which
    // `current` returns.
    IgnoreGuard { before: unsafe { context::begin_ignoring(stack::current()) }, _of_one_thread: PhantomData }
}

impl Drop for IgnoreGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(stack) = stack::known() {
            // SAFETY: `end_ignoring` requires the calling thread's *own stack* (see `stack`), which
            // `known` has returned. The guard is not `Send`, so this is the thread that made it.
            unsafe { context::end_ignoring(stack, self.before) };
        }
    }
}

/// Enters a scope; the thread is in it until the guard is dropped: to the end of the block, if it
/// has a name.
///
/// ```
/// # extern crate heapledger_annotate as heapledger;
/// # use heapledger::{Context, category, context};
/// category!(NET = "net");
///
/// let route = "/users";
/// let _request = context!(task, "http.request", route = route, method = "GET");
/// let _send = context!(category: NET, "send");
/// assert_eq!(Context::current().to_string(), "http.request{route=/users,method=GET} > send");
///
/// NET.enable(false);
/// let _receive = context!(category: NET, "receive");
/// assert_eq!(Context::current().to_string(), "http.request{route=/users,method=GET} > send");
/// ```
///
/// The name is a constant. Values are formatted by `Display`, and kept for good: see the crate's
/// documentation. They are not evaluated if the category is switched off.
///
/// A guard stays in its thread, so it cannot be in a future that may move to another thread:
///
/// ```compile_fail,E0277
/// # extern crate heapledger_annotate as heapledger;
/// let scope = heapledger::context!("here");
/// std::thread::spawn(move || drop(scope));
/// ```
#[macro_export]
macro_rules! context {
    ($($scope:tt)+) => {
        $crate::__entry!($($scope)+).enter()
    };
}

/// Makes the `Entry` that [`context!`] enters.
#[doc(hidden)]
#[macro_export]
macro_rules! __entry {
    (task, category: $category:path, $name:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::__private::Entry::of_category(&$category, || {
            $crate::__frame!(($name) .in_category(&$category).of_task() $(, $key = $value)*)
        })
    };
    (category: $category:path, $name:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::__private::Entry::of_category(&$category, || {
            $crate::__frame!(($name) .in_category(&$category) $(, $key = $value)*)
        })
    };
    (task, $name:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::__private::Entry::new($crate::__frame!(($name) .of_task() $(, $key = $value)*))
    };
    ($name:expr $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::__private::Entry::new($crate::__frame!(($name) $(, $key = $value)*))
    };
}

/// Makes a frame from a constant name and its values, if there are any.
#[doc(hidden)]
#[macro_export]
macro_rules! __frame {
    (($name:expr) $(.$quality:ident($($argument:tt)*))*) => {{
        static NAME: $crate::__private::Name = $crate::__private::Name::new($name)$(.$quality($($argument)*))*;
        static FRAME: $crate::__private::ScopeFrame = $crate::__private::ScopeFrame::new(&NAME);
        FRAME
    }};
    (($name:expr) $(.$quality:ident($($argument:tt)*))*, $first:ident = $value:expr $(, $key:ident = $further:expr)*) => {{
        static NAME: $crate::__private::Name = $crate::__private::Name::new($name)$(.$quality($($argument)*))*;
        $crate::__private::ScopeFrame::with_value(&NAME, $crate::__private::value(::core::format_args!(
            ::core::concat!(::core::stringify!($first), "={}" $(, ",", ::core::stringify!($key), "={}")*),
            $value $(, $further)*
        )))
    }};
}

/// Declares a category: a group of scopes that can be switched off and on at run time, by
/// [`Category::enable`].
///
/// ```
/// # extern crate heapledger_annotate as heapledger;
/// use heapledger::{category, context};
///
/// category!(pub(crate) NET = "net");
/// category!(
///     /// Scopes of single glyphs: many.
///     GLYPHS = "layout.glyphs", disabled
/// );
///
/// let _scope = context!(category: NET, "send");
/// assert!(NET.is_enabled() && !GLYPHS.is_enabled());
/// ```
#[macro_export]
macro_rules! category {
    ($(#[$attribute:meta])* $visibility:vis $category:ident = $name:expr $(,)?) => {
        $(#[$attribute])* $visibility static $category: $crate::Category = $crate::Category::new($name);
    };
    ($(#[$attribute:meta])* $visibility:vis $category:ident = $name:expr, disabled $(,)?) => {
        $(#[$attribute])* $visibility static $category: $crate::Category = $crate::Category::new_disabled($name);
    };
}
