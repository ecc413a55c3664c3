//! The page as text, line by line.

use std::fmt::{self, Write};
use std::rc::Rc;

use super::{Node, Page, Section};
use crate::escape::escape;

/// A line of a tree, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'p> {
    /// The node that it shows.
    pub node: &'p Node,
    /// The depth below the root.
    pub depth: usize,
    /// The lines drawn in front of it, so that its value ends where the value above it does.
    pub lines: String,
    /// True if its children follow.
    pub is_open: bool,
}

impl Row<'_> {
    /// Returns the separator between the numbers and the name.
    pub fn separator(&self) -> &'static str {
        match (self.node.children.is_empty(), self.is_open || self.node.is_invalid) {
            (true, _) => " ── ",
            (false, true) => " -- ",
            (false, false) => " ++ ",
        }
    }
}

/// Writes the line as it is shown, without a line end.
impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.lines, self.node.value)?;
        if let Some(percent) = &self.node.percent {
            write!(f, " ({percent})")?;
        }
        write!(f, "{}{}", self.separator(), escape(&self.node.name))?;
        self.node.notes.iter().try_for_each(|note| write!(f, " {}", note.text()))
    }
}

impl Node {
    /// Calls `show` for each visible line of the tree, from top to bottom; `is_open` tells if a
    /// node's children are visible. The lines begin with `padding`.
    pub fn rows<'p>(&'p self, padding: &str, is_open: impl Fn(&Node) -> bool, mut show: impl FnMut(Row<'p>)) {
        let mut pending = vec![Pending { node: self, depth: 0, above: Rc::from(padding), narrower: 0, is_last: None }];
        while let Some(Pending { node, depth, above, narrower, is_last }) = pending.pop() {
            let (own, rest) = match is_last {
                None => ("", ""),
                Some(true) => ("└──", "   "),
                Some(false) => ("├──", "│  "),
            };
            let lines = format!("{above}{own}{}", "─".repeat(narrower));
            let is_open = !node.children.is_empty() && is_open(node);
            if is_open {
                let above: Rc<str> = format!("{above}{rest}{}", " ".repeat(narrower)).into();
                let last = node.children.len() - 1;
                // The last item in the list is shown next.
                pending.extend(node.children.iter().enumerate().rev().map(|(number, child)| Pending {
                    node: child,
                    depth: depth + 1,
                    above: above.clone(),
                    narrower: node.value.len().saturating_sub(child.value.len()),
                    is_last: Some(number == last),
                }));
            }
            show(Row { node, depth, lines, is_open });
        }
    }
}

/// A node that is still to be shown.
struct Pending<'p> {
    node: &'p Node,
    depth: usize,
    /// The lines drawn in front of everything below its parent.
    above: Rc<str>,
    /// The number of characters by which its value is shorter than its parent's.
    narrower: usize,
    /// True for the last node below its parent; `None` for the root.
    is_last: Option<bool>,
}

impl Section {
    /// Returns the padding in front of a measurement that is not a tree, so that the values of all
    /// of them end at the same column.
    pub fn padding(&self, degenerate: &Node) -> String {
        let widest = self.degenerates.iter().map(|node| node.value.len()).max().unwrap_or(0);
        " ".repeat(widest.saturating_sub(degenerate.value.len()))
    }
}

pub(super) fn print(page: &Page, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "Total resident memory (approximate) -- {}", page.total_resident)?;
    if page.sections.is_empty() {
        writeln!(out, "No results found.")?;
    }
    page.sections.iter().try_for_each(|section| print_section(section, out))
}

fn print_section(section: &Section, out: &mut impl Write) -> fmt::Result {
    let process = escape(&section.process);
    writeln!(out, "{process}")?;
    section.warnings.iter().try_for_each(|warning| writeln!(out, "\n{warning}"))?;
    if !section.invalid.is_empty() {
        writeln!(out, "\nWARNING: the following values are negative or unreasonably large.\n")?;
        section.invalid.iter().try_for_each(|path| writeln!(out, "    {}", escape(path)))?;
        writeln!(
            out,
            "\nThis indicates a defect in one or more memory reporters. The invalid values are highlighted."
        )?;
    }
    if let Some(explicit) = &section.explicit {
        writeln!(out, "Explicit Allocations\n")?;
        print_tree(explicit, "", out)?;
        writeln!(out)?;
    }
    if !section.others.is_empty() || !section.degenerates.is_empty() {
        writeln!(out, "Other Measurements\n")?;
        for tree in &section.others {
            print_tree(tree, "", out)?;
            writeln!(out)?;
        }
        for degenerate in &section.degenerates {
            print_tree(degenerate, &section.padding(degenerate), out)?;
        }
        if !section.degenerates.is_empty() {
            writeln!(out)?;
        }
    }
    writeln!(out, "End of {process}")
}

fn print_tree(tree: &Node, padding: &str, out: &mut impl Write) -> fmt::Result {
    let mut written = Ok(());
    tree.rows(
        padding,
        |node| !node.is_collapsed,
        |row| {
            if written.is_ok() {
                written = writeln!(out, "{row}");
            }
        },
    );
    written
}
