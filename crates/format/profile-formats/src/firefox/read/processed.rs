//! Processed profiles: tables as columns, shared by all threads or, before version 60, for each
//! thread.

use std::collections::HashMap;

use serde::Deserialize;

use super::{Meta, Pid, Row, Rows, nanoseconds};
use crate::gather::Gather;
use crate::json;
use crate::profile::{Frame, Location, Module};
use crate::read_error::ReadError;

/// The newest version of the format that is read.
const VERSION_MAX: u32 = 70;

#[derive(Deserialize)]
struct Head {
    meta: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    #[serde(default)]
    preprocessed_profile_version: Option<u32>,
}

#[derive(Deserialize)]
struct File {
    meta: Meta,
    #[serde(default)]
    libs: Vec<Lib>,
    #[serde(default)]
    shared: Shared,
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lib {
    #[serde(default)]
    path: String,
    #[serde(default)]
    code_id: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Shared {
    string_array: Option<Vec<String>>,
    stack_table: Option<StackTable>,
    frame_table: Option<FrameTable>,
    func_table: Option<FuncTable>,
    resource_table: Option<ResourceTable>,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    #[serde(default)]
    name: String,
    #[serde(default)]
    process_name: Option<String>,
    pid: Pid,
    #[serde(default)]
    native_allocations: Option<Allocations>,
    #[serde(default)]
    string_array: Option<Vec<String>>,
    #[serde(default)]
    stack_table: Option<StackTable>,
    #[serde(default)]
    frame_table: Option<FrameTable>,
    #[serde(default)]
    func_table: Option<FuncTable>,
    #[serde(default)]
    resource_table: Option<ResourceTable>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocations {
    time: Vec<f64>,
    weight: Vec<i64>,
    stack: Vec<Option<usize>>,
    #[serde(default)]
    memory_address: Option<Vec<u64>>,
    #[serde(default)]
    thread_id: Option<Vec<Pid>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StackTable {
    frame: Vec<usize>,
    /// The index of the calling stack of each. Before version 66.
    prefix: Vec<Option<usize>>,
    /// The distance to it; 0: there is none.
    prefix_offset: Option<Vec<usize>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FrameTable {
    func: Vec<usize>,
    /// The address in the library; -1: none.
    address: Vec<Option<i64>>,
    inline_depth: Vec<u32>,
    line: Vec<Option<u32>>,
    /// Since version 70; -1: none.
    lib: Option<Vec<i64>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FuncTable {
    name: Vec<usize>,
    resource: Vec<i64>,
    source: Vec<Option<usize>>,
    /// The file of each function. Before version 58.
    file_name: Vec<Option<usize>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceTable {
    lib: Vec<Option<i64>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Sources {
    filename: Vec<usize>,
}

/// Returns the version of the format; `None`: it is another format.
pub(super) fn version(bytes: &[u8]) -> Result<Option<u32>, ReadError> {
    json::read::<Head>(bytes).map(|head| head.meta.preprocessed_profile_version)
}

pub(super) fn read(bytes: &[u8], version: u32, rows: &mut Rows) -> Result<(), ReadError> {
    if version > VERSION_MAX {
        return Err(ReadError::new(0, format!("it is of version {version}, which is newer than {VERSION_MAX}")));
    }
    let file: File = json::read(bytes)?;
    let profile = &mut rows.gather.profile;
    (profile.start_unix_ns, profile.command) = (nanoseconds(file.meta.start_time), file.meta.product.clone());
    // Addresses are those in the library itself.
    profile.modules = file
        .libs
        .iter()
        .map(|lib| Module {
            path: lib.path.clone(),
            build_id: lib.code_id.clone().unwrap_or_default(),
            bias: Some(0),
            ..Module::default()
        })
        .collect();
    let mut of_all: HashMap<usize, usize> = HashMap::new();
    for (number, thread) in file.threads.iter().enumerate() {
        let Some(allocations) = &thread.native_allocations else { continue };
        let wrong = |reason: String| ReadError::new(0, format!("thread {number} {reason}"));
        let process = rows.process(thread.pid.0, thread.process_name.as_deref().unwrap_or(&thread.name));
        let tables = Tables::of(thread, &file).ok_or_else(|| wrong("has no tables of stacks".into()))?;
        let mut own = HashMap::new();
        let samples = if thread.stack_table.is_some() { &mut own } else { &mut of_all };
        let thread = allocations.rows(&tables, process, samples, &mut rows.gather).map_err(wrong)?;
        rows.threads.push(thread);
    }
    Ok(())
}

impl Allocations {
    /// Adds a thread's rows. `samples` has the samples of stacks that are known.
    fn rows(
        &self,
        tables: &Tables<'_>,
        process: usize,
        samples: &mut HashMap<usize, usize>,
        gather: &mut Gather,
    ) -> Result<Vec<Row>, String> {
        let length = self.time.len();
        let others = [self.weight.len(), self.stack.len(), self.memory_address.as_ref().map_or(length, Vec::len)];
        if others != [length; 3] {
            return Err("has allocations in columns that are not of one length".into());
        }
        let mut places = HashMap::new();
        let row = |at: usize| {
            let sample = match self.stack[at] {
                None => gather.sample(Vec::new(), Vec::new()),
                Some(stack) => match samples.get(&stack) {
                    Some(&known) => known,
                    None => {
                        let locations = tables.locations(stack, gather, &mut places)?;
                        let sample = gather.sample(locations, Vec::new());
                        samples.insert(stack, sample);
                        sample
                    }
                },
            };
            Ok(Row {
                time_ns: nanoseconds(self.time[at]),
                process,
                thread: self.thread_id.as_ref().and_then(|ids| ids.get(at)).map_or(0, |id| id.0),
                bytes: self.weight[at],
                address: self.memory_address.as_ref().map(|addresses| addresses[at]),
                sample,
            })
        };
        (0..length).map(row).collect()
    }
}

/// The tables that a thread's stacks are in.
struct Tables<'a> {
    strings: &'a [String],
    stacks: &'a StackTable,
    frames: &'a FrameTable,
    functions: &'a FuncTable,
    resources: Option<&'a ResourceTable>,
    sources: &'a Sources,
    libs: usize,
}

impl<'a> Tables<'a> {
    fn of(thread: &'a Thread, file: &'a File) -> Option<Tables<'a>> {
        let shared = &file.shared;
        Some(Tables {
            strings: thread.string_array.as_ref().or(shared.string_array.as_ref())?,
            stacks: thread.stack_table.as_ref().or(shared.stack_table.as_ref())?,
            frames: thread.frame_table.as_ref().or(shared.frame_table.as_ref())?,
            functions: thread.func_table.as_ref().or(shared.func_table.as_ref())?,
            resources: thread.resource_table.as_ref().or(shared.resource_table.as_ref()),
            sources: &shared.sources,
            libs: file.libs.len(),
        })
    }

    /// Returns the locations of a stack, the innermost first. Functions that were inlined at one
    /// place are one location. `places` has the locations that are known, by their frames.
    fn locations(
        &self,
        stack: usize,
        gather: &mut Gather,
        places: &mut HashMap<Vec<usize>, usize>,
    ) -> Result<Vec<usize>, String> {
        let (mut frames, mut next) = (Vec::new(), Some(stack));
        while let Some(at) = next {
            let frame = *self.stacks.frame.get(at).ok_or_else(|| format!("has no stack {at}"))?;
            frames.extend(gather.walk(std::iter::once(frame))?);
            next = match &self.stacks.prefix_offset {
                Some(offsets) => offsets.get(at).filter(|&&offset| offset > 0).map(|offset| at.wrapping_sub(*offset)),
                None => self.stacks.prefix.get(at).copied().flatten(),
            };
            if next.is_some_and(|next| next >= at) {
                return Err(format!("has a stack {at} that comes before the one around it"));
            }
        }
        let mut locations = Vec::new();
        let mut rest = &frames[..];
        while !rest.is_empty() {
            let inlined = rest.windows(2).take_while(|pair| self.is_inlined(pair[0], pair[1])).count();
            let (together, others) = rest.split_at(inlined + 1);
            rest = others;
            let place = match places.get(together) {
                Some(&known) => known,
                None => {
                    let place = gather.location(self.location(together)?);
                    places.insert(together.to_vec(), place);
                    place
                }
            };
            locations.push(place);
        }
        Ok(locations)
    }

    /// True if a frame's function was inlined into that of another frame.
    fn is_inlined(&self, inner: usize, outer: usize) -> bool {
        let depth = |frame: usize| self.frames.inline_depth.get(frame).copied().unwrap_or(0);
        depth(inner) > 0
            && depth(inner) - 1 == depth(outer)
            && self.place(inner) == self.place(outer)
            && self.place(inner).is_some()
    }

    /// Returns the library and the address of a frame.
    fn place(&self, frame: usize) -> Option<(usize, u64)> {
        let lib = match &self.frames.lib {
            Some(libs) => libs.get(frame).copied(),
            None => {
                let resource = *self.functions.resource.get(*self.frames.func.get(frame)?)?;
                *self.resources?.lib.get(usize::try_from(resource).ok()?)?
            }
        };
        let lib = usize::try_from(lib?).ok().filter(|&lib| lib < self.libs)?;
        let address = self.frames.address.get(frame).copied().flatten()?;
        Some((lib, u64::try_from(address).ok()?))
    }

    /// Returns the location of frames at one place.
    fn location(&self, frames: &[usize]) -> Result<Location, String> {
        let place = frames.first().and_then(|&frame| self.place(frame));
        let functions = frames.iter().map(|&frame| self.function(frame)).collect::<Result<Vec<Frame>, String>>()?;
        Ok(match place {
            // The function was not looked up.
            Some((lib, address)) if functions.iter().all(|it| it.function.starts_with("0x")) => {
                Location { module: Some(lib), address, frames: Vec::new() }
            }
            Some((lib, address)) => Location { module: Some(lib), address, frames: functions },
            None => Location { module: None, address: 0, frames: functions },
        })
    }

    fn function(&self, frame: usize) -> Result<Frame, String> {
        let missing = || format!("has a frame {frame} of a function that is not there");
        let func = *self.frames.func.get(frame).ok_or_else(missing)?;
        let string = |at: Option<&usize>| at.and_then(|&at| self.strings.get(at));
        let name = string(self.functions.name.get(func)).ok_or_else(missing)?;
        let source = self.functions.source.get(func).copied().flatten();
        let file = source.and_then(|source| string(self.sources.filename.get(source)));
        let file = file.or_else(|| string(self.functions.file_name.get(func)?.as_ref()));
        Ok(Frame {
            function: name.clone(),
            full_name: name.clone(),
            known: true,
            file: file.cloned().unwrap_or_default(),
            line: self.frames.line.get(frame).copied().flatten().unwrap_or(0),
        })
    }
}
