//! Measures what an event costs the collector:
//! `cargo run --release -p heapledger-collect --example throughput [EVENTS [LINE]]`.
//!
//! Records programs that write events as fast as they can, and prints the collector's CPU time per
//! event, including the writer's.

use std::ffi::OsString;
use std::time::Duration;

use heapledger_collect::{RecordOptions, record};

#[path = "../tests/support/mod.rs"]
mod support;
use support::{FakeThread, Hook};

const SHAPE: &str = "THROUGHPUT_SHAPE";

/// The behaviour of a program.
#[derive(Clone, Copy)]
struct Shape {
    threads: u64,
    /// The number of live blocks, of all threads together.
    live: u64,
    /// The number of pairs of allocation and free, of all threads together.
    pairs: u64,
    stacks: u64,
}

fn main() {
    if let Ok(shape) = std::env::var(SHAPE) {
        let [threads, live, pairs, stacks] =
            shape.split(' ').map(|number| number.parse().unwrap()).collect::<Vec<u64>>().try_into().unwrap();
        return produce(Shape { threads, live, pairs, stacks });
    }
    let argument = |number| std::env::args().nth(number).map(|argument| argument.parse().unwrap());
    let events = argument(1).unwrap_or(20_000_000);
    println!("threads     live   stacks │ collector ns/event   wall ns/event   bytes/event   collector RSS");
    let shapes = [(1, 2, 100), (1, 2, 20_000), (4, 2, 100), (1, 400, 100), (1, 400, 20_000), (4, 400, 20_000)];
    for (line, (threads, live, stacks)) in (1_u64..).zip(shapes) {
        if argument(2).is_none_or(|only| only == line) {
            measure(Shape { threads, live: live * 1_000, pairs: events / 2, stacks });
        }
    }
}

fn measure(shape: Shape) {
    let Shape { threads, live, pairs, stacks } = shape;
    let assignment = format!("{SHAPE}={threads} {live} {pairs} {stacks}");
    let program = std::env::current_exe().unwrap().into_os_string();
    let command = vec![OsString::from("/usr/bin/env"), assignment.into(), program];
    let directory = tempfile::tempdir().unwrap();
    // An empty library: the loader reports that it ignores it.
    let mut options = RecordOptions::new(command, Vec::new());
    options.output = Some(directory.path().join("x.hl"));
    let outcome = record(&options, &mut |_| {}).unwrap();
    let counts = outcome.footer.counts;
    assert_eq!(counts.frees_unknown.0 + counts.events_late + counts.events_lost, 0);
    let events = (counts.allocations.0 + counts.frees.0) as f64;
    let costs = outcome.footer.costs;
    let wall = Duration::from_nanos(costs.program_wall_ns.unwrap());
    println!(
        "{threads:7} {live:8} {stacks:8} │ {:18.1} {:15.1} {:13.2} {:11} MiB",
        costs.collector_cpu_ns.unwrap() as f64 / events,
        wall.as_nanos() as f64 / events,
        outcome.bytes_written as f64 / events,
        costs.collector_rss_max.unwrap().0 >> 20,
    );
}

fn produce(shape: Shape) {
    let hook = Hook::from_environment();
    let (_, first) = hook.image();
    let image = first.image;
    std::thread::scope(|scope| {
        for number in 0..shape.threads {
            scope.spawn(move || {
                let mut thread = hook.thread(image, "produces");
                churn(&mut thread, number, shape);
            });
        }
    });
}

/// Allocates the live blocks, and then replaces random ones by blocks that fit into their places.
fn churn(thread: &mut FakeThread, number: u64, shape: Shape) {
    let live = shape.live / shape.threads;
    let base = (number + 1) << 32;
    let mut random = number + 1;
    for pair in 0..shape.pairs / shape.threads {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let slot = (random >> 33) % live;
        let address = base + slot * 64;
        if pair >= live {
            thread.free(address).unwrap();
        } else {
            let address = base + pair * 64;
            thread.malloc(address, 16 + pair % 48, 1 + (random >> 20) as u32 % shape.stacks as u32).unwrap();
            continue;
        }
        thread.malloc(address, 16 + random % 48, 1 + (random >> 20) as u32 % shape.stacks as u32).unwrap();
    }
}
