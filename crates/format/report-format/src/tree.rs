//! A tree as text.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::escape::escape;

/// A tree, or a forest, whose rows are given in preorder.
///
/// ```
/// use heapledger_report_format::{Layout, Row, Tree};
///
/// let mut tree = Tree::new(["bytes", "blocks"]);
/// tree.push(0, Row::new("main").cells(["12.0 KiB", "7"]));
/// tree.push(1, Row::new("parse").note("parse.c:12").cells(["8.0 KiB", "4"]));
/// tree.push(1, Row::new("print").cells(["4.0 KiB", "3"]));
/// let mut text = String::new();
/// tree.print(&mut text, &Layout::default())?;
/// assert_eq!(text, "
///    bytes  blocks
/// 12.0 KiB       7  main
///  8.0 KiB       4  ├─ parse  parse.c:12
///  4.0 KiB       3  └─ print
/// ".trim_start_matches('\n'));
/// # Ok::<(), std::fmt::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tree {
    headings: Vec<String>,
    rows: Vec<(usize, Row)>,
}

/// One node of a tree: cells, and lines of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    cells: Vec<String>,
    lines: Vec<Line>,
}

/// One line of a row. The row's cells stand beside its first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The text; escaped when printed.
    pub text: String,
    /// Less important text after it, possibly empty; escaped when printed.
    pub note: String,
}

/// The layout of a printed tree.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The most characters of a line: longer names and notes lose their middle, figures lose
    /// nothing. `None`: lines are not shortened.
    pub width: Option<usize>,
    /// The texts to write before and after a note: colours.
    pub note: (&'static str, &'static str),
    /// The texts to write before and after the headings.
    pub heading: (&'static str, &'static str),
}

impl Row {
    /// Creates a row with one line.
    pub fn new(text: impl Into<String>) -> Row {
        Row::default().line(text, "")
    }

    /// Returns the row with these cells.
    pub fn cells<C: Into<String>>(mut self, cells: impl IntoIterator<Item = C>) -> Row {
        self.cells = cells.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the row with a note after the last line.
    pub fn note(mut self, note: impl Into<String>) -> Row {
        if let Some(line) = self.lines.last_mut() {
            line.note = note.into();
        }
        self
    }

    /// Returns the row with one more line.
    pub fn line(mut self, text: impl Into<String>, note: impl Into<String>) -> Row {
        self.lines.push(Line { text: text.into(), note: note.into() });
        self
    }

    /// Returns its lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

/// The space between columns, and between a line's text and its note.
const GAP: &str = "  ";

/// The number of characters from which on a shortened note is worth printing.
const NOTE_MIN: usize = 8;

impl Tree {
    /// Creates a tree without rows. There are as many columns as headings; no headings are printed
    /// if all are empty.
    pub fn new<H: Into<String>>(headings: impl IntoIterator<Item = H>) -> Tree {
        Tree { headings: headings.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row below the last one of a smaller depth. Roots have depth 0; a row is at most one
    /// deeper than the row before it, and is put there if it asks for more.
    pub fn push(&mut self, depth: usize, row: Row) {
        let deepest = self.rows.last().map_or(0, |(before, _)| before + 1);
        self.rows.push((depth.min(deepest), row));
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the tree.
    pub fn print(&self, out: &mut impl Write, layout: &Layout) -> fmt::Result {
        let widths = self.widths();
        let indent: usize = widths.iter().map(|width| width + GAP.len()).sum();
        let has_sibling_below = self.have_siblings_below();

        if self.headings.iter().any(|heading| !heading.is_empty()) {
            out.write_str(layout.heading.0)?;
            print_cells(out, &self.headings, &widths)?;
            out.write_str(layout.heading.1)?;
            out.write_char('\n')?;
        }
        // For the row and each row above it: true if a sibling follows. Roots have no lines between
        // them.
        let mut path: Vec<bool> = Vec::new();
        for ((depth, row), has_sibling_below) in self.rows.iter().zip(has_sibling_below) {
            path.truncate(*depth);
            path.push(has_sibling_below);
            for (number, line) in row.lines.iter().enumerate() {
                if number > 0 {
                    write!(out, "{:indent$}", "")?;
                } else if !widths.is_empty() {
                    print_cells(out, &row.cells, &widths)?;
                    out.write_str(GAP)?;
                }
                let mut room = Room(layout.width.map(|width| width.saturating_sub(indent)));
                for (level, has_sibling_below) in path.iter().enumerate().skip(1) {
                    let own = level == *depth && number == 0;
                    room.print(
                        out,
                        match (own, has_sibling_below) {
                            (true, true) => "├─ ",
                            (true, false) => "└─ ",
                            (false, true) => "│  ",
                            (false, false) => "   ",
                        },
                    )?;
                }
                let text = escape(&line.text);
                room.print(out, &room.without_middle(&text))?;
                let gap = if line.text.is_empty() { "" } else { GAP };
                let note = escape(&line.note);
                // A few characters of a note say nothing.
                if !note.is_empty() && room.left() >= gap.len() + NOTE_MIN.min(note.chars().count()) {
                    room.print(out, gap)?;
                    out.write_str(layout.note.0)?;
                    room.print(out, &room.without_middle(&note))?;
                    out.write_str(layout.note.1)?;
                }
                out.write_char('\n')?;
            }
        }
        Ok(())
    }

    /// Returns the number of characters of each column's widest cell.
    fn widths(&self) -> Vec<usize> {
        let width = |cell: &String| cell.chars().count();
        let mut widths: Vec<usize> = self.headings.iter().map(width).collect();
        for (_, row) in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(&row.cells) {
                *widest = (*widest).max(width(cell));
            }
        }
        widths
    }

    /// Returns for each row: true if another one with the same parent follows.
    fn have_siblings_below(&self) -> Vec<bool> {
        // By depth, from the end: true if there is a row that would be a sibling of a row before
        // it.
        let mut seen: Vec<bool> = Vec::new();
        let mut answers: Vec<bool> = Vec::with_capacity(self.rows.len());
        for (depth, _) in self.rows.iter().rev() {
            seen.truncate(depth + 1);
            seen.resize(depth + 1, false);
            answers.push(std::mem::replace(&mut seen[*depth], true));
        }
        answers.reverse();
        answers
    }
}

fn print_cells(out: &mut impl Write, cells: &[String], widths: &[usize]) -> fmt::Result {
    let none = String::new();
    for (column, &width) in widths.iter().enumerate() {
        let gap = if column > 0 { GAP } else { "" };
        let cell = escape(cells.get(column).unwrap_or(&none));
        write!(out, "{gap}{cell:>width$}")?;
    }
    Ok(())
}

/// Returns as much of a text's beginning and end as there is room for, in characters, with `…`
/// between; the whole text if there is no room for more than two.
pub fn without_middle(text: &str, room: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if room <= 2 || room >= count {
        return text.into();
    }
    let end = (room - 1) / 3;
    let mut short: String = text.chars().take(room - 1 - end).collect();
    short.push('…');
    short.extend(text.chars().skip(count - end));
    short.into()
}

/// The characters left on a line; `None` if there is no limit.
struct Room(Option<usize>);

impl Room {
    fn left(&self) -> usize {
        self.0.unwrap_or(usize::MAX)
    }

    fn without_middle<'t>(&self, text: &'t str) -> Cow<'t, str> {
        without_middle(text, self.left())
    }

    /// Writes the text, or as much of it as there is room for.
    fn print(&mut self, out: &mut impl Write, text: &str) -> fmt::Result {
        let Some(left) = self.0 else { return out.write_str(text) };
        let count = text.chars().count();
        self.0 = Some(left.saturating_sub(count));
        if count <= left {
            return out.write_str(text);
        }
        if left > 0 {
            text.chars().take(left - 1).try_for_each(|character| out.write_char(character))?;
            out.write_char('…')?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tree: &Tree, layout: &Layout) -> String {
        let mut text = String::from("\n");
        tree.print(&mut text, layout).expect("a string takes everything");
        text
    }

    fn sample() -> Tree {
        let mut tree = Tree::new(["bytes", "share"]);
        tree.push(0, Row::new("main").line("run", "run.c:7").cells(["412.6 MiB", "100.0 %"]));
        tree.push(1, Row::new("parse").note("parse.c:12").cells(["400.0 MiB", "97.0 %"]));
        tree.push(2, Row::new("object").line("member", "").cells(["1.0 MiB", "0.2 %"]));
        tree.push(2, Row::new("array").cells(["1.0 MiB", "0.2 %"]));
        tree.push(1, Row::new("print").cells(["12.6 MiB", "3.0 %"]));
        tree.push(2, Row::new("number").line("digits", ""));
        tree.push(0, Row::new("start_thread").cells(["1 B", "0.0 %"]));
        tree
    }

    #[test]
    fn long_names_lose_their_middle() {
        let mut tree = Tree::new([""]);
        tree.push(0, Row::new("HashMap<Key, Vec<(u64, Token)>>").cells(["1"]));
        let printed = |width| text(&tree, &Layout { width: Some(width), ..Layout::default() });
        assert_eq!(printed(23), "\n1  HashMap<Key, …ken)>>\n");
        assert_eq!(printed(80), "\n1  HashMap<Key, Vec<(u64, Token)>>\n");
        assert_eq!(printed(5), "\n1  H…\n");
    }

    #[test]
    fn long_notes_keep_the_line() {
        let mut tree = Tree::new([""]);
        tree.push(0, Row::new("parse").note("…/src/json/parse.rs:1446").cells(["1"]));
        let printed = |width| text(&tree, &Layout { width: Some(width), ..Layout::default() });
        assert_eq!(printed(26), "\n1  parse  …/src/json…:1446\n");
        assert_eq!(printed(17), "\n1  parse\n");
    }

    #[test]
    fn rows_lines_and_columns_align() {
        assert_eq!(
            text(&sample(), &Layout::default()),
            "
    bytes    share
412.6 MiB  100.0 %  main
                    run  run.c:7
400.0 MiB   97.0 %  ├─ parse  parse.c:12
  1.0 MiB    0.2 %  │  ├─ object
                    │  │  member
  1.0 MiB    0.2 %  │  └─ array
 12.6 MiB    3.0 %  └─ print
                       └─ number
                          digits
      1 B    0.0 %  start_thread
"
        );
    }

    #[test]
    fn lines_are_cut_to_the_width() {
        let layout = Layout { width: Some(32), note: ("<", ">"), heading: ("[", "]") };
        assert_eq!(
            text(&sample(), &layout),
            "
[    bytes    share]
412.6 MiB  100.0 %  main
                    run  <run.c:7>
400.0 MiB   97.0 %  ├─ parse
  1.0 MiB    0.2 %  │  ├─ object
                    │  │  member
  1.0 MiB    0.2 %  │  └─ array
 12.6 MiB    3.0 %  └─ print
                       └─ number
                          digits
      1 B    0.0 %  start_thread
"
        );
    }

    #[test]
    fn a_note_can_stand_alone() {
        let mut tree = Tree::new([""; 0]);
        tree.push(0, Row::new("a").line("", "← b"));
        assert_eq!(text(&tree, &Layout { note: ("<", ">"), ..Layout::default() }), "\na\n<← b>\n");
    }

    #[test]
    fn no_columns_no_headings() {
        let mut tree = Tree::new([""; 0]);
        tree.push(5, Row::new("a"));
        tree.push(7, Row::new("b"));
        tree.push(9, Row::new("c"));
        tree.push(1, Row::new("d"));
        assert_eq!(text(&tree, &Layout::default()), "\na\n├─ b\n│  └─ c\n└─ d\n");
        assert!(!tree.is_empty());
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let mut tree = Tree::new(["\x1b[1m"]);
        tree.push(0, Row::new("a\x1b[2J").note("b\r").cells(["\x07"]));
        let text = text(&tree, &Layout::default());
        assert!(!text.trim_end_matches('\n').contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn great_depth_is_no_recursion() {
        let mut tree = Tree::new([""; 0]);
        for depth in 0..2_000 {
            tree.push(depth, Row::new("f"));
        }
        assert_eq!(text(&tree, &Layout { width: Some(10), ..Layout::default() }).lines().count(), 2_001);
    }
}
