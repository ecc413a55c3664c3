//! The findings that the checks have written in the processes, with names instead of addresses.
//!
//! The files come from memory that the program can have overwritten, so nothing in them is trusted:
//! lines that make no sense are skipped.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;

use heapledger_symbols::{ModuleRef, NameSource, Symbolizer};
use memmap2::Mmap;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, elf};
use serde::Serialize;

use crate::args::Symbols;
use crate::format::{bytes, counted};
use crate::symbols::symbolizer;

/// Limits on what is read: frames of a stack, and findings of a process.
const FRAMES_MAX: usize = 1024;
const REPORTS_MAX: usize = 256;

/// The findings in all processes.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) misuses: Vec<Misuse>,
    pub(crate) beyond: u64,
    pub(crate) missed: u64,
    /// The number of processes that ran without checks, because they have allocators of their own.
    pub(crate) unchecked: u64,
    /// Processes whose live blocks were not searched when they ended.
    pub(crate) unverified: Vec<Unverified>,
    /// Processes that entered a sandbox: nothing was reported in them from then on.
    pub(crate) confined: Vec<Unverified>,
    /// Libraries that stopped the checks: nothing was reported in a process after it opened one.
    pub(crate) stopped_by: BTreeSet<String>,
    /// A hint how to get better names.
    pub(crate) hint: Option<String>,
}

/// A process that ended before its live blocks could be searched, or that still runs.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Unverified {
    pub(crate) pid: u64,
    pub(crate) name: String,
}

/// A finding, which occurred once or more often.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Misuse {
    kind: Kind,
    /// The address at the first occurrence, as is the block.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(test, schemars(with = "String"))]
    address: u64,
    /// The requested size of the block; `None` if there is no block.
    bytes: Option<u64>,
    #[serde(flatten)]
    detail: Detail,
    pub(crate) times: u64,
    /// The stacks, the latest first: the wrong free, the first free, the allocation.
    pub(crate) stacks: Vec<Stack>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Kind {
    DoubleFree,
    NoBlock,
    Mismatch,
    WrongSize,
    Overwrite,
}

/// Details that some kinds of misuse have.
#[derive(Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Detail {
    /// If a pointer to no block was freed: its offset into the block that it points into.
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<u64>,
    /// The size that the wrong free passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<u64>,
    /// The first and the last byte that were written past the end, as offsets from the block's
    /// start.
    #[serde(skip_serializing_if = "Option::is_none")]
    overwritten: Option<[u64; 2]>,
}

/// A call, and the stack that made it.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Stack {
    role: Role,
    /// The function that was called, such as `operator delete[]`.
    by: String,
    pub(crate) frames: Vec<Frame>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Role {
    Freed,
    First,
    Allocated,
}

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) module: Option<String>,
    inlined: bool,
    /// True if the function has a name, not only an offset.
    #[serde(skip)]
    pub(crate) is_known: bool,
}

fn as_hex<S: serde::Serializer>(address: &u64, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{address:#x}"))
}

impl Misuse {
    pub(crate) fn title(&self) -> String {
        let by = |role| self.stacks.iter().find(|stack| stack.role == role).map_or("", |stack| stack.by.as_str());
        let block = match self.bytes {
            Some(size) => format!("a block of {}", counted(size, "byte", "bytes")),
            None => "a block".to_owned(),
        };
        match (self.kind, &self.detail) {
            (Kind::DoubleFree, _) => format!("double free of {block}"),
            (Kind::Mismatch, _) => {
                format!("mismatched free of {block}: {} after {}", by(Role::Freed), by(Role::Allocated))
            }
            (Kind::WrongSize, detail) => {
                format!("free of {block} as one of {}", bytes_of(detail.said.unwrap_or(0)))
            }
            (Kind::NoBlock, Detail { inside: Some(inside), .. }) => {
                format!("free of no block: {} into {block}", counted(*inside, "byte", "bytes"))
            }
            (Kind::NoBlock, _) => format!("free of no block: {:#x}", self.address),
            (Kind::Overwrite, Detail { overwritten: Some([first, last]), .. }) if first == last => {
                format!("write past the end of {block}: byte {first}")
            }
            (Kind::Overwrite, detail) => {
                let [first, last] = detail.overwritten.unwrap_or_default();
                format!("write past the end of {block}: bytes {first} to {last}")
            }
        }
    }

    /// Returns the role that a stack has in this finding, in words.
    pub(crate) fn role(&self, stack: &Stack) -> String {
        let what = match (self.kind, stack.role) {
            (_, Role::Allocated) => "allocated",
            (_, Role::First) => "freed before",
            (Kind::DoubleFree, Role::Freed) => "freed again",
            (Kind::Overwrite, Role::Freed) => "noticed when it was freed",
            (_, Role::Freed) => "freed",
        };
        format!("{what} by {}", stack.by)
    }

    /// True if the other one is the same finding, in another process or for another block.
    fn is_like(&self, other: &Misuse) -> bool {
        (self.kind, &self.detail) == (other.kind, &other.detail)
            && (self.bytes, &self.stacks) == (other.bytes, &other.stacks)
    }
}

fn bytes_of(size: u64) -> String {
    if size < 1024 { counted(size, "byte", "bytes") } else { bytes(size) }
}

impl Findings {
    /// True if the checks covered all processes completely.
    pub(crate) fn is_all(&self) -> bool {
        self.unverified.is_empty()
            && self.confined.is_empty()
            && self.stopped_by.is_empty()
            && self.missed == 0
            && self.unchecked == 0
    }

    /// Reads the files that the checks wrote, one for each process.
    pub(crate) fn read(files: &[String], symbols: &Symbols) -> Findings {
        let mut findings = Findings::default();
        let mut names = Names::new(symbolizer(&symbols.files));
        for file in files {
            let mut of_process: Vec<(usize, Misuse)> = Vec::new();
            let (mut unverified, mut is_stopped, mut is_confined) = (None, false, false);
            let mut lines = file.lines();
            while let Some(line) = lines.next() {
                let words: Vec<&str> = line.split(' ').collect();
                match *words.as_slice() {
                    ["report", number, kind, address, size, first, second, _] => {
                        let numbers = [number, address, size, first, second].map(|word| word.parse::<u64>().ok());
                        let (Some(kind), [Some(number), Some(address), Some(size), Some(first), Some(second)]) =
                            (kind_of(kind), numbers)
                        else {
                            continue;
                        };
                        // The stacks, then after `maps` the mappings, up to an empty line.
                        let body: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
                        let middle = body.iter().position(|&line| line == "maps").unwrap_or(body.len());
                        let (stacks, maps) = body.split_at(middle);
                        let maps = Maps::parse(maps);
                        let stacks: Vec<Stack> =
                            stacks.iter().filter_map(|line| stack(line, &maps, &mut names)).collect();
                        let is_block = stacks.iter().any(|stack| stack.role == Role::Allocated);
                        let bytes = Some(size).filter(|_| is_block);
                        let detail = match kind {
                            Kind::NoBlock => Detail { inside: Some(first).filter(|_| is_block), ..Detail::default() },
                            Kind::WrongSize => Detail { said: Some(first), ..Detail::default() },
                            Kind::Overwrite => {
                                let range = [size.saturating_add(first), size.saturating_add(second).saturating_sub(1)];
                                Detail { overwritten: Some(range), ..Detail::default() }
                            }
                            _ => Detail::default(),
                        };
                        if of_process.len() < REPORTS_MAX {
                            let misuse = Misuse { kind, address, bytes, detail, times: 1, stacks };
                            of_process.push((number as usize, misuse));
                        }
                    }
                    ["times", number, times] => {
                        let misuse = of_process.iter_mut().find(|(own, _)| number.parse() == Ok(*own));
                        if let (Some((_, misuse)), Ok(times)) = (misuse, times.parse::<u64>()) {
                            misuse.times = misuse.times.max(times);
                        }
                    }
                    ["end", beyond, missed] => {
                        findings.beyond = findings.beyond.saturating_add(beyond.parse().unwrap_or(0));
                        findings.missed = findings.missed.saturating_add(missed.parse().unwrap_or(0));
                    }
                    ["begun", pid, ..] => {
                        let name = line.splitn(3, ' ').nth(2).unwrap_or("").to_owned();
                        is_confined = false;
                        unverified = pid.parse().ok().map(|pid| Unverified { pid, name });
                    }
                    ["stopped", ..] => {
                        is_stopped = true;
                        findings.stopped_by.extend(line.splitn(3, ' ').nth(2).map(str::to_owned));
                    }
                    ["confined"] => is_confined = true,
                    ["looked", _] => unverified = None,
                    ["unchecked"] => (is_stopped, findings.unchecked) = (true, findings.unchecked + 1),
                    _ => {}
                }
            }
            let processes = if is_confined { &mut findings.confined } else { &mut findings.unverified };
            processes.extend(unverified.filter(|_| !is_stopped));
            for (_, misuse) in of_process {
                match findings.misuses.iter_mut().find(|known| known.is_like(&misuse)) {
                    Some(known) => known.times = known.times.saturating_add(misuse.times),
                    None => findings.misuses.push(misuse),
                }
            }
        }
        findings.hint = names.hint();
        findings
    }
}

fn kind_of(word: &str) -> Option<Kind> {
    Some(match word {
        "double-free" => Kind::DoubleFree,
        "no-block" => Kind::NoBlock,
        "mismatch" => Kind::Mismatch,
        "wrong-size" => Kind::WrongSize,
        "overwrite" => Kind::Overwrite,
        _ => return None,
    })
}

fn stack(line: &str, maps: &Maps, names: &mut Names) -> Option<Stack> {
    let (addresses, by) = line.split_once(" by ")?;
    let mut words = addresses.split(' ');
    let role = match words.next()? {
        "freed" => Role::Freed,
        "first" => Role::First,
        "allocated" => Role::Allocated,
        _ => return None,
    };
    let addresses = words.take(FRAMES_MAX).filter_map(|word| u64::from_str_radix(word, 16).ok());
    let frames = addresses.flat_map(|address| names.frames(maps, address)).collect();
    Some(Stack { role, by: by.to_owned(), frames })
}

/// The files that were mapped, and their addresses.
struct Maps<'a>(Vec<Mapping<'a>>);

struct Mapping<'a> {
    start: u64,
    end: u64,
    offset: u64,
    path: &'a str,
}

impl<'a> Maps<'a> {
    /// Parses lines of `/proc/PID/maps`.
    fn parse(lines: &[&'a str]) -> Maps<'a> {
        let mapping = |line: &&'a str| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let (_, rest) = rest.split_once(' ')?;
            let (offset, rest) = rest.split_once(' ')?;
            let path = rest.find('/').and_then(|at| rest.get(at..))?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some(Mapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, path })
        };
        Maps(lines.iter().filter_map(mapping).collect())
    }

    /// Returns the file that an address was in, and the offset in the file.
    fn find(&self, address: u64) -> Option<(&'a str, u64)> {
        let mapping = self.0.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))?;
        Some((mapping.path, (address - mapping.start).checked_add(mapping.offset)?))
    }
}

/// Finds the functions at addresses.
struct Names {
    symbolizer: Symbolizer,
    /// The segments of each file: offset and length in the file, address.
    segments: HashMap<String, Vec<[u64; 3]>>,
    /// Paths of files for which better names may be available.
    poor: BTreeSet<String>,
}

impl Names {
    fn new(symbolizer: Symbolizer) -> Names {
        Names { symbolizer, segments: HashMap::new(), poor: BTreeSet::new() }
    }

    /// Returns the functions at an address, innermost first.
    fn frames(&mut self, maps: &Maps<'_>, address: u64) -> Vec<Frame> {
        let unknown = |module: Option<&str>| Frame {
            function: format!("{address:#x}"),
            file: None,
            line: None,
            module: module.map(str::to_owned),
            inlined: false,
            is_known: false,
        };
        let Some((path, at)) = maps.find(address) else { return vec![unknown(None)] };
        let segments = self.segments.entry(path.to_owned()).or_insert_with(|| segments(path).unwrap_or_default());
        let segment =
            segments.iter().find(|[offset, length, _]| at.checked_sub(*offset).is_some_and(|at| at < *length));
        let Some(&[offset, _, start]) = segment else { return vec![unknown(Some(path))] };
        let frames = self.symbolizer.frames(module(path), start.wrapping_add(at - offset));
        let frame = |frame: &heapledger_symbols::SymbolFrame| Frame {
            function: frame.function.short().to_owned(),
            file: frame.file.as_ref().map(|file| file.to_string()),
            line: frame.line,
            module: Some(path.to_owned()),
            inlined: frame.inlined,
            is_known: frame.source != NameSource::None,
        };
        // No debug information exists for `_start`, the caller of `main`.
        if frames.iter().any(|frame| frame.line.is_none() && frame.function.short() != "_start") {
            self.poor.insert(path.to_owned());
        }
        frames.iter().map(frame).collect()
    }

    /// Returns a hint how to get better names, for the first file that has one.
    fn hint(&self) -> Option<String> {
        self.poor.iter().find_map(|path| self.symbolizer.hint(module(path)))
    }
}

/// Returns the file without a build id to check: it ran just now, so it is unchanged.
fn module(path: &str) -> ModuleRef<'_> {
    ModuleRef { path: path.as_bytes(), build_id: b"" }
}

fn segments(path: &str) -> Option<Vec<[u64; 3]>> {
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|data| data.is_file()))?;
    // SAFETY: `Mmap::map` asks that the file is not changed or truncated while it is mapped. The
    // mapping is only read. If another process truncates the file meanwhile, this command ends, as
    // it would where symbols are read.
    let bytes = unsafe { Mmap::map(&file) }.ok()?;
    let elf = ElfFile64::<Endianness>::parse(&*bytes).ok()?;
    let endian = elf.endian();
    let loaded = elf.elf_program_headers().iter().filter(|header| header.p_type(endian) == elf::PT_LOAD);
    Some(loaded.map(|header| [header.p_offset(endian), header.p_filesz(endian), header.p_vaddr(endian)]).collect())
}
