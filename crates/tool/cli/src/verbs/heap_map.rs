//! `heapledger heap-map`: where the memory of a process's heap is.

mod json;
mod live;
mod pages_json;
mod picture;

use heapledger_report_format::{Row, Tree, escape};
use heapledger_resident::{Chunk, HeapMap, HeapMapError, HeapPages, ResidentError, ResidentMemory, Run, Slice};

pub(crate) use self::json::HeapMapJson;
pub(crate) use self::pages_json::{HeapPagesJson, PageUseJson};

use crate::args::{HeapMapOf, MapBy};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, counted, percent};
use crate::json::document::{Document, Form};
use crate::output::Output;
use crate::verbs::rss::{self, Obstacle};
use crate::views::heap_pages;
use crate::views::table::limit;

pub(crate) fn run(arguments: &HeapMapOf, out: &mut Output) -> Result<()> {
    let process = arguments.process;
    let by_live = match arguments.by {
        Some(MapBy::Owner) => Some(live::By::Owner),
        Some(MapBy::Age) => Some(live::By::Age),
        _ => None,
    };
    if let Some(by) = by_live {
        let (memory, heap) = live::pages(process, by)?;
        return show_pages(arguments, &memory, &heap, out);
    }
    let map = match (arguments.by, HeapMap::of_process(process)) {
        (Some(MapBy::Arena), _) | (None, Err(HeapMapError::NoAllocator(_))) => {
            let (memory, heap) = pages(process)?;
            return show_pages(arguments, &memory, &heap, out);
        }
        (_, map) => map.map_err(failure)?,
    };
    let forms = Forms {
        document: &|| HeapMapJson::new(process, &map),
        draw: &|shown, out| Ok(picture::draw(process, &map, shown, out.stream())?),
        print: &|shown, out| print(process, &map, shown, out),
    };
    show(arguments, &forms, out)
}

/// Returns the pages of a process's heaps, and all that its account has.
fn pages(process: u32) -> Result<(ResidentMemory, HeapPages)> {
    let memory = ResidentMemory::of_process_by_page(process).map_err(denied)?;
    let heap = memory.heap_pages().ok_or_else(|| {
        let text = format!("process {process} has no heap of an allocator that is known");
        let hint = format!("heapledger rss {process} shows all of its memory");
        Failure::new(Exit::Unreadable, text).code(Code::OtherAllocator).hint(hint)
    })?;
    rss::warn_of_unread(&memory);
    rss::warn_of_layouts(&memory);
    Ok((memory, heap))
}

fn show_pages(arguments: &HeapMapOf, memory: &ResidentMemory, heap: &HeapPages, out: &mut Output) -> Result<()> {
    let process = arguments.process;
    let of = format!("process {process} ({})", escape(&memory.command));
    let forms = Forms {
        document: &|| HeapPagesJson::new(process, heap),
        draw: &|shown, out| Ok(heap_pages::draw(heap, &of, shown, out.stream())?),
        print: &|shown, out| heap_pages::print(heap, &of, shown, out),
    };
    show(arguments, &forms, out)
}

/// Writes a map with at most so many rows.
type Write<'f> = &'f dyn Fn(usize, &mut Output) -> Result<()>;

/// The forms in which a map can be shown.
struct Forms<'f, D> {
    document: &'f dyn Fn() -> D,
    draw: Write<'f>,
    print: Write<'f>,
}

/// Shows a map in the form that was asked for.
fn show<D: Document>(arguments: &HeapMapOf, forms: &Forms<'_, D>, out: &mut Output) -> Result<()> {
    if let Some(path) = &arguments.output {
        out.direct(path, arguments.force, &[])?;
    }
    if arguments.json {
        return out.document(&(forms.document)(), Form::Json);
    }
    let write = if arguments.svg { forms.draw } else { forms.print };
    write(limit(arguments.rows), out)
}

/// Returns the failure of reading the resident memory of the process.
fn denied(error: ResidentError) -> Failure {
    rss::failure("heap-map", error)
}

fn failure(error: HeapMapError) -> Failure {
    let obstacle = match error {
        HeapMapError::NoProcess(_) => Some(Obstacle::NoProcess),
        HeapMapError::NotAllowed(_) => Some(Obstacle::NotAllowed),
        HeapMapError::NoAllocator(_) => {
            let hint = "heapledger heap-map PID --by arena shows the pages of other allocators";
            return Failure::from_error(Exit::Unreadable, error).code(Code::OtherAllocator).hint(hint);
        }
        _ => None,
    };
    rss::unreadable("heap-map", error, obstacle)
}

fn print(process: u32, map: &HeapMap, shown: usize, out: &mut Output) -> Result<()> {
    let totals = map.totals();
    out.title(format_args!(
        "process {process}: {} mapped in {} and {}, {} in use ({})",
        bytes(totals.mapped),
        counted(map.chunks.len() as u64, "chunk", "chunks"),
        counted(map.huge.len() as u64, "huge block", "huge blocks"),
        bytes(totals.used),
        percent(totals.used, totals.mapped),
    ))?;
    out.line(format_args!(
        "runs of {}: {} · free pages with memory: {} · huge blocks: {}",
        counted(u64::from(map.heaps()), "heap", "heaps"),
        bytes(totals.runs),
        bytes(totals.dirty),
        bytes(totals.huge),
    ))?;
    let mut table = Tree::new(["runs", "blocks", "room", "in use", "unused"]);
    for bin in map.bins() {
        let used = bin.used * u64::from(bin.block_size);
        let cells = [
            count(bin.runs),
            count(bin.used),
            count(bin.capacity),
            percent(used, bin.run_bytes),
            bytes(bin.unused_bytes()),
        ];
        table.push(0, Row::new(bytes(u64::from(bin.block_size))).cells(cells));
    }
    out.line("")?;
    out.tree(&table)?;
    out.line("")?;
    let mut arena = None;
    for chunk in chunks_by_arena(map).into_iter().take(shown) {
        if map.arenas.len() > 1 && arena.replace(chunk.arena) != Some(chunk.arena) {
            out.line(arena_name(map, chunk.arena))?;
        }
        out.line(format_args!("{:>#14x}  {}", chunk.address, line(chunk)))?;
    }
    if map.chunks.len() > shown {
        out.dim_line(format_args!("{} more: --rows 0", counted((map.chunks.len() - shown) as u64, "chunk", "chunks")))?;
    }
    Ok(())
}

/// Returns the chunks of the first arena, by address, then those of the next.
fn chunks_by_arena(map: &HeapMap) -> Vec<&Chunk> {
    let mut chunks: Vec<&Chunk> = map.chunks.iter().collect();
    chunks.sort_by_key(|chunk| chunk.arena);
    chunks
}

/// Returns the name of an arena, such as `arena 0x1f "cache"`.
fn arena_name(map: &HeapMap, number: u32) -> String {
    match map.arenas.get(number as usize) {
        Some(arena) if arena.label.is_empty() => format!("arena {:#x}", arena.id),
        Some(arena) => format!("arena {:#x} \"{}\"", arena.id, escape(&arena.label)),
        None => String::new(),
    }
}

/// Returns a character for each slice of a chunk.
fn line(chunk: &Chunk) -> String {
    let mut text = String::new();
    for slice in &chunk.slices {
        match slice {
            Slice::Free(0) => text.push('.'),
            Slice::Free(_) => text.push(':'),
            Slice::Run(run) if run.capacity == 1 => {
                text.push(if run.used > 0 { '#' } else { 'o' });
                (1..run.slices).for_each(|_| text.push('='));
            }
            Slice::Run(run) => text.push(level(run)),
        }
    }
    text
}

/// Returns the character for the share of a run's blocks that is in use.
fn level(run: &Run) -> char {
    const LEVELS: [char; 9] = ['_', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let eighths = (usize::from(run.used) * 8).div_ceil(usize::from(run.capacity).max(1));
    LEVELS[eighths.min(8)]
}
