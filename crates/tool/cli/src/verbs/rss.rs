//! `heapledger rss`: the parts of a process's resident memory.

mod advice;
mod json;
pub(crate) mod recorded;

use std::error::Error;

use heapledger_report_format::{Row, Tree};
use heapledger_resident::{
    Allocator, HeapOwner, IdleMapping, IdleMemory, PageSum, PageUse, PartGroup, PartKind, ResidentError,
    ResidentMemory, ResidentPart,
};

pub(crate) use self::json::RssJson;
pub(crate) use self::recorded::run_command;

use crate::args::Rss;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, counted, duration, percent};
use crate::json::document::Form;
use crate::messages::warn;
use crate::output::Output;
use crate::views::table::limit;

pub(crate) fn run(arguments: &Rss, out: &mut Output) -> Result<()> {
    if let Some(process) = arguments.process().filter(|_| !arguments.processes.is_empty()) {
        let what = format_args!("{process} is a process, and --process selects one of a recording");
        return Err(Failure::new(Exit::Usage, what).hint(format_args!("heapledger rss {process}")));
    }
    if arguments.idle.is_some() && (arguments.process().is_none() || arguments.by.is_some() || arguments.at.is_some()) {
        let what = "--idle takes the number of a process, and neither --by nor --at";
        return Err(Failure::new(Exit::Usage, what).hint("heapledger rss PID --idle 10s"));
    }
    match arguments.process() {
        Some(process) if arguments.by.is_none() && arguments.at.is_none() => {
            running(arguments, process, out)?;
            if let Some(file) = recorded::snapshot_of(process) {
                recorded::notify_of_snapshot(&file, process);
            }
            Ok(())
        }
        _ => recorded::run(arguments, out),
    }
}

/// Shows a process that runs.
fn running(arguments: &Rss, process: u32, out: &mut Output) -> Result<()> {
    // Before the heap is read, which touches its pages.
    let idle = arguments.idle.map(|time| IdleMemory::watch(process, time)).transpose();
    let idle = idle.map_err(|error| failure("rss", error))?;
    let memory = ResidentMemory::of_process(process).map_err(|error| failure("rss", error))?;
    if let Some(path) = &arguments.output {
        out.direct(path, arguments.force, &[])?;
    }
    warn_of_unread(&memory);
    warn_of_layouts(&memory);
    if !memory.knows_zeroes {
        let what = "this kernel does not tell pages of zeroes from others: in heaps they are counted";
        warn(Code::ZeroesUnknown, format_args!("{what}, so that the parts may be more than the whole"));
    }
    if arguments.json {
        return out.document(&RssJson::new(process, &memory, idle.as_ref()), Form::Json);
    }
    print(process, &memory, idle.as_ref(), limit(arguments.rows), out)
}

/// Warns of parts of the heap that could not be walked.
pub(crate) fn warn_of_unread(memory: &ResidentMemory) {
    if let Some(unread) = memory.parts.iter().find(|part| part.kind == PartKind::GlibcUnread) {
        let unread = bytes(unread.mapped);
        warn(Code::HeapUnread, format_args!("{unread} of the heap could not be walked: it changes, or is damaged"));
    }
}

/// Warns of heaps of other allocators that were not read, or not completely.
pub(crate) fn warn_of_layouts(memory: &ResidentMemory) {
    for heap in memory.allocators.iter().filter(|heap| heap.unread.bytes > 0) {
        let (unread, name) = (bytes(heap.unread.bytes), heap.allocator.name());
        warn(Code::LayoutUnknown, format_args!("{unread} of {name}'s heap make no sense: it changes, or is damaged"));
    }
    for name in memory.allocators_unread.iter().map(|allocator| allocator.name()) {
        let what = "its memory is private memory, not divided into used and free";
        warn(Code::LayoutUnknown, format_args!("the heap of {name} was not found or has another layout: {what}"));
    }
}

/// Returns the failure of a verb that reads the resident memory of a process.
pub(crate) fn failure(verb: &str, error: ResidentError) -> Failure {
    let obstacle = match error {
        ResidentError::NoProcess(_) => Some(Obstacle::NoProcess),
        ResidentError::NotAllowed(_) => Some(Obstacle::NotAllowed),
        _ => None,
    };
    unreadable(verb, error, obstacle)
}

/// The usual reasons why a process cannot be read from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Obstacle {
    NoProcess,
    NotAllowed,
}

/// Returns the failure of a verb that reads a process from outside, with the hint against a usual
/// reason.
pub(crate) fn unreadable(verb: &str, error: impl Error + Send + Sync + 'static, obstacle: Option<Obstacle>) -> Failure {
    let failure = Failure::from_error(Exit::Unreadable, error);
    match obstacle {
        Some(Obstacle::NoProcess) => failure.hint("`pgrep NAME` tells the numbers of the processes of a name"),
        Some(Obstacle::NotAllowed) => failure.code(Code::ResidentDenied).hint(format_args!(
            "sudo heapledger {verb} PID; or allow debuggers: sudo sysctl kernel.yama.ptrace_scope=0"
        )),
        None => failure,
    }
}

/// The groups that parts are shown in, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Glibc,
    Heapledger,
    Other(Allocator),
    Files,
    Stacks,
    Private,
    Shared,
    Kernel,
}

/// Returns the groups in their order: the allocators first.
fn groups() -> impl Iterator<Item = Group> {
    let others = Allocator::ALL.into_iter().map(Group::Other);
    let rest = [Group::Private, Group::Stacks, Group::Files, Group::Shared, Group::Kernel];
    [Group::Glibc, Group::Heapledger].into_iter().chain(others).chain(rest)
}

impl Group {
    fn of(part: &ResidentPart) -> Group {
        match part.kind.group() {
            PartGroup::Heap(HeapOwner::Glibc, _) => Group::Glibc,
            PartGroup::Heap(HeapOwner::Heapledger, _) => Group::Heapledger,
            PartGroup::Heap(HeapOwner::Other, _) => {
                let named = Allocator::ALL.into_iter().find(|allocator| allocator.name() == part.name);
                named.map_or(Group::Private, Group::Other)
            }
            PartGroup::Private => Group::Private,
            PartGroup::Stacks => Group::Stacks,
            PartGroup::Files => Group::Files,
            PartGroup::Shared => Group::Shared,
            PartGroup::Kernel => Group::Kernel,
        }
    }

    fn name(self, memory: &ResidentMemory) -> String {
        let arenas = memory.glibc.as_ref().map_or(0, |heap| heap.arenas.len() as u64);
        match self {
            Group::Glibc => format!("heap of glibc's malloc, in {}", counted(arenas, "arena", "arenas")),
            Group::Heapledger => "heap of Heapledger's allocator".to_owned(),
            Group::Other(allocator) => {
                let heaps = memory.allocators.iter().filter(|heap| heap.allocator == allocator);
                let arenas = counted(heaps.map(|heap| heap.arenas).sum(), "arena", "arenas");
                format!("heap of {}, in {arenas}", allocator.name())
            }
            Group::Files => "files".to_owned(),
            Group::Stacks => "stacks".to_owned(),
            Group::Private => "other private memory".to_owned(),
            Group::Shared => "memory that processes share".to_owned(),
            Group::Kernel => "pages of the kernel".to_owned(),
        }
    }
}

/// Returns the text of a part, and the note behind it.
fn described(part: &ResidentPart, memory: &ResidentMemory) -> (String, String) {
    let chunks = counted(part.count, "chunk", "chunks");
    let knows_caches = memory.glibc.as_ref().is_some_and(|heap| heap.caches > 0);
    let blocks = counted(part.count, "block", "blocks");
    let (text, note) = match part.kind {
        PartKind::GlibcUsed if knows_caches => ("in use", chunks),
        PartKind::GlibcUsed => ("in use, or in the caches of threads", chunks),
        PartKind::GlibcMapped => ("in use, with mappings of their own", blocks),
        PartKind::GlibcCached => ("free, in the caches of threads", chunks),
        PartKind::GlibcFast => ("free, in fastbins", chunks),
        PartKind::GlibcFree => ("free, in bins", chunks),
        PartKind::GlibcTop => ("free, at the ends of heaps", String::new()),
        PartKind::GlibcBookkeeping | PartKind::HeapledgerBookkeeping => ("bookkeeping", String::new()),
        PartKind::GlibcUnread => ("not walked", String::new()),
        PartKind::HeapledgerUsed => ("in use", blocks),
        PartKind::AllocatorUsed if knows_caches_of(memory, &part.name) => ("in use", blocks),
        PartKind::AllocatorUsed => ("in use, or in the caches of threads", blocks),
        PartKind::AllocatorCached => ("free, in caches", blocks),
        PartKind::AllocatorFree => ("free, beside blocks in use", counted(part.count, "run", "runs")),
        PartKind::AllocatorDirty => ("free, whole pages that are kept", String::new()),
        PartKind::AllocatorLazy => ("free, pages that the system may take", String::new()),
        PartKind::AllocatorReturned => ("free, given back or never used", String::new()),
        PartKind::AllocatorBookkeeping => ("bookkeeping", String::new()),
        PartKind::AllocatorUnread => ("not understood", String::new()),
        PartKind::HeapledgerUnused => ("free, in runs", counted(part.count, "run", "runs")),
        PartKind::HeapledgerFree => ("free, without a run", String::new()),
        PartKind::MainStack => ("the main thread's", String::new()),
        PartKind::ThreadStack => ("of other threads", counted(part.count, "stack", "stacks")),
        PartKind::EndedStack => ("of threads that have ended", counted(part.count, "stack", "stacks")),
        _ if part.name.is_empty() => ("without a name", counted(part.count, "mapping", "mappings")),
        PartKind::File if part.private_dirty > 0 => {
            return (part.name.clone(), format!("own copies: {}", bytes(part.private_dirty)));
        }
        _ => return (part.name.clone(), String::new()),
    };
    (text.to_owned(), note)
}

/// True if the blocks that threads keep for themselves were found in an allocator's heap.
fn knows_caches_of(memory: &ResidentMemory, name: &str) -> bool {
    memory.allocators.iter().any(|heap| heap.allocator.name() == name && heap.caches > 0)
}

fn print(
    process: u32,
    memory: &ResidentMemory,
    idle: Option<&IdleMemory>,
    shown: usize,
    out: &mut Output,
) -> Result<()> {
    let whole = memory.kernel.resident;
    let name = &memory.command;
    let (resident, mapped) = (bytes(whole), bytes(memory.mapped));
    out.title(format_args!("process {process} ({name}): {resident} resident of {mapped} mapped"))?;
    out.line(format_args!("read in {}; the process was not stopped", duration(memory.duration)))?;
    out.line("")?;
    print_parts(memory, &[], shown, out)?;
    if let Some(idle) = idle {
        print_idle(idle, shown, out)?;
    }
    advice::print(memory, idle, out)
}

/// Prints the parts. `live` has the resident bytes of live blocks in each part, if they are known.
fn print_parts(memory: &ResidentMemory, live: &[u64], shown: usize, out: &mut Output) -> Result<()> {
    let whole = memory.kernel.resident;
    let mut table = Tree::new(["resident", "share", "mapped"]);
    let cells = |resident: u64, mapped: u64| [bytes(resident), percent(resident, whole), bytes(mapped)];
    for group in groups() {
        // Blocks that were freed before the part was read are not in it.
        let lives = live.iter().copied().chain(std::iter::repeat(0));
        let of_group = memory.parts.iter().zip(lives).filter(|(part, _)| Group::of(part) == group);
        let (parts, lives): (Vec<&ResidentPart>, Vec<u64>) =
            of_group.map(|(part, live)| (part, live.min(part.resident))).unzip();
        let sum = |parts: &[&ResidentPart]| {
            let add = |of: fn(&ResidentPart) -> u64| parts.iter().map(|part| of(part)).fold(0, u64::saturating_add);
            (add(|part| part.resident), add(|part| part.mapped))
        };
        let (resident, mapped) = sum(&parts);
        if resident == 0 {
            continue;
        }
        table.push(0, Row::new(group.name(memory)).cells(cells(resident, mapped)));
        let in_blocks = lives.iter().copied().fold(0, u64::saturating_add);
        if in_blocks > 0 {
            let cells = [bytes(in_blocks), percent(in_blocks, whole), String::new()];
            table.push(1, Row::new("live blocks").cells(cells));
        }
        let is_list = [Group::Files, Group::Private, Group::Shared].contains(&group);
        let (rows, more) = parts.split_at(if is_list { shown.min(parts.len()) } else { parts.len() });
        for (part, live) in rows.iter().zip(&lives).filter(|(part, live)| part.resident > **live) {
            let (text, note) = described(part, memory);
            let text = if *live > 0 { format!("{text}, beside live blocks") } else { text };
            table.push(1, Row::new(text).note(note).cells(cells(part.resident - live, part.mapped)));
        }
        let (resident, mapped) = sum(more);
        if resident > 0 {
            let text = format!("and {} more: -n 0 shows them", count(more.len() as u64));
            table.push(1, Row::new(text).cells(cells(resident, mapped)));
        }
    }
    let difference = memory.difference();
    let sign = if difference < 0 { "-" } else { "" };
    let size = difference.unsigned_abs();
    let row = [format!("{sign}{}", bytes(size)), format!("{sign}{}", percent(size, whole)), String::new()];
    table.push(0, Row::new("difference to the kernel's figure").cells(row));
    out.tree(&table)?;
    out.line("")?;
    print_page_use(memory, out)?;
    let amounts = &memory.kernel;
    let padding = memory.huge_pages.map(|huge| huge.empty).filter(|&zeroes| zeroes > 0);
    let padding = padding.map_or(String::new(), |zeroes| format!(" ({} of it zeroes)", bytes(zeroes)));
    out.line(format_args!(
        "in huge pages: {}{padding} · beside it: {} swapped, {} of page tables, {} in hugetlbfs, {} reserved",
        bytes(amounts.anonymous_huge),
        bytes(amounts.swapped),
        bytes(memory.page_tables),
        bytes(amounts.huge_tlb),
        bytes(memory.reserved),
    ))?;
    Ok(())
}

/// Prints the mappings whose pages were not touched.
fn print_idle(idle: &IdleMemory, shown: usize, out: &mut Output) -> Result<()> {
    out.line("")?;
    let mut table = Tree::new(["untouched", "share", "resident"]);
    let cells = |untouched: u64, resident: u64| [bytes(untouched), percent(untouched, idle.resident), bytes(resident)];
    let title = format!("not touched in {}", duration(idle.duration));
    table.push(0, Row::new(title).cells(cells(idle.idle, idle.resident)));
    let (rows, more) = idle.mappings.split_at(shown.min(idle.mappings.len()));
    for IdleMapping { start, name, resident, idle, .. } in rows {
        let name = if name.is_empty() { "private memory" } else { name };
        table.push(1, Row::new(name).note(format!("at {start:#x}")).cells(cells(*idle, *resident)));
    }
    if !more.is_empty() {
        let sum = |of: fn(&IdleMapping) -> u64| more.iter().map(of).fold(0, u64::saturating_add);
        let text = format!("and {} more: -n 0 shows them", count(more.len() as u64));
        table.push(1, Row::new(text).cells(cells(sum(|mapping| mapping.idle), sum(|mapping| mapping.resident))));
    }
    Ok(out.tree(&table)?)
}

/// Prints the pages of glibc's heap that few bytes keep, if there are any.
fn print_page_use(memory: &ResidentMemory, out: &mut Output) -> Result<()> {
    let Some(heap) = &memory.glibc else { return Ok(()) };
    let PageUse { all, empty, alone, sparse, .. } = heap.page_use;
    if empty.pages + alone.pages + sparse.pages == 0 {
        return Ok(());
    }
    let mut table = Tree::new(["resident", "share", "in use"]);
    let cells = |sum: PageSum| [bytes(sum.bytes()), percent(sum.bytes(), all.bytes()), bytes(sum.used)];
    table.push(0, Row::new("pages of the heap").cells(cells(all)));
    let rows = [
        (empty, "with nothing in use"),
        (alone, "kept by one chunk, with less than a quarter"),
        (sparse, "kept by several chunks, with less than a quarter"),
    ];
    for (sum, name) in rows.into_iter().filter(|(sum, _)| sum.pages > 0) {
        table.push(1, Row::new(name).note(counted(sum.pages, "page", "pages")).cells(cells(sum)));
    }
    out.tree(&table)?;
    Ok(out.line("")?)
}
