//! The table of types: blocks and bytes of each, with their shares, and the totals.

use std::fmt;

/// The minimal and the maximal number of characters for a type.
const WIDTH: (usize, usize) = (20, 80);

/// The blocks of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    /// A word at the end of the line; may be empty.
    pub(crate) note: &'a str,
}

/// Writes these rows, and one for their sum. Allocates nothing.
pub(crate) fn write<'a>(
    out: &mut dyn fmt::Write,
    title: &str,
    rows: impl Iterator<Item = Row<'a>> + Clone,
) -> fmt::Result {
    let longest = rows.clone().map(|row| row.name.chars().count()).max();
    let width = longest.unwrap_or(0).clamp(WIDTH.0, WIDTH.1);
    let blocks_all: u64 = rows.clone().map(|row| row.blocks).sum();
    let bytes_all: u64 = rows.clone().map(|row| row.bytes).sum();
    writeln!(out, "{title:<width$} {:>10}        {:>14}", "blocks", "bytes")?;
    for Row { name, blocks, bytes, note } in rows.chain([Row::new("total", blocks_all, bytes_all)]) {
        write!(
            out,
            "{name:<width$} {blocks:>10} {:>5.1}% {bytes:>14} {:>5.1}%",
            percent(blocks, blocks_all),
            percent(bytes, bytes_all)
        )?;
        match note {
            "" => writeln!(out)?,
            _ => writeln!(out, "  {note}")?,
        }
    }
    Ok(())
}

impl<'a> Row<'a> {
    /// A row without a note.
    pub(crate) fn new(name: &'a str, blocks: u64, bytes: u64) -> Row<'a> {
        Row { name, blocks, bytes, note: "" }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
