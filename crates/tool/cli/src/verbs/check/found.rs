//! The findings that the checks have written in the processes, with names instead of addresses.
//!
//! The files come from memory that the program can have overwritten, so nothing in them is trusted:
//! lines that make no sense are skipped.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::args::Symbols;
use crate::format::{bytes, counted};
use crate::mapped_names::{Frame, Maps, Names};
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
    /// A write in front of a block.
    Underwrite,
    /// A write to a block that was freed.
    AfterFree,
    /// A fault at an address that was read from a block after it was freed.
    FollowedFreed,
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
    /// The first and the last byte that were written where they should not, as offsets from the
    /// block's start: negative in front of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    overwritten: Option<[i64; 2]>,
    /// The first of these bytes, at most 16, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
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
    Accessed,
    Freed,
    First,
    Allocated,
}

impl Stack {
    /// Returns the call that the program made: the function that was called, or, if that is one of
    /// C, the operator that has called it, without its parameters.
    fn called(&self) -> &str {
        let is_operator = |name: &&str| name.starts_with("operator ");
        if is_operator(&self.by.as_str()) {
            return &self.by;
        }
        let operators = self.frames.iter().map(|frame| frame.function.as_str()).take_while(is_operator);
        operators.last().map_or(self.by.as_str(), |name| name.split('(').next().unwrap_or(name))
    }
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
                let freed = if by(Role::First).is_empty() { "" } else { " that was freed" };
                format!("free of no block: {} into {block}{freed}", counted(*inside, "byte", "bytes"))
            }
            (Kind::NoBlock, _) => format!("free of no block: {:#x}", self.address),
            (Kind::Overwrite, detail) => format!("write past the end of {block}: {}", detail.bytes()),
            (Kind::Underwrite, detail) => format!("write in front of {block}: {}", detail.bytes()),
            (Kind::FollowedFreed, _) => format!("use of {block} that was freed: its contents were used as an address"),
            (Kind::AfterFree, detail) => format!("write after the free of {block}: {}", detail.bytes()),
        }
    }

    /// Returns the role that a stack has in this finding, in words.
    pub(crate) fn role(&self, stack: &Stack) -> String {
        let what = match (self.kind, stack.role) {
            (_, Role::Accessed) => "ended",
            (_, Role::Allocated) => "allocated",
            (_, Role::First) => "freed before",
            (Kind::DoubleFree, Role::Freed) => "freed again",
            (Kind::Overwrite | Kind::Underwrite, Role::Freed) => "noticed when it was freed",
            (_, Role::Freed) => "freed",
        };
        format!("{what} by {}", stack.by)
    }

    /// True if this is a mismatch in name only. A library may have copies of C++'s operators of its
    /// own, which nobody else sees: what is seen is the call of malloc or free that they make.
    fn is_of_hidden_operator(&self) -> bool {
        let called = |role| self.stacks.iter().find(|stack| stack.role == role).map_or("", Stack::called);
        let (allocated, freed) = (called(Role::Allocated), called(Role::Freed));
        let is_pair = [("operator new", "operator delete"), ("operator new[]", "operator delete[]")]
            .iter()
            .any(|(new, delete)| (allocated, freed) == (new, delete));
        self.kind == Kind::Mismatch && is_pair
    }

    /// True if the other one is the same finding, in another process or for another block.
    fn is_like(&self, other: &Misuse) -> bool {
        (self.kind, &self.detail) == (other.kind, &other.detail)
            && (self.bytes, &self.stacks) == (other.bytes, &other.stacks)
    }
}

impl Detail {
    /// Returns the range of bytes that were overwritten, and what they were found to be.
    fn bytes(&self) -> String {
        let [first, last] = self.overwritten.unwrap_or_default();
        let range = if first == last { format!("byte {first}") } else { format!("bytes {first} to {last}") };
        match &self.found {
            Some(found) if found.len() as i64 / 2 > last - first => format!("{range}, found {found}"),
            Some(found) => format!("{range}, found {found}…"),
            None => range,
        }
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
                        let numbers = [number, address, size].map(|word| word.parse::<u64>().ok());
                        let range = [first, second].map(|word| word.parse::<i64>().ok());
                        let (Some(kind), [Some(number), Some(address), Some(size)], [Some(first), Some(second)]) =
                            (kind_of(kind), numbers, range)
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
                        let found = body.iter().find_map(|line| line.strip_prefix("found ")).and_then(hexadecimal);
                        let detail = detail(kind, size, [first, second], found, is_block);
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
            for (_, misuse) in of_process.into_iter().filter(|(_, misuse)| !misuse.is_of_hidden_operator()) {
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

/// Returns the details of a finding, of the two numbers that its line has.
fn detail(kind: Kind, size: u64, [first, second]: [i64; 2], found: Option<String>, is_block: bool) -> Detail {
    let start = if kind == Kind::Overwrite { i64::try_from(size).unwrap_or(i64::MAX) } else { 0 };
    match kind {
        Kind::NoBlock => Detail { inside: u64::try_from(first).ok().filter(|_| is_block), ..Detail::default() },
        Kind::WrongSize => Detail { said: Some(first as u64), ..Detail::default() },
        Kind::Overwrite | Kind::Underwrite | Kind::AfterFree => {
            let range = [start.saturating_add(first), start.saturating_add(second).saturating_sub(1)];
            Detail { overwritten: Some(range), found, ..Detail::default() }
        }
        Kind::DoubleFree | Kind::Mismatch | Kind::FollowedFreed => Detail::default(),
    }
}

/// Returns the text if it is bytes in hexadecimal, at most 16.
fn hexadecimal(text: &str) -> Option<String> {
    let is_valid = (2..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_valid.then(|| text.to_owned())
}

fn kind_of(word: &str) -> Option<Kind> {
    Some(match word {
        "double-free" => Kind::DoubleFree,
        "no-block" => Kind::NoBlock,
        "mismatch" => Kind::Mismatch,
        "wrong-size" => Kind::WrongSize,
        "overwrite" => Kind::Overwrite,
        "underwrite" => Kind::Underwrite,
        "after-free" => Kind::AfterFree,
        "followed-freed" => Kind::FollowedFreed,
        _ => return None,
    })
}

fn stack(line: &str, maps: &Maps, names: &mut Names) -> Option<Stack> {
    let (addresses, by) = line.split_once(" by ")?;
    let mut words = addresses.split(' ');
    let role = match words.next()? {
        "accessed" => Role::Accessed,
        "freed" => Role::Freed,
        "first" => Role::First,
        "allocated" => Role::Allocated,
        _ => return None,
    };
    let addresses = words.take(FRAMES_MAX).filter_map(|word| u64::from_str_radix(word, 16).ok());
    let frames = addresses.flat_map(|address| names.frames(maps, address)).collect();
    Some(Stack { role, by: by.to_owned(), frames })
}
