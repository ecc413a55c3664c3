//! The table of types: blocks and bytes of each, with their shares, and the totals.

use std::fmt;

/// Characters of a type that the next columns leave room for, at least and at most.
const WIDTH: (usize, usize) = (20, 80);

/// Writes a row for each of these types, which come with their blocks and bytes. Allocates nothing.
pub(crate) fn write<'name>(
    out: &mut dyn fmt::Write,
    title: &str,
    types: impl Iterator<Item = (&'name str, u64, u64)> + Clone,
) -> fmt::Result {
    let longest = types.clone().map(|(name, ..)| name.chars().count()).max();
    let width = longest.unwrap_or(0).clamp(WIDTH.0, WIDTH.1);
    let blocks_all: u64 = types.clone().map(|(_, blocks, _)| blocks).sum();
    let bytes_all: u64 = types.clone().map(|(.., bytes)| bytes).sum();
    writeln!(out, "{title:<width$} {:>10}        {:>14}", "blocks", "bytes")?;
    for (name, blocks, bytes) in types.chain([("total", blocks_all, bytes_all)]) {
        writeln!(
            out,
            "{name:<width$} {blocks:>10} {:>5.1}% {bytes:>14} {:>5.1}%",
            percent(blocks, blocks_all),
            percent(bytes, bytes_all)
        )?;
    }
    Ok(())
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
