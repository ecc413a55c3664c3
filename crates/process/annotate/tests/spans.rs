//! Spans of `tracing` as scopes.

extern crate heapledger_annotate as heapledger;

use heapledger::{Context, context};
use tokio::task::yield_now;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};
use tracing_subscriber::prelude::*;

fn now() -> String {
    Context::current().to_string()
}

fn with_layer(test: impl FnOnce()) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(heapledger::tracing::layer()), test);
}

#[test]
fn spans_nest_with_scopes() {
    with_layer(|| {
        let _outer = context!("outer");
        let span = info_span!("request", route = "/users", id = 7, by = ?Some(1), status = Empty);
        let entered = span.enter();
        let _inner = context!("inner");
        let request = "outer > request{route=/users,id=7,by=Some(1)}";
        info_span!("render").in_scope(|| assert_eq!(now(), format!("{request} > inner > render")));
        assert_eq!(now(), format!("{request} > inner"));
        drop(entered);
        assert_eq!(now(), "outer");
        span.record("status", 200);
        span.in_scope(|| assert_eq!(now(), "outer > request{route=/users,id=7,by=Some(1),status=200}"));
    });
}

#[test]
fn ancestors_count_wherever_a_span_is_entered() {
    with_layer(|| {
        let request = info_span!("request");
        let step = info_span!(parent: &request, "step");
        // In another thread, say, or later.
        step.in_scope(|| assert_eq!(now(), "request > step"));
        let other = info_span!("other");
        other.in_scope(|| {
            step.in_scope(|| assert_eq!(now(), "request > step"));
            info_span!(parent: None, "alone").in_scope(|| assert_eq!(now(), "alone"));
            assert_eq!(now(), "other");
        });
        request.in_scope(|| {
            step.in_scope(|| {
                assert_eq!(now(), "request > step");
                // Once more: no difference.
                step.in_scope(|| assert_eq!(now(), "request > step"));
                assert_eq!(now(), "request > step");
            });
        });
        assert!(Context::current().is_none());
    });
}

#[test]
fn spans_end_in_any_order() {
    with_layer(|| {
        let (one, two) = (info_span!("one"), info_span!("two"));
        let (in_one, in_two) = (one.enter(), two.enter());
        assert_eq!(now(), "two");
        drop(in_one);
        assert_eq!(now(), "two");
        let in_one = one.enter();
        assert_eq!(now(), "one");
        drop(in_two);
        assert_eq!(now(), "one");
        drop(in_one);
        assert!(Context::current().is_none());
    });
}

#[test]
fn fields_can_be_left_out() {
    let layer = heapledger::tracing::layer().without_fields();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("request", id = 7).in_scope(|| assert_eq!(now(), "request"));
    });
}

/// Tasks that are spawned and awaited, in spans of their own: polled many times, by several
/// threads.
#[test]
fn instrumented_tasks() {
    async fn step(number: usize) {
        let inside = format!("request{{number={number}}} > step");
        for _ in 0..20 {
            assert_eq!(now(), inside);
            yield_now().await;
        }
    }
    async fn request(number: usize) {
        for _ in 0..10 {
            assert_eq!(now(), format!("request{{number={number}}}"));
            step(number).instrument(info_span!("step")).await;
            // Elsewhere, in the same request.
            let span = info_span!(parent: Span::current(), "step");
            tokio::spawn(step(number).instrument(span)).await.unwrap();
        }
    }
    // For all threads: they are tokio's.
    let subscriber = tracing_subscriber::registry().with(heapledger::tracing::layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..20)
            .map(|number| tokio::spawn(request(number).instrument(info_span!(parent: None, "request", number))))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(Context::current().is_none());
    });
}
