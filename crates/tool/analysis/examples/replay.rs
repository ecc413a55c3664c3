//! Measures how fast recordings are replayed:
//! `cargo run --release -p heapledger-analysis --example replay FILE …`.
//!
//! The figure is the best of five runs, in CPU time of one thread: a replay uses no other.

use std::time::Duration;

use heapledger_analysis::{Moment, Names, PartBy, Selection, parts};
use heapledger_recording::Recording;
use heapledger_symbols::{Symbolizer, SymbolizerOptions};

fn main() {
    for path in std::env::args().skip(1) {
        let file = std::fs::read(&path).unwrap();
        let recording = Recording::open(&file).unwrap();
        let mut events = 0;
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
            let (selection, mut progress) = (Selection::at(Moment::Peak), |done, _| events = done);
            let start = cpu_time();
            let parts = parts(&mut names, PartBy::Thread, &selection, &mut progress);
            best = best.min(cpu_time() - start);
            assert!(parts.unwrap().damage.is_empty());
        }
        let seconds = best.as_secs_f64();
        println!(
            "{path}: {events} events of {:.2} bytes, {:.1} ns each, {:.1} M/s",
            file.len() as f64 / events as f64,
            seconds * 1e9 / events as f64,
            events as f64 / seconds / 1e6
        );
    }
}

fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(schedstat.split(' ').next().unwrap().parse().unwrap())
}
