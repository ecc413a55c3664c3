//! The statistics as text for people, as JSON and as OpenMetrics. Nothing is allocated.

use core::fmt::{self, Write};

use super::{BinOperations, BinStatistics, DetailedStatistics, detailed_statistics};

/// The formats of the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatisticsFormat {
    /// A table for people.
    Text,
    /// One JSON object with the names of the structure's fields.
    Json,
    /// Gauges in the text format of OpenMetrics 1.0, as Prometheus reads it, without the final
    /// `# EOF`, so that others may follow.
    OpenMetrics,
}

/// Writes the statistics of this moment.
///
/// # Errors
///
/// Fails if `out` does.
pub fn write_statistics(format: StatisticsFormat, out: &mut dyn Write) -> fmt::Result {
    let now = detailed_statistics();
    match format {
        StatisticsFormat::Text => text(&now, out),
        StatisticsFormat::Json => json(&now, out),
        StatisticsFormat::OpenMetrics => open_metrics(&now, out),
    }
}

type Field = (&'static str, usize, &'static str);

/// Returns the fields in bytes, with their names and descriptions.
fn bytes(now: &DetailedStatistics) -> [Field; 14] {
    [
        ("mapped", now.mapped, "Memory that is mapped."),
        ("allocated", now.allocated, "Blocks in use, with their slop."),
        ("huge", now.huge, "The part of the allocated bytes in huge blocks."),
        ("bin_unused", now.bin_unused, "Free blocks in runs."),
        ("waste", now.waste, "Memory that no block can use."),
        ("waste_tails", now.waste_tails, "Ends of runs behind their last block."),
        ("waste_guards", now.waste_guards, "Guard pages."),
        ("dirty", now.dirty, "Free pages that may have memory."),
        ("dirty_max", now.dirty_max, "Dirty bytes above which memory is returned."),
        ("fresh", now.fresh, "Pages that were never used."),
        ("madvised", now.madvised, "Free pages whose memory was returned."),
        ("bookkeeping", now.bookkeeping, "The allocator's own structures."),
        ("run_headers", now.run_headers, "The part of bookkeeping in metadata of runs."),
        ("chunk_size", now.chunk_size, "The size of a chunk."),
    ]
}

/// Returns the fields that are numbers of something.
fn counts(now: &DetailedStatistics) -> [Field; 5] {
    [
        ("arenas", now.arenas, "Arenas."),
        ("chunks", now.chunks, "Chunks."),
        ("blocks", now.blocks, "Blocks in use."),
        ("huge_blocks", now.huge_blocks, "Huge blocks."),
        ("purges", now.purges, "Times that free memory was returned."),
    ]
}

/// Returns the geometry and the options.
fn settings(now: &DetailedStatistics) -> [(&'static str, usize); 13] {
    [
        ("quantum", now.quantum),
        ("quantum_max", now.quantum_max),
        ("small_max", now.small_max),
        ("large_max", now.large_max),
        ("slice_size", now.slice_size),
        ("page_size", now.page_size),
        ("real_page_size", now.real_page_size),
        ("option_junk", now.option_junk),
        ("option_zero", now.option_zero),
        ("option_random", now.option_random),
        ("option_poison", now.option_poison),
        ("option_guards", now.option_guards),
        ("option_keyed", now.option_keyed),
    ]
}

/// Returns the bins that have runs, or had some.
fn bins(now: &DetailedStatistics) -> impl Iterator<Item = (&BinStatistics, &BinOperations)> {
    now.bins.iter().zip(&now.bin_operations).filter(|(bin, operations)| bin.runs > 0 || operations.allocations > 0)
}

fn text(now: &DetailedStatistics, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "heapledger allocator, in bytes:")?;
    for (name, bytes, description) in bytes(now) {
        writeln!(out, "{name:>14} {bytes:>15}  {description}")?;
    }
    for (name, count, description) in counts(now) {
        writeln!(out, "{name:>14} {count:>15}  {description}")?;
    }
    writeln!(
        out,
        "{:>14} {:>15}  Allocations, frees and reallocations in place so far.",
        "operations", now.operations
    )?;
    let titles = ["blocks", "runs", "non-full", "unused bytes", "allocations", "frees"];
    let [blocks, runs, non_full, unused, allocations, frees] = titles;
    writeln!(out, "{:>14} {blocks:>12} {runs:>9} {non_full:>9} {unused:>13} {allocations:>15} {frees:>15}", "bin")?;
    for (bin, BinOperations { allocations, frees }) in bins(now) {
        let BinStatistics { size, blocks, runs, runs_non_full, unused, .. } = bin;
        writeln!(
            out,
            "{size:>14} {blocks:>12} {runs:>9} {runs_non_full:>9} {unused:>13} {allocations:>15} {frees:>15}"
        )?;
    }
    Ok(())
}

fn json(now: &DetailedStatistics, out: &mut dyn Write) -> fmt::Result {
    out.write_char('{')?;
    for (name, value, _) in bytes(now).into_iter().chain(counts(now)) {
        write!(out, "\"{name}\":{value},")?;
    }
    for (name, value) in settings(now) {
        write!(out, "\"{name}\":{value},")?;
    }
    write!(out, "\"operations\":{},\"bins\":[", now.operations)?;
    for (number, (bin, BinOperations { allocations, frees })) in bins(now).enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(
            out,
            "{comma}{{\"size\":{},\"runs\":{},\"runs_non_full\":{},\"unused\":{},\"total\":{},\"run_size\":{},\
             \"run_blocks\":{},\"blocks\":{},\"allocations\":{allocations},\"frees\":{frees}}}",
            bin.size, bin.runs, bin.runs_non_full, bin.unused, bin.total, bin.run_size, bin.run_blocks, bin.blocks
        )?;
    }
    out.write_str("]}\n")
}

fn open_metrics(now: &DetailedStatistics, out: &mut dyn Write) -> fmt::Result {
    for (name, value, description) in bytes(now) {
        writeln!(out, "# TYPE heapledger_allocator_{name}_bytes gauge")?;
        writeln!(out, "# UNIT heapledger_allocator_{name}_bytes bytes")?;
        writeln!(out, "# HELP heapledger_allocator_{name}_bytes {description}")?;
        writeln!(out, "heapledger_allocator_{name}_bytes {value}")?;
    }
    for (name, value, description) in counts(now) {
        writeln!(out, "# TYPE heapledger_allocator_{name} gauge")?;
        writeln!(out, "# HELP heapledger_allocator_{name} {description}")?;
        writeln!(out, "heapledger_allocator_{name} {value}")?;
    }
    let name = "heapledger_allocator_bin_unused_by_size_bytes";
    writeln!(out, "# TYPE {name} gauge\n# UNIT {name} bytes\n# HELP {name} Free blocks in runs, by size.")?;
    for bin in now.bins.iter().filter(|bin| bin.runs > 0) {
        writeln!(out, "{name}{{size=\"{}\"}} {}", bin.size, bin.unused)?;
    }
    let name = "heapledger_allocator_operations";
    writeln!(out, "# TYPE {name} counter\n# HELP {name} Allocations, frees and reallocations in place.")?;
    writeln!(out, "{name}_total {}", now.operations)?;
    by_size("allocations", now, |bin| bin.allocations, out)?;
    by_size("frees", now, |bin| bin.frees, out)
}

/// Writes a number of operations of each bin, for OpenMetrics.
fn by_size(
    what: &str,
    now: &DetailedStatistics,
    number: fn(&BinOperations) -> usize,
    out: &mut dyn Write,
) -> fmt::Result {
    let name = format_args!("heapledger_allocator_{what}_by_size");
    writeln!(out, "# TYPE {name} counter\n# HELP {name} The {what} of blocks of up to 64 KiB, by size.")?;
    for (bin, operations) in bins(now) {
        writeln!(out, "{name}_total{{size=\"{}\"}} {}", bin.size, number(operations))?;
    }
    Ok(())
}
