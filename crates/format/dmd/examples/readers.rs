//! Passes over a log with the lexer of this crate and with others that stream JSON, and prints the
//! CPU time of each.
//!
//! ```text
//! benches/dmd --memory-max 512 --keep /tmp/log.json
//! cargo run --release -p heapledger-dmd --example readers /tmp/log.json
//! ```
//!
//! All look at each key, text and number, and keep nothing.

use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::time::Duration;

use actson::feeder::BufReaderJsonFeeder;
use actson::{JsonEvent, JsonParser};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

#[path = "../src/hash.rs"]
#[allow(dead_code, reason = "the lexer needs a part")]
mod hash;
#[path = "../src/lexer.rs"]
#[allow(dead_code, reason = "a part is needed")]
mod lexer;
#[path = "../src/read_error.rs"]
#[allow(unreachable_pub, reason = "the library exports it")]
mod read_error;
#[path = "../src/table_keys.rs"]
#[allow(dead_code, reason = "the lexer needs a part")]
mod table_keys;
use lexer::Lexer;
use read_error::ReadError;

const ROUNDS: usize = 5;
const BUFFER: usize = 256 << 10;

fn main() {
    let path = std::env::args().nth(1).expect("usage: readers LOG");
    let open = || File::open(&path).expect("the log can be opened");
    let buffered = || BufReader::with_capacity(BUFFER, open());
    let readers: [(&str, &dyn Fn()); 3] = [
        ("this crate", &|| pass(&mut Lexer::new(&mut open(), u64::MAX)).expect("it is JSON")),
        ("serde_json", &|| pass_serde(buffered())),
        ("actson", &|| pass_actson(buffered())),
    ];
    let mut times = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        for (shortest, (_, read)) in times.iter_mut().zip(readers) {
            *shortest = time(read).min(*shortest);
        }
    }
    for (time, (name, _)) in times.iter().zip(readers) {
        println!("{name:12}{:8.2} s{:8.1} times", time.as_secs_f64(), time.as_secs_f64() / times[0].as_secs_f64());
    }
}

/// Passes over a value.
fn pass(lexer: &mut Lexer<'_>) -> Result<(), ReadError> {
    let mut first = true;
    match lexer.token()? {
        b'{' => {
            lexer.expect(b'{')?;
            while lexer.key(&mut first)?.is_some() {
                pass(lexer)?;
            }
        }
        b'[' => {
            lexer.expect(b'[')?;
            while lexer.item(&mut first, b']')? {
                pass(lexer)?;
            }
        }
        b'"' => drop(lexer.string()?),
        b'0'..=b'9' => drop(lexer.integer()?),
        _ => lexer.skip()?,
    }
    Ok(())
}

/// Passes over a value with `serde_json`.
fn pass_serde(input: BufReader<File>) {
    let Passed = serde_json::from_reader(input).expect("it is JSON");
}

/// A value that was passed over.
struct Passed;

impl<'de> Deserialize<'de> for Passed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Passed, D::Error> {
        deserializer.deserialize_any(Passed)
    }
}

impl<'de> Visitor<'de> for Passed {
    type Value = Passed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Passed, E> {
        Ok(Passed)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Passed, E> {
        Ok(Passed)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Passed, A::Error> {
        while let Some(Passed) = items.next_element()? {}
        Ok(Passed)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Passed, A::Error> {
        while let Some((Passed, Passed)) = members.next_entry()? {}
        Ok(Passed)
    }
}

/// Passes over a value with `actson`.
fn pass_actson(input: BufReader<File>) {
    let mut parser = JsonParser::new(BufReaderJsonFeeder::new(input));
    while let Some(event) = parser.next_event().expect("it is JSON") {
        match event {
            JsonEvent::NeedMoreInput => parser.feeder.fill_buf().expect("the log can be read"),
            JsonEvent::FieldName | JsonEvent::ValueString => drop(parser.current_str().expect("it is UTF-8")),
            JsonEvent::ValueInt => drop(parser.current_int::<u64>().expect("it is a whole number")),
            _ => {}
        }
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
