//! Contexts of futures, under tokio's executors: right at every await point, whichever thread
//! polls.

extern crate heapledger_annotate as heapledger;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use heapledger::{Context, InContext, context};
use heapledger_derive::in_context;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

fn now() -> String {
    Context::current().to_string()
}

fn request(number: usize) -> Context {
    let _nothing_else = Context::NONE.enter();
    let _request = context!(task, "request", number = number % 7);
    Context::current()
}

/// A scope of its own, and another within it, across await points.
#[in_context("load")]
async fn load(steps: usize) -> Result<String, String> {
    let mut expected = now();
    for _ in 0..steps {
        yield_now().await;
        {
            let _parse = context!("parse");
            assert_eq!(now(), format!("{expected} > parse"));
        }
        if now() != expected {
            return Err(now());
        }
        expected = now();
    }
    Ok(expected)
}

/// Awaits what it is given to do, and looks where it is; returns the threads in which it ran.
async fn work(number: usize, steps: usize) -> HashSet<ThreadId> {
    let outside = format!("request{{number={}}}", number % 7);
    let mut threads = HashSet::new();
    for step in 0..steps {
        assert_eq!(now(), outside);
        threads.insert(std::thread::current().id());
        assert_eq!(load(step % 3).await, Ok(format!("{outside} > load")));
        if step % 16 == 0 {
            tokio::time::sleep(Duration::from_micros(50)).await;
        }
        // A task within the task: what it takes along is what it is given.
        if step % 32 == 0 {
            let (with, without) = (load(1).in_context(&Context::current()), load(1));
            let (with, without) = (tokio::spawn(with), tokio::spawn(without));
            assert_eq!(with.await.unwrap(), Ok(format!("{outside} > load")));
            assert_eq!(without.await.unwrap(), Ok("load".to_owned()));
        }
    }
    threads
}

fn check(runtime: &Runtime) -> usize {
    let most = runtime.block_on(async {
        let tasks: Vec<_> =
            (0..40).map(|number| tokio::spawn(work(number, 100).in_context(&request(number)))).collect();
        let mut most = 0;
        for task in tasks {
            most = most.max(task.await.unwrap().len());
            assert!(Context::current().is_none());
        }
        most
    });
    assert!(Context::current().is_none());
    most
}

#[test]
fn one_thread() {
    assert_eq!(check(&Builder::new_current_thread().enable_time().build().unwrap()), 1);
}

#[test]
fn tasks_that_move_between_threads() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    // That they move is up to the executor: it steals from workers that have too much.
    let moved = (0..20).map(|_| check(&runtime)).any(|most| most > 1);
    assert!(moved, "no task was polled by two threads");
    // Its threads are where they were: in no scope.
    for _ in 0..16 {
        runtime.block_on(async { tokio::spawn(async { assert!(Context::current().is_none()) }).await.unwrap() });
    }
}

/// A future without a context of its own is polled in the scopes of the thread that polls it.
#[test]
fn without_a_context() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let _around = context!("around");
    runtime.block_on(async {
        assert_eq!(now(), "around");
        assert_eq!(tokio::spawn(load(2)).await.unwrap(), Ok("around > load".to_owned()));
        assert_eq!(load(2).in_context(&Context::NONE).await, Ok("load".to_owned()));
        assert_eq!(now(), "around");
    });
}

#[test]
fn a_poll_that_panics_leaves_the_scopes() {
    static POLLS: AtomicUsize = AtomicUsize::new(0);
    let runtime = Builder::new_current_thread().build().unwrap();
    let _around = context!("around");
    let future = async {
        let _lost = context!("lost");
        POLLS.fetch_add(1, Ordering::Relaxed);
        std::panic::resume_unwind(Box::new(()));
    };
    let unwound = catch_unwind(AssertUnwindSafe(|| runtime.block_on(future.in_context(&request(1)))));
    assert!(unwound.is_err() && POLLS.load(Ordering::Relaxed) == 1);
    assert_eq!(now(), "around");
}

/// A guard in a future that is never sent may live across an await point: the scope is left by
/// then, and what is entered later is right all the same.
#[test]
fn a_guard_across_an_await_point_heals() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let _around = context!("around");
    runtime.block_on(async {
        let one = async {
            let held = context!("held");
            yield_now().await;
            drop(held);
            now()
        };
        let one = one.in_context(&request(1)).await;
        assert_eq!(one, "request{number=1}");
        assert_eq!(now(), "around");
    });
    assert_eq!(now(), "around");
}
