//! Spans of the `tracing` crate as scopes.
//!
//! Add a [`ContextLayer`] to the program's other layers: each span is a scope, named after the
//! span, with the span's fields as its value.
//!
//! ```
//! # extern crate heapledger_annotate as heapledger;
//! use heapledger::Context;
//! use tracing_subscriber::prelude::*;
//!
//! let _guard = tracing_subscriber::registry().with(heapledger::tracing::layer()).set_default();
//! let request = tracing::info_span!("request", route = "/users", status = tracing::field::Empty);
//! request.in_scope(|| {
//!     assert_eq!(Context::current().to_string(), "request{route=/users}");
//! });
//! ```
//!
//! A span is in the spans that `tracing` says it is in. The scopes of a span are its ancestors,
//! whatever other scopes the thread is in: this matters for a span with an explicit parent, and for
//! one that is entered where its parent is not, such as in a task that another thread polls. Fields
//! that are recorded later are in the value from the next time on that the span is entered. Spans
//! that are left in another order than they were entered end when those that were entered later
//! have ended too.
//!
//! Use a filter on the layer to leave out spans that are too many, or too short to matter.

use std::cell::RefCell;
use std::fmt::{self, Write};

use heapledger_core::context::{self, ScopeFrame};
use tracing_core::Subscriber;
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::interner::{self, Interner};
use crate::scope::ignore;
use crate::stack;

static NAMES: Interner = Interner::new();

thread_local! {
    /// The spans that this thread has entered, in this order.
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// A span that the thread has entered.
#[derive(Debug)]
struct Entered {
    span: Id,
    /// The depth of the thread's scope stack before.
    depth: u32,
    has_ended: bool,
}

/// The scope that is attached to a span.
#[derive(Debug)]
struct SpanScope {
    frame: ScopeFrame,
    fields: String,
}

impl SpanScope {
    /// Updates the scope after the fields have changed.
    fn update(&mut self) {
        if !self.fields.is_empty() {
            self.frame.value = interner::value(format_args!("{}", self.fields));
        }
    }
}

/// A layer that makes a scope of each span.
#[derive(Clone, Debug)]
pub struct ContextLayer {
    takes_fields: bool,
}

/// Returns a layer that makes a scope of each span.
pub fn layer() -> ContextLayer {
    ContextLayer { takes_fields: true }
}

impl ContextLayer {
    /// Leaves out the fields of spans. If fields distinguish requests or users, their values are
    /// too many for reports, and take time to be formatted.
    pub fn without_fields(self) -> ContextLayer {
        ContextLayer { takes_fields: false }
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for ContextLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, subscriber: Context<'_, S>) {
        let _ignored = ignore();
        let Some(span) = subscriber.span(id) else { return };
        let mut scope =
            SpanScope { frame: ScopeFrame::new(NAMES.intern(attributes.metadata().name())), fields: String::new() };
        if self.takes_fields {
            attributes.record(&mut Fields(&mut scope.fields));
            scope.update();
        }
        span.extensions_mut().replace(scope);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, subscriber: Context<'_, S>) {
        let _ignored = ignore();
        let Some(span) = subscriber.span(id).filter(|_| self.takes_fields) else { return };
        if let Some(scope) = span.extensions_mut().get_mut::<SpanScope>() {
            values.record(&mut Fields(&mut scope.fields));
            scope.update();
        }
    }

    fn on_enter(&self, id: &Id, subscriber: Context<'_, S>) {
        let Some(span) = subscriber.span(id) else { return };
        // The thread may be about to end.
        let _ = ENTERED.try_with(|entered| {
            if let Ok(mut entered) = entered.try_borrow_mut() {
                enter(&mut entered, &span);
            }
        });
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let _ = ENTERED.try_with(|entered| {
            if let Ok(mut entered) = entered.try_borrow_mut() {
                exit(&mut entered, id);
            }
        });
    }
}

fn enter<'span, S: LookupSpan<'span>>(entered: &mut Vec<Entered>, span: &SpanRef<'span, S>) {
    let stack = stack::current();
    let id = span.id();
    let innermost = entered.iter().rev().find(|other| !other.has_ended).map(|other| &other.span);
    let parent = span.parent().map(|parent| parent.id());
    // SAFETY: `current` has returned the calling thread's *own stack* (see `stack`): it is live,
    // and no other thread writes its depth.
    let depth = unsafe { (*stack).depth };
    let push = |frame| {
        // SAFETY: `enter` requires the calling thread's *own stack* (see `stack`). `current` has
        // returned it above, and `push` is called only within this call.
        unsafe { context::enter(stack, frame) };
    };
    let push_span = |span: &SpanRef<'span, S>| {
        if let Some(scope) = span.extensions().get::<SpanScope>() {
            push(scope.frame);
        }
    };
    if innermost == Some(&id) {
        // The thread is in this span already.
    } else if parent.as_ref() == innermost {
        push_span(span);
    } else {
        push(ScopeFrame::BARRIER);
        span.scope().from_root().for_each(|span| push_span(&span));
    }
    let _ignored = ignore();
    entered.push(Entered { span: id, depth, has_ended: false });
}

fn exit(entered: &mut Vec<Entered>, id: &Id) {
    let Some(exited) = entered.iter_mut().rev().find(|other| !other.has_ended && other.span == *id) else { return };
    exited.has_ended = true;
    while let Some(Entered { depth, .. }) = entered.pop_if(|last| last.has_ended) {
        // SAFETY: `leave` requires the calling thread's *own stack* (see `stack`), which `current`
        // returns.
        unsafe { context::leave(stack::current(), depth) };
    }
}

/// Writes fields as `key=value,key=value`.
struct Fields<'text>(&'text mut String);

impl Fields<'_> {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        /// The length at which formatting stops: more than a value has room for.
        const ENOUGH: usize = 256;
        if self.0.len() < ENOUGH {
            let separator = if self.0.is_empty() { "" } else { "," };
            let _ = write!(self.0, "{separator}{field}={value}");
        }
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}
