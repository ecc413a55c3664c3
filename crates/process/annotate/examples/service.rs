//! A service that knows what each of its requests allocates, and where it was then:
//! `service REQUESTS`.
//!
//! Requests are tasks of two executors, of one thread and of several; steps of them run in threads
//! of their own, in functions with attributes, in spans of `tracing`. Each writes blocks of sizes
//! that nothing else in the program asks for (from 70,000 bytes on), and notes them under the
//! context that it should be in. The truth is told as
//! `{"contexts":{"request{route=/a} > load":[ALLOCATIONS,BYTES], …}}`:
//!
//! ```text
//! heapledger record -o service.hl -- target/debug/examples/service 100
//! heapledger top --by context --total --size 70000.. service.hl
//! ```

extern crate heapledger_annotate as heapledger;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Mutex;

use heapledger::{Context, InContext, category, context};
use heapledger_derive::in_context;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tracing::{Instrument, info_span};
use tracing_subscriber::prelude::*;

category!(PARSER = "parser");

/// Allocations and bytes by context.
static TRUTH: Mutex<BTreeMap<String, (u64, u64)>> = Mutex::new(BTreeMap::new());

/// Allocates a block, and notes where that should be.
#[inline(never)]
fn allocate(bytes: usize, context: String) {
    drop(black_box(vec![0_u8; 70_000 + bytes]));
    note(70_000 + bytes, context);
}

fn note(bytes: usize, context: String) {
    let mut truth = TRUTH.lock().unwrap();
    let (allocations, all_bytes) = truth.entry(context).or_default();
    *allocations += 1;
    *all_bytes += bytes as u64;
}

const ROUTES: [&str; 3] = ["/a", "/b", "/c"];

#[in_context(task, "request", route = route)]
async fn answer(number: usize, route: &'static str) {
    let request = format!("request{{route={route}}}");
    allocate(1, request.clone());
    load(number, &request).await;
    yield_now().await;
    allocate(2, request.clone());
    // In another thread, with what it is given.
    let context = Context::current();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            allocate(3, "(no context)".to_owned());
            let _request = context.enter();
            parse(number, &request);
        });
    });
    // In another task, with and without.
    let step = |place: String| async move {
        yield_now().await;
        allocate(4, place);
    };
    tokio::spawn(step(request.clone()).in_context(&context)).await.unwrap();
    tokio::spawn(step("(no context)".to_owned())).await.unwrap();
}

/// Blocks that are allocated in one context and kept for another.
fn hand_over(number: usize) {
    let blocks = [vec![0_u8; 70_000], vec![0_u8; 70_001]];
    let _cache = context!("cache", kind = number % 2);
    for block in &blocks {
        heapledger::set_context(block.as_ptr());
        // As if it had been allocated here.
        note(block.len(), format!("cache{{kind={}}}", number % 2));
    }
    // Nobody knows of this.
    heapledger::set_context(&raw const number);
    drop(black_box(blocks));
}

#[in_context("load")]
async fn load(number: usize, request: &str) {
    for _ in 0..number % 4 {
        allocate(5, format!("{request} > load"));
        yield_now().await;
        parse(number, &format!("{request} > load"));
    }
}

fn parse(number: usize, outside: &str) {
    let _parse = context!(category: PARSER, "parse", file = number % 3);
    allocate(6, format!("{outside} > parse{{file={}}}", number % 3));
    let ignored = heapledger::ignore();
    let unseen = black_box(vec![0_u8; 99_999]);
    drop(ignored);
    drop(unseen);
}

/// The same as spans: nothing of Heapledger is in sight.
async fn handle(number: usize) {
    allocate(7, format!("handle{{number={}}}", number % 2));
    async {
        yield_now().await;
        allocate(8, format!("handle{{number={}}} > send", number % 2));
    }
    .instrument(info_span!("send"))
    .await;
}

fn serve(runtime: &Runtime, requests: usize) {
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for number in 0..requests {
            tasks.push(tokio::spawn(answer(number, ROUTES[number % ROUTES.len()])));
            tasks.push(tokio::spawn(handle(number).instrument(info_span!("handle", number = number % 2))));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn main() {
    let requests = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(10);
    tracing_subscriber::registry().with(heapledger::tracing::layer()).init();
    serve(&Builder::new_current_thread().build().unwrap(), requests);
    (0..requests).for_each(hand_over);
    serve(&Builder::new_multi_thread().worker_threads(4).build().unwrap(), requests);
    let totals = std::mem::take(&mut *TRUTH.lock().unwrap());
    let totals = totals.iter().map(|(context, (allocations, bytes))| format!("{context:?}:[{allocations},{bytes}]"));
    println!("{{\"contexts\":{{{}}}}}", totals.collect::<Vec<_>>().join(","));
}
