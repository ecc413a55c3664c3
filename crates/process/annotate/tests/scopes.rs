//! Scopes of a thread: guards, jumps over them, threads, categories, attributes.

extern crate heapledger_annotate as heapledger;

use std::panic::{AssertUnwindSafe, catch_unwind};

use heapledger::{Context, ScopeGuard, category, context};
use heapledger_derive::in_context;

fn now() -> String {
    Context::current().to_string()
}

#[test]
fn guards_nest_in_any_order() {
    let outer = context!("outer");
    let middle = context!("middle", size = 3);
    let inner = context!("inner");
    assert_eq!(now(), "outer > middle{size=3} > inner");
    drop(middle);
    assert_eq!(now(), "outer");
    drop(inner);
    assert_eq!(now(), "outer");
    drop(outer);
    assert!(Context::current().is_none());
}

#[test]
fn a_scope_without_its_guard_ends_with_the_one_around_it() {
    let outer = context!("outer");
    {
        let _middle = context!("middle");
        std::mem::forget(context!("lost"));
        assert_eq!(now(), "outer > middle > lost");
    }
    assert_eq!(now(), "outer");
    drop(outer);
}

#[test]
fn a_panic_leaves_scopes() {
    let _outer = context!("outer");
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _inner = context!("inner");
        let _elsewhere = Context::NONE.enter();
        std::panic::resume_unwind(Box::new(7));
    }));
    assert!(unwound.is_err());
    assert_eq!(now(), "outer");
}

#[test]
fn what_is_too_deep_comes_back() {
    let _outer = context!("outer");
    let scopes: Vec<ScopeGuard> = (0..300).map(|_| context!("deep")).collect();
    assert_eq!(now().matches("deep").count(), 127);
    for scope in scopes.into_iter().rev() {
        drop(scope);
    }
    assert_eq!(now(), "outer");
}

#[test]
fn threads_begin_in_no_scope_and_take_contexts_along() {
    let _outer = context!(task, "job", number = 1);
    let job = Context::current();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(Context::current().is_none());
            let _own = context!("own");
            {
                let _job = job.enter();
                let _step = context!("step");
                assert_eq!(now(), "job{number=1} > step");
                assert_eq!(job.to_string(), "job{number=1}");
            }
            assert_eq!(now(), "own");
        });
    });
}

category!(SWITCHED = "switched", disabled);

#[in_context(category: SWITCHED, "function", with = argument)]
fn function(argument: &str) -> String {
    now()
}

#[test]
fn categories_are_switched() {
    let _outer = context!("outer");
    assert_eq!(function("a"), "outer");
    SWITCHED.enable(true);
    assert_eq!(function("b"), "outer > function{with=b}");
    let entered = context!(task, category: SWITCHED, "entered");
    // A scope that has been entered is left, although its category is switched off meanwhile.
    SWITCHED.enable(false);
    assert_eq!(now(), "outer > entered");
    drop(entered);
    assert_eq!(now(), "outer");
}

struct Counter(u32);

impl Counter {
    /// Attributes, generics, `self`, a return in the middle.
    #[in_context("count", by = by)]
    #[must_use]
    fn count<N>(&mut self, by: N) -> Result<String, std::num::ParseIntError>
    where
        N: std::fmt::Display + Copy,
    {
        if self.0 > 0 {
            return Ok(now());
        }
        self.0 += by.to_string().parse::<u32>()?;
        Ok(String::new())
    }

    #[in_context("opaque")]
    fn opaque(&self) -> impl Iterator<Item = String> + use<> {
        std::iter::once(now())
    }
}

#[test]
fn methods() {
    let mut counter = Counter(0);
    assert!(counter.count("no number").is_err());
    assert_eq!(counter.count(1), Ok(String::new()));
    assert_eq!(counter.count(2).unwrap(), "count{by=2}");
    assert_eq!(counter.opaque().collect::<Vec<_>>(), ["opaque"]);
    assert!(Context::current().is_none());
}
