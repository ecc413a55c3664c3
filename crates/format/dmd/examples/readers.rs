//! Reads a log with the reader of this crate and with others that stream JSON, and prints the CPU
//! time of each.
//!
//! ```text
//! benches/dmd --bytes 71000000 --rounds 1 --keep /tmp/log.json
//! cargo run --release -p heapledger-dmd --example readers /tmp/log.json
//! ```
//!
//! This crate's reader stores stacks and blocks as it goes; the others look at each token and keep
//! nothing.

use std::fs::File;
use std::io::{BufReader, Cursor};
use std::time::Duration;

use heapledger_dmd::{SpooledLog, Spooling};
use serde::de::IgnoredAny;
use struson::reader::{JsonReader, JsonStreamReader, ValueType};

const ROUNDS: usize = 5;
const BUFFER: usize = 256 << 10;

fn main() {
    let path = std::env::args().nth(1).expect("usage: readers LOG");
    let open = || File::open(&path).expect("the log can be opened");
    let rounds = |read: &dyn Fn()| (0..ROUNDS).map(|_| time(read)).min().unwrap_or_default();
    let ours = rounds(&|| {
        let spooling = Spooling { memory_max: usize::MAX, open: &|| Ok(Box::new(Cursor::new(Vec::new()))) };
        SpooledLog::read(open(), usize::MAX, spooling).expect("it is a log");
    });
    let serde_json = rounds(&|| {
        let input = BufReader::with_capacity(BUFFER, open());
        serde_json::from_reader::<_, IgnoredAny>(input).expect("it is JSON");
    });
    let struson = rounds(&|| {
        let mut reader = JsonStreamReader::new(open());
        walk(&mut reader).expect("it is JSON");
    });
    for (name, time) in [("this crate", ours), ("serde_json", serde_json), ("struson", struson)] {
        println!("{name:12}{:8.2} s{:8.1} times", time.as_secs_f64(), time.as_secs_f64() / ours.as_secs_f64());
    }
}

/// Looks at each token of a value.
fn walk(reader: &mut impl JsonReader) -> Result<(), struson::reader::ReaderError> {
    match reader.peek()? {
        ValueType::Object => {
            reader.begin_object()?;
            while reader.has_next()? {
                reader.next_name()?;
                walk(reader)?;
            }
            reader.end_object()
        }
        ValueType::Array => {
            reader.begin_array()?;
            while reader.has_next()? {
                walk(reader)?;
            }
            reader.end_array()
        }
        ValueType::String => reader.next_str().map(drop),
        ValueType::Number => reader.next_number_as_str().map(drop),
        ValueType::Boolean => reader.next_bool().map(drop),
        ValueType::Null => reader.next_null(),
    }
}

/// Returns the CPU time of reading.
fn time(read: &dyn Fn()) -> Duration {
    let before = on_processor();
    read();
    on_processor() - before
}

/// Returns the CPU time of this thread.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux has it");
    Duration::from_nanos(text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number comes first"))
}
