//! The picture of `heap-map --svg` for pages: a box for some pages, with the colour of its group.

use std::io::{self, Write};

use heapledger_resident::HeapPages;

use super::{Cell, GROUPS_SHOWN, Lines, PAGE, heading, kept};
use crate::format::{bytes, count, counted, percent};

/// The size of a cell's box, the distance of lines, and the room for addresses and the title, in
/// pixels.
const BOX: usize = 12;
const LINE: usize = 15;
const LEFT: usize = 130;
const TOP: usize = 76;

/// Draws the pages, at most `shown` lines. `of` says whose heap it is.
pub(crate) fn draw(heap: &HeapPages, of: &str, shown: usize, out: &mut impl Write) -> io::Result<()> {
    let lines = Lines::of(heap, shown);
    let groups = heap.page_use_by_group();
    let mut order: Vec<usize> = (0..groups.len()).filter(|&group| groups[group].all.pages > 0).collect();
    order.sort_by_key(|&group| std::cmp::Reverse(groups[group].all.pages));
    let named = &order[..order.len().min(GROUPS_SHOWN)];
    let legend = named.len().max(1) * LINE + 40;
    let width = LEFT + super::CELLS as usize * BOX + 20;
    let height = TOP + lines.lines.len() * LINE + legend;
    let scale = counted(lines.scale, "page", "pages");
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"13\">{}</text>\n\
         <text x=\"10\" y=\"40\">{}</text>\n\
         <text x=\"10\" y=\"58\">a box is {scale}; pale: resident, full colour: in use, white: not resident</text>",
        xml(&heading(heap, of)),
        xml(&kept(heap)),
    )?;
    for (number, line) in lines.lines.iter().enumerate() {
        let y = TOP + number * LINE;
        writeln!(out, "<text x=\"10\" y=\"{}\">{:#x}</text>", y + BOX - 2, line.address)?;
        for (column, cell) in line.cells.iter().enumerate().filter(|(_, cell)| cell.pages > 0) {
            let address = line.address + column as u64 * lines.scale * PAGE;
            draw_cell(heap, cell, address, [LEFT + column * BOX, y], out)?;
        }
    }
    let mut y = TOP + lines.lines.len() * LINE + 20;
    for &group in named {
        let all = groups[group].all;
        writeln!(
            out,
            "<rect x=\"10\" y=\"{}\" width=\"{BOX}\" height=\"{BOX}\" fill=\"{}\"/>\
             <text x=\"30\" y=\"{}\">{}: {} resident, {} in use ({})</text>",
            y - BOX + 2,
            color(heap, group as u32, 45),
            y,
            xml(&heap.groups[group]),
            bytes(all.bytes()),
            bytes(all.used),
            xml(&percent(all.used, all.bytes())),
        )?;
        y += LINE;
    }
    let more = order.len() - named.len();
    let mut notes = Vec::new();
    notes.extend((more > 0).then(|| format!("{} more of this kind ({})", count(more as u64), xml(&heap.grouping))));
    let left = counted(lines.more as u64, "line", "lines");
    notes.extend((lines.more > 0).then(|| format!("{left} more: --rows 0")));
    writeln!(out, "<text x=\"10\" y=\"{y}\">{}</text>\n</svg>", notes.join(" · "))
}

/// Draws a cell at [x, y], with its figures for the mouse pointer.
fn draw_cell(heap: &HeapPages, cell: &Cell, address: u64, [x, y]: [usize; 2], out: &mut impl Write) -> io::Result<()> {
    let resident = cell.pages * PAGE;
    // A little of the colour for a little in use.
    let part = ((cell.used as usize * BOX) / resident as usize).max(usize::from(cell.used > 0)).min(BOX);
    let name = heap.groups.get(cell.group as usize).map_or("", String::as_str);
    let pages = counted(cell.pages, "page", "pages");
    writeln!(
        out,
        "<g><title>{address:#x}, {}: {pages} resident, {} in use ({})</title>\
         <rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{BOX}\" fill=\"{}\"/>\
         <rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{part}\" fill=\"{}\"/></g>",
        xml(name),
        bytes(cell.used),
        xml(&percent(cell.used, resident)),
        BOX - 1,
        color(heap, cell.group, 88),
        y + BOX - part,
        BOX - 1,
        color(heap, cell.group, 45),
    )
}

/// Returns the colour of a group: neighbours in number have hues far apart, and those of the same
/// hue differ in strength. Groups that stand apart from the others are grey.
fn color(heap: &HeapPages, group: u32, lightness: u32) -> String {
    if heap.apart.contains(&group) {
        return format!("hsl(0, 0%, {lightness}%)");
    }
    let strength = [65, 35, 95][(group / 8 % 3) as usize];
    format!("hsl({}, {strength}%, {lightness}%)", (u64::from(group) * 137 + 210) % 360)
}

/// Returns a text as XML has it, without the characters that XML does not have.
fn xml(text: &str) -> String {
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
