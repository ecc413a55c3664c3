//! Pages of a heap by fill, whatever the allocator: as text, and as a picture.

mod picture;

use heapledger_report_format::{Row, Tree, escape};
use heapledger_resident::{HeapPage, HeapPages, PageUse};

pub(crate) use self::picture::draw;

use crate::error::Result;
use crate::format::{bytes, count, counted, percent};
use crate::output::Output;

/// The cells of a line.
const CELLS: u64 = 64;
const PAGE: u64 = 4096;
/// The most pages of a cell: a line is at most 1 GiB.
const SCALE_MAX: u64 = 4096;
/// The rows of the table of groups.
const GROUPS_SHOWN: usize = 12;

/// Some pages next to each other, drawn as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// The number of resident pages, and the bytes in use on them.
    pages: u64,
    used: u64,
    /// The group of the page with the most bytes in use.
    group: u32,
    /// The bytes in use on that page.
    used_most: u16,
}

/// Cells for consecutive addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    address: u64,
    cells: Vec<Cell>,
}

/// The lines of a map.
struct Lines {
    lines: Vec<Line>,
    /// The pages of a cell.
    scale: u64,
    /// The number of lines that are not among them.
    more: usize,
}

impl Cell {
    fn add(&mut self, page: &HeapPage) {
        if self.pages == 0 || page.used > self.used_most {
            (self.group, self.used_most) = (page.group, page.used);
        }
        self.pages += 1;
        self.used += u64::from(page.used);
    }
}

impl Line {
    /// Returns a character for each cell, blanks for those without pages. With colours, each group
    /// has its own.
    fn text(&self, of: impl Fn(&Cell) -> char, has_colors: bool) -> String {
        /// Blue, green, magenta, red, cyan and yellow.
        const COLORS: [u32; 6] = [34, 32, 35, 31, 36, 33];
        let length = self.cells.iter().rposition(|cell| cell.pages > 0).map_or(0, |last| last + 1);
        let (mut text, mut group) = (String::new(), None);
        for cell in &self.cells[..length] {
            if has_colors && cell.pages > 0 && group.replace(cell.group) != Some(cell.group) {
                text += &format!("\x1b[{}m", COLORS[cell.group as usize % COLORS.len()]);
            }
            text.push(if cell.pages > 0 { of(cell) } else { ' ' });
        }
        text + if group.is_some() { "\x1b[0m" } else { "" }
    }
}

impl Lines {
    /// Returns the lines of a heap, of which at most `shown` are wanted: the more pages there are,
    /// the more of them are one cell.
    fn of(heap: &HeapPages, shown: usize) -> Lines {
        let line_of = |page: &HeapPage, scale: u64| page.address / (PAGE * scale * CELLS);
        let count = |scale: u64| {
            let mut last = None;
            heap.pages.iter().filter(|page| last.replace(line_of(page, scale)) != Some(line_of(page, scale))).count()
        };
        let mut scale = 1;
        while scale < SCALE_MAX && count(scale) > shown {
            scale *= 2;
        }
        let mut lines: Vec<Line> = Vec::new();
        let mut more = 0;
        let mut last = None;
        for page in &heap.pages {
            let number = line_of(page, scale);
            if last.replace(number) != Some(number) {
                if lines.len() < shown {
                    let address = number * PAGE * scale * CELLS;
                    lines.push(Line { address, cells: vec![Cell::default(); CELLS as usize] });
                } else {
                    more += 1;
                }
            }
            if let Some(line) = lines.last_mut().filter(|_| more == 0) {
                line.cells[((page.address - line.address) / (PAGE * scale)) as usize].add(page);
            }
        }
        Lines { lines, scale, more }
    }

    /// True if a line has pages of several groups.
    fn are_mixed(&self) -> bool {
        self.lines.iter().any(|line| {
            let mut groups = line.cells.iter().filter(|cell| cell.pages > 0).map(|cell| cell.group);
            let first = groups.next();
            groups.any(|group| Some(group) != first)
        })
    }
}

/// Returns the heading of a heap: its resident bytes, and those in use. `of` says whose heap it is.
fn heading(heap: &HeapPages, of: &str) -> String {
    let PageUse { all, .. } = heap.page_use();
    let (resident, used) = (bytes(all.bytes()), bytes(all.used));
    let share = percent(all.used, all.bytes());
    format!("{of}: {resident} resident in the heap of {}, {used} in use ({share})", escape(&heap.allocator))
}

/// Returns the sentence about pages that few bytes keep.
fn kept(heap: &HeapPages) -> String {
    let PageUse { empty, alone, sparse, .. } = heap.page_use();
    format!(
        "pages with nothing in use: {} · less than a quarter in use: {}, of which {} by one block",
        bytes(empty.bytes()),
        bytes(alone.bytes().saturating_add(sparse.bytes())),
        bytes(alone.bytes()),
    )
}

/// Prints the pages as lines of characters, at most `shown`, with a table of the groups before it.
pub(crate) fn print(heap: &HeapPages, of: &str, shown: usize, out: &mut Output) -> Result<()> {
    out.title(heading(heap, of))?;
    out.line(kept(heap))?;
    out.line("")?;
    let lines = Lines::of(heap, shown);
    let is_mixed = lines.are_mixed();
    let groups = heap.page_use_by_group();
    let mut table = Tree::new(["resident", "in use", "share", "empty", "under 1/4"]);
    let mut order: Vec<usize> = (0..groups.len()).filter(|&group| groups[group].all.pages > 0).collect();
    order.sort_by_key(|&group| std::cmp::Reverse(groups[group].all.pages));
    for &group in order.iter().take(GROUPS_SHOWN) {
        let PageUse { all, empty, alone, sparse, .. } = groups[group];
        let cells = [
            bytes(all.bytes()),
            bytes(all.used),
            percent(all.used, all.bytes()),
            bytes(empty.bytes()),
            bytes(alone.bytes().saturating_add(sparse.bytes())),
        ];
        let name = escape(&heap.groups[group]).into_owned();
        let name = if is_mixed { format!("{} {name}", letter(group as u32)) } else { name };
        table.push(0, Row::new(name).cells(cells));
    }
    out.tree(&table)?;
    if order.len() > GROUPS_SHOWN {
        let more = order.len() - GROUPS_SHOWN;
        out.dim_line(format_args!("{} more of this kind ({}): --json", count(more as u64), heap.grouping))?;
    }
    out.line("")?;
    let mut heading = None;
    for line in &lines.lines {
        let group = line.cells.iter().find(|cell| cell.pages > 0).map(|cell| cell.group);
        if !is_mixed && order.len() > 1 && heading.replace(group) != Some(group) {
            let name = group.and_then(|group| heap.groups.get(group as usize)).map_or("", String::as_str);
            out.line(escape(name))?;
        }
        let has_colors = out.has_colors() && order.len() > 1;
        out.line(format_args!("{:>#14x}  {}", line.address, line.text(level, has_colors)))?;
        if is_mixed {
            out.line(format_args!("{:14}  {}", "", line.text(|cell| letter(cell.group), has_colors)))?;
        }
    }
    out.dim_line(format_args!("a character is {}", counted(lines.scale, "page", "pages")))?;
    if lines.more > 0 {
        out.dim_line(format_args!("{} more: --rows 0", counted(lines.more as u64, "line", "lines")))?;
    }
    Ok(())
}

/// Returns the letter of a group. Groups beyond the letters share one.
fn letter(group: u32) -> char {
    char::from_digit(group.saturating_add(10).min(35), 36).unwrap_or('z')
}

/// Returns the character for the share of a cell's resident bytes that is in use.
fn level(cell: &Cell) -> char {
    const LEVELS: [char; 9] = ['_', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    LEVELS[((cell.used * 8).div_ceil(cell.pages.max(1) * PAGE)).min(8) as usize]
}

#[cfg(test)]
mod tests;
