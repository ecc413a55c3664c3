//! The format that Firefox itself writes: a process, and the processes that it has started, with
//! allocations as markers of a thread.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Meta, Pid, Row, Rows, nanoseconds};
use crate::gather::{Gather, Loaded};
use crate::json;
use crate::profile::{Frame, Location, Module};
use crate::read_error::ReadError;

#[derive(Deserialize)]
struct Process<'a> {
    meta: Meta,
    #[serde(default)]
    libs: Vec<Lib>,
    #[serde(borrow)]
    threads: Vec<Thread<'a>>,
    #[serde(default, borrow)]
    processes: Vec<Process<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lib {
    start: u64,
    end: u64,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    path: String,
    #[serde(default)]
    code_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread<'a> {
    #[serde(default)]
    name: String,
    #[serde(default)]
    process_name: Option<String>,
    #[serde(default)]
    pid: Option<Pid>,
    #[serde(borrow)]
    markers: Table<'a>,
    #[serde(borrow)]
    frame_table: Table<'a>,
    #[serde(borrow)]
    stack_table: Table<'a>,
    #[serde(borrow)]
    string_table: Vec<Cow<'a, str>>,
}

/// Rows, and the index of each column in them.
#[derive(Deserialize)]
struct Table<'a> {
    schema: HashMap<String, usize>,
    #[serde(borrow)]
    data: Vec<Vec<&'a RawValue>>,
}

/// The data of an allocation or a free.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocation<'a> {
    /// The size in bytes; negative for a free.
    size: i64,
    #[serde(default)]
    memory_address: Option<u64>,
    #[serde(default)]
    thread_id: Option<Pid>,
    #[serde(default, borrow)]
    stack: Option<Stack<'a>>,
}

#[derive(Deserialize)]
struct Stack<'a> {
    #[serde(borrow)]
    samples: Table<'a>,
}

pub(super) fn read(bytes: &[u8], rows: &mut Rows) -> Result<(), ReadError> {
    let first: Process<'_> = json::read(bytes)?;
    let profile = &mut rows.gather.profile;
    profile.start_unix_ns = nanoseconds(first.meta.start_time);
    profile.command = first.meta.product.clone();
    let mut processes = vec![&first];
    while let Some(process) = processes.pop() {
        processes.extend(&process.processes);
        let mut loaded = Loaded::default();
        for lib in &process.libs {
            let modules = &mut rows.gather.profile.modules;
            loaded.insert(lib.start, lib.end, modules.len());
            modules.push(Module {
                path: lib.path.clone(),
                build_id: lib.code_id.clone().unwrap_or_default(),
                start: lib.start,
                end: lib.end,
                file_offset: lib.offset,
                bias: Some(lib.start.wrapping_sub(lib.offset)),
            });
        }
        // Times are relative to the start of the process.
        let later = process.meta.start_time - first.meta.start_time;
        for thread in &process.threads {
            let wrong = |reason: String| ReadError::new(0, format!("the thread `{}` {reason}", thread.name));
            let read = thread.rows(later, &loaded, rows).map_err(wrong)?;
            rows.threads.extend((!read.is_empty()).then_some(read));
        }
    }
    Ok(())
}

impl<'a> Table<'a> {
    /// Returns the value of a row in a column.
    fn get<T: Deserialize<'a>>(&self, row: &[&'a RawValue], column: &str) -> Option<T> {
        let text = row.get(*self.schema.get(column)?)?.get();
        serde_json::from_str(text).ok()
    }
}

impl<'a> Thread<'a> {
    fn rows(&self, later: f64, loaded: &Loaded, rows: &mut Rows) -> Result<Vec<Row>, String> {
        let (mut read, mut process) = (Vec::new(), None);
        let (mut samples, mut places) = (HashMap::new(), HashMap::new());
        for marker in &self.markers.data {
            let Some(payload) = self.markers.get::<&RawValue>(marker, "data").map(RawValue::get) else { continue };
            if !payload.contains("\"Native allocation\"") {
                continue;
            }
            let allocation: Allocation<'_> =
                serde_json::from_str(payload).map_err(|error| format!("has an allocation that is none: {error}"))?;
            let process = *process.get_or_insert_with(|| {
                let name = self.process_name.as_deref().unwrap_or(&self.name);
                rows.process(self.pid.as_ref().map_or(0, |pid| pid.0), name)
            });
            let stack = allocation.stack.as_ref().and_then(|stack| {
                let samples = &stack.samples;
                samples.get::<usize>(samples.data.first()?, "stack")
            });
            let sample = match stack {
                None => rows.gather.sample(Vec::new(), Vec::new()),
                Some(stack) => match samples.get(&stack) {
                    Some(&known) => known,
                    None => {
                        let locations = self.locations(stack, loaded, &mut rows.gather, &mut places)?;
                        let sample = rows.gather.sample(locations, Vec::new());
                        samples.insert(stack, sample);
                        sample
                    }
                },
            };
            let time = self.markers.get::<f64>(marker, "startTime").ok_or("has an allocation without a time")?;
            read.push(Row {
                time_ns: nanoseconds(time + later),
                process,
                thread: allocation.thread_id.map_or(0, |id| id.0),
                bytes: allocation.size,
                address: allocation.memory_address,
                sample,
            });
        }
        Ok(read)
    }

    /// Returns the locations of a stack, the innermost first. `places` has the locations of frames
    /// that are known.
    fn locations(
        &self,
        stack: usize,
        loaded: &Loaded,
        gather: &mut Gather,
        places: &mut HashMap<usize, usize>,
    ) -> Result<Vec<usize>, String> {
        let (mut locations, mut next) = (Vec::new(), Some(stack));
        while let Some(at) = next {
            let row = self.stack_table.data.get(at).ok_or_else(|| format!("has no stack {at}"))?;
            let frame: usize =
                self.stack_table.get(row, "frame").ok_or_else(|| format!("has a stack {at} without a frame"))?;
            let place = match places.get(&frame) {
                Some(&known) => known,
                None => {
                    let place = gather.location(self.location(frame, loaded)?);
                    places.insert(frame, place);
                    place
                }
            };
            locations.extend(gather.walk(std::iter::once(place))?);
            next = self.stack_table.get(row, "prefix");
            if next.is_some_and(|next| next >= at) {
                return Err(format!("has a stack {at} that comes before the one around it"));
            }
        }
        Ok(locations)
    }

    /// Returns the location of a frame, which is a return address or a name.
    fn location(&self, frame: usize, loaded: &Loaded) -> Result<Location, String> {
        let missing = || format!("has no frame {frame}");
        let row = self.frame_table.data.get(frame).ok_or_else(missing)?;
        let name: usize = self.frame_table.get(row, "location").ok_or_else(missing)?;
        let name = self.string_table.get(name).ok_or_else(missing)?;
        let returns_to = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if let Some(returns_to) = returns_to {
            let address = returns_to.wrapping_sub(1);
            return Ok(Location { module: loaded.find(address), address, frames: Vec::new() });
        }
        let frame = Frame {
            function: name.to_string(),
            full_name: name.to_string(),
            known: !name.is_empty(),
            ..Frame::default()
        };
        Ok(Location { module: None, address: 0, frames: vec![frame] })
    }
}
