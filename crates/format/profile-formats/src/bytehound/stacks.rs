//! Stacks: addresses in modules, or names.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};

use super::header::sized;
use crate::gather::{Gather, Loaded};
use crate::input::{Input, Step};
use crate::maps;
use crate::profile::{Frame, Location, Module, Profile};

/// The path under which the list of mappings is in a file.
const MAPS: &str = "/proc/self/maps";
/// The maximum length of the part of a program that is kept for its build ID, in bytes. Linkers
/// place the note directly after the program headers.
const PROGRAM_HEAD: u64 = 64 << 10;
/// The number of a string that is missing.
const NO_STRING: u32 = u32::MAX;
/// The number of frames of the previous stack that a partial one replaces, if it replaces all.
const ALL_FRAMES: u32 = u32::MAX;

/// The stacks that have been read, and the modules in which their addresses lie.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    gather: Gather,
    /// By bytehound's numbers.
    stacks: HashMap<u64, Stack, RandomState>,
    /// The modules of the latest list of mappings.
    loaded: Loaded,
    /// Indices of all modules.
    modules: HashMap<Module, usize>,
    /// Build IDs by path, in hexadecimal.
    build_ids: HashMap<String, String>,
    /// The latest stack of each thread, from which its next partial one differs.
    previous: HashMap<u32, Vec<u64>>,
    strings: HashMap<u32, String>,
    decoded: Vec<DecodedFrame>,
    decoded_stacks: u64,
}

/// A frame of a postprocessed file.
#[derive(Clone, Copy, Debug)]
struct DecodedFrame {
    place: usize,
    /// True if it is in bytehound's library.
    is_own: bool,
}

/// A stack, before and after it first allocates.
#[derive(Debug)]
enum Stack {
    Places(Vec<usize>),
    Sample(usize),
}

impl Stacks {
    /// Returns the sample of a stack, if the stack is known.
    pub(super) fn sample(&mut self, number: u64) -> Option<usize> {
        let stack = self.stacks.get_mut(&number)?;
        if let Stack::Places(places) = stack {
            *stack = Stack::Sample(self.gather.sample(std::mem::take(places), Vec::new()));
        }
        match *stack {
            Stack::Sample(sample) => Some(sample),
            Stack::Places(_) => None,
        }
    }

    /// Reads a file: the list of mappings, a program, or one that is not needed.
    pub(super) fn file(&mut self, input: &mut Input<'_>, is_64: bool) -> Step<()> {
        input.skip(8)?;
        let path = sized(input)?;
        let length = if is_64 { input.u64()? } else { input.u32()?.into() };
        if path == MAPS {
            let text = input.bytes(length)?;
            self.set_loaded(&String::from_utf8_lossy(&text));
            return Ok(());
        }
        let head = input.bytes(length.min(PROGRAM_HEAD))?;
        if let Some(build_id) = build_id(&head) {
            self.build_ids.insert(path, build_id);
        }
        input.skip(length - head.len() as u64)
    }

    fn set_loaded(&mut self, text: &str) {
        self.loaded.clear();
        for module in maps::modules(text.lines()) {
            let (start, end) = (module.start, module.end);
            let modules = &mut self.gather.profile.modules;
            let at = *self.modules.entry(module).or_insert_with_key(|module| {
                modules.push(module.clone());
                modules.len() - 1
            });
            self.loaded.insert(start, end, at);
        }
    }

    /// Reads a stack of addresses.
    pub(super) fn backtrace(&mut self, input: &mut Input<'_>, address_size: usize) -> Step<()> {
        let number = input.u64()?;
        let stack = addresses(input, address_size)?;
        self.add(input, number, &stack)
    }

    /// Reads a stack that shares its outermost addresses with the previous one of its thread.
    pub(super) fn partial_backtrace(&mut self, input: &mut Input<'_>, address_size: usize) -> Step<()> {
        let (number, thread, replaced) = (input.u64()?, input.u32()?, input.u32()?);
        let mut stack = addresses(input, address_size)?;
        let previous = self.previous.remove(&thread).unwrap_or_default();
        if replaced != ALL_FRAMES {
            stack.extend(previous.iter().skip(replaced as usize));
        }
        self.add(input, number, &stack)?;
        self.previous.insert(thread, stack);
        Ok(())
    }

    /// Adds a stack of return addresses, the innermost first, without bytehound's own functions.
    fn add(&mut self, input: &Input<'_>, number: u64, stack: &[u64]) -> Step<()> {
        let modules = &self.gather.profile.modules;
        let is_own = |returns_to: &&u64| {
            let module = self.loaded.find(returns_to.wrapping_sub(1)).map(|at| &modules[at].path);
            module.is_some_and(|path| is_own_library(path))
        };
        let own = stack.iter().take_while(is_own).count();
        let outwards = self.gather.walk(own..stack.len()).or_else(|reason| input.wrong(reason))?;
        let places = outwards.into_iter().map(|at| {
            let address = stack[at].wrapping_sub(1);
            let module = self.loaded.find(address);
            self.gather.location(Location { module, address, frames: Vec::new() })
        });
        let places = places.collect();
        self.stacks.insert(number, Stack::Places(places));
        Ok(())
    }

    /// Reads a string and its number.
    pub(super) fn string(&mut self, input: &mut Input<'_>) -> Step<()> {
        let (number, string) = (input.u32()?, sized(input)?);
        self.strings.insert(number, string);
        Ok(())
    }

    /// Reads a function, at an address and with a name, if it is known.
    pub(super) fn decoded_frame(&mut self, input: &mut Input<'_>) -> Step<()> {
        let address = input.u64()?;
        let [library, raw_function, function] = [input.u32()?, input.u32()?, input.u32()?];
        let [source, line, _column] = [input.u32()?, input.u32()?, input.u32()?];
        let _is_inline = input.flag()?;
        let string = |number: u32| if number == NO_STRING { None } else { self.strings.get(&number) };
        let name = string(function).or_else(|| string(raw_function)).cloned().unwrap_or_default();
        let frame = Frame {
            function: name.clone(),
            known: !name.is_empty(),
            full_name: name,
            file: string(source).cloned().unwrap_or_default(),
            line: if line == u32::MAX { 0 } else { line },
        };
        let frames = if frame.known { vec![frame] } else { Vec::new() };
        let place = self.gather.location(Location { module: None, address, frames });
        let is_own = string(library).is_some_and(|path| is_own_library(path));
        self.decoded.push(DecodedFrame { place, is_own });
        Ok(())
    }

    /// Reads a stack of decoded frames. They are numbered in the order in which they come.
    pub(super) fn decoded_backtrace(&mut self, input: &mut Input<'_>) -> Step<()> {
        let mut places = Vec::new();
        for _ in 0..input.u32()? {
            let Some(&DecodedFrame { place, is_own }) = self.decoded.get(input.u32()? as usize) else {
                return input.wrong("a frame of a stack that has not come yet");
            };
            if !is_own || !places.is_empty() {
                places.push(place);
            }
        }
        self.stacks.insert(self.decoded_stacks, Stack::Places(places));
        self.decoded_stacks += 1;
        Ok(())
    }

    /// Returns the profile with all samples.
    pub(super) fn finish(self) -> Profile {
        let mut profile = self.gather.profile;
        for module in &mut profile.modules {
            module.build_id = self.build_ids.get(&module.path).cloned().unwrap_or_default();
        }
        profile
    }
}

/// True for bytehound's own library, by its path or its name. It was called memory-profiler once.
fn is_own_library(path: &str) -> bool {
    path.contains("libbytehound") || path.contains("libmemory_profiler")
}

fn addresses(input: &mut Input<'_>, size: usize) -> Step<Vec<u64>> {
    let count = input.u32()?;
    let mut addresses = Vec::new();
    for _ in 0..count {
        addresses.push(if size == size_of::<u32>() { input.u32()?.into() } else { input.u64()? });
    }
    Ok(addresses)
}

/// Returns the build ID of a program in hexadecimal, by its first bytes.
fn build_id(head: &[u8]) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(head).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, head).ok()?;
    let mut notes = segments.iter().filter_map(|segment| segment.notes(endian, head).ok()?);
    notes.find_map(|mut notes| {
        while let Some(note) = notes.next().ok()? {
            if note.name() == object::elf::ELF_NOTE_GNU && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID {
                return Some(note.desc().iter().map(|byte| format!("{byte:02x}")).collect());
            }
        }
        None
    })
}
