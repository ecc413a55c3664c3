//! Futures that are polled in a context.

use std::pin::Pin;
use std::task::{self, Poll};

use pin_project_lite::pin_project;

use crate::context::Context;
use crate::scope::Entry;

/// An extension of futures, to poll them in a context.
pub trait InContext: Future + Sized {
    /// Has the future polled in these scopes and no others, in any thread. Between two polls, and
    /// after a poll that panics, the thread is in its own scopes again.
    ///
    /// ```
    /// # extern crate heapledger_annotate as heapledger;
    /// use heapledger::{Context, InContext, context};
    ///
    /// let runtime = tokio::runtime::Runtime::new().unwrap();
    /// let request = {
    ///     let _request = context!(task, "http.request", route = "/users");
    ///     Context::current()
    /// };
    /// let task = runtime.spawn(
    ///     async {
    ///         tokio::task::yield_now().await; // perhaps to another thread
    ///         Context::current().to_string()
    ///     }
    ///     .in_context(&request),
    /// );
    /// assert_eq!(runtime.block_on(task).unwrap(), "http.request{route=/users}");
    /// ```
    fn in_context(self, context: &Context) -> WithContext<Self> {
        WithContext { future: self, context: context.clone() }
    }
}

impl<F: Future> InContext for F {}

pin_project! {
    /// A future that is polled in a context: see [`InContext::in_context`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct WithContext<F> {
        #[pin]
        future: F,
        context: Context,
    }
}

impl<F: Future> Future for WithContext<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, waker: &mut task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _scope = this.context.enter();
        this.future.poll(waker)
    }
}

pin_project! {
    /// A future each poll of which is a scope, inside those of its caller: the expansion of an
    /// `async` function with an attribute.
    #[doc(hidden)]
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InScope<F> {
        #[pin]
        future: F,
        entry: Entry,
    }
}

impl<F> InScope<F> {
    pub fn new(entry: Entry, future: F) -> InScope<F> {
        InScope { future, entry }
    }
}

impl<F: Future> Future for InScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, waker: &mut task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _scope = this.entry.enter();
        this.future.poll(waker)
    }
}
