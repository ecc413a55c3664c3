//! The picture of `heap-map --svg`: a line for each chunk, a box for each run.

use std::io::{self, Write};

use heapledger_resident::{HeapMap, Run, Slice};

use super::{arena_name, chunks_by_arena};
use crate::format::{bytes, counted, percent};

/// The size of a slice's box, in pixels.
const BOX: usize = 14;
/// The room for the addresses, in pixels.
const LEFT: usize = 130;
/// The room for the title, in pixels.
const TOP: usize = 60;

/// The colours of the addresses of chunks, by arena.
const ARENA_COLORS: [&str; 6] = ["#000", "#a00", "#06a", "#070", "#a0a", "#850"];

pub(super) fn draw(process: u32, map: &HeapMap, shown: usize, out: &mut impl Write) -> io::Result<()> {
    let slices = (map.chunk_size / map.slice_size.max(1)) as usize;
    let (chunks, totals) = (map.chunks.len().min(shown), map.totals());
    let (width, height) = (LEFT + slices * BOX + 20, TOP + chunks * (BOX + 4) + 40);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">process {process}: {} mapped, {} in use ({})</text>\n\
         <text x=\"10\" y=\"40\">a line is a chunk, a box a run: its colour is the size of its blocks, \
         the filled part those in use; grey: free pages with memory</text>",
        bytes(totals.mapped),
        bytes(totals.used),
        xml(&percent(totals.used, totals.mapped)),
    )?;
    for (number, chunk) in chunks_by_arena(map).into_iter().take(shown).enumerate() {
        let y = TOP + number * (BOX + 4);
        writeln!(
            out,
            "<g><title>{}</title><text x=\"10\" y=\"{}\" fill=\"{}\">{:#x}</text></g>",
            xml(&arena_name(map, chunk.arena)),
            y + BOX - 3,
            ARENA_COLORS[chunk.arena as usize % ARENA_COLORS.len()],
            chunk.address
        )?;
        let mut at = 0;
        for slice in &chunk.slices {
            let x = LEFT + at * BOX;
            match slice {
                Slice::Free(pages) => {
                    let part = usize::from(*pages) * BOX * map.page_size as usize / map.slice_size.max(1) as usize;
                    let title =
                        format!("no run, {}", counted(u64::from(*pages), "page with memory", "pages with memory"));
                    rectangle(out, [x, y, BOX], "#ddd", part.min(BOX), &title)?;
                    at += 1;
                }
                Slice::Run(run) => {
                    let part = usize::from(run.used) * BOX / usize::from(run.capacity).max(1);
                    let part = part.max(usize::from(run.used > 0));
                    let wide = usize::from(run.slices) * BOX;
                    rectangle(out, [x, y, wide], &color(run), part.min(BOX), &title(run))?;
                    at += usize::from(run.slices);
                }
            }
        }
    }
    let y = TOP + chunks * (BOX + 4) + 20;
    let huge = counted(map.huge.len() as u64, "huge block", "huge blocks");
    let left = map.chunks.len() - chunks;
    let more =
        if left > 0 { format!("; {} more: --rows 0", counted(left as u64, "chunk", "chunks")) } else { String::new() };
    writeln!(
        out,
        "<text x=\"10\" y=\"{y}\">{huge} of {} in mappings of their own{more}</text>\n</svg>",
        bytes(totals.huge)
    )
}

/// Draws a box at [x, y] with a width, of which the lowest `part` pixels are filled.
fn rectangle(out: &mut impl Write, at: [usize; 3], color: &str, part: usize, title: &str) -> io::Result<()> {
    let [x, y, wide] = at;
    writeln!(
        out,
        "<g><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{BOX}\" fill=\"#fff\" \
         stroke=\"#ccc\"/><rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{part}\" fill=\"{color}\"/></g>",
        wide - 1,
        y + BOX - part,
        wide - 1,
    )
}

/// Returns a text as XML has it.
fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn title(run: &Run) -> String {
    let size = bytes(u64::from(run.block_size));
    format!("blocks of {size}: {} of {} in use, heap {}", run.used, run.capacity, run.heap)
}

/// Returns the colour of a run: each doubling of the block size has its own hue.
fn color(run: &Run) -> String {
    let doubling = run.block_size.max(16).ilog2() - 4;
    format!("hsl({}, 65%, 50%)", (doubling * 47 + 200) % 360)
}
