//! The tables of `heapledger replay`.

use std::time::Duration;

use heapledger_replay::{OwnBin, RequestBucket, Run, Sample, SizeClass, Work};
use heapledger_report_format::{Row, Tree};

use super::Figures;
use crate::args::Replay;
use crate::error::Result;
use crate::format::{bytes, count, counted, duration, percent, share};
use crate::output::Output;

/// The most processes that are shown one by one.
const PROCESSES_MAX: usize = 10;
/// The parts of all calls at which memory is shown over time.
const PARTS: u64 = 10;

pub(super) fn print(arguments: &Replay, figures: &Figures<'_>, out: &mut Output) -> Result<()> {
    let (calls, player) = (figures.calls(), figures.totals.first().map_or(0, |run| run.cpu_player_ns));
    let threads: usize = figures.subjects.iter().map(|subject| subject.work.threads).sum();
    let place = match figures.subjects.len() {
        1 => counted(threads as u64, "thread", "threads"),
        processes => format!("{} processes", count(processes as u64)),
    };
    out.title(format_args!(
        "{} in {place}; at most {} requested at once",
        counted(calls, "call", "calls"),
        bytes(figures.bytes_live_max),
    ))?;
    out.dim_line(format_args!("the replay itself takes {} a call, which is not in the times", each(player, calls)))?;
    out.line("")?;
    let rows: Vec<(&str, &Run)> = figures.rows().collect();
    print_calls(&rows, calls, figures.bytes_live_max, out)?;
    out.line("")?;
    print_memory(&rows, out)?;
    print_processes(figures, out)?;
    if arguments.over_time {
        print_over_time(&rows, calls, out)?;
    }
    for (subject, runs) in figures.subjects.iter().zip(&figures.runs) {
        for (name, run) in figures.allocators.iter().zip(runs) {
            let title = match figures.subjects.len() {
                1 => (*name).to_owned(),
                _ if subject.program.is_empty() => format!("process {} with {name}", subject.process),
                _ => format!("process {} {} with {name}", subject.process, subject.program),
            };
            print_statistics(&subject.work, &title, run, out)?;
        }
    }
    if arguments.sizes {
        print_sizes(&rows, out)?;
        for (name, run) in &rows {
            print_bins(&run.bins, &format!("{name}, bins at the most usable bytes"), out)?;
        }
    }
    Ok(())
}

fn print_calls(rows: &[(&str, &Run)], calls: u64, requested: u64, out: &mut Output) -> Result<()> {
    let headings = ["time", "a call", "peak", "of requested", "end", "slop", "faults", "calls"];
    let mut table = Tree::new(headings);
    for (name, run) in rows {
        let time = run.cpu_allocator_ns();
        let mut row = Row::new(*name).cells([
            duration(Duration::from_nanos(time)),
            each(time, calls),
            bytes(run.peak().resident),
            percent(run.peak().resident, requested),
            bytes(run.end().resident),
            slop(run),
            count(run.faults_minor + run.faults_major),
            run.system_calls.map_or_else(|| "?".to_owned(), |calls| count(calls.iter().sum())),
        ]);
        if run.failed > 0 {
            row = row.note(format!("{} failed", counted(run.failed, "request", "requests")));
        }
        table.push(0, row);
    }
    Ok(out.tree(&table)?)
}

/// Prints where memory is at the peak, and the meaning of that.
fn print_memory(rows: &[(&str, &Run)], out: &mut Output) -> Result<()> {
    let mut table = Tree::new(["wall", "mapped", "committed", "allocated", "waste", "fragmentation"]);
    for (name, run) in rows {
        let peak = run.peak();
        table.push(
            0,
            Row::new(*name).cells([
                duration(Duration::from_nanos(run.wall_allocator_ns())),
                bytes(run.mapped_max()),
                bytes(peak.resident),
                bytes(peak.usable),
                bytes(peak.waste()),
                share(run.fragmentation()),
            ]),
        );
    }
    out.tree(&table)?;
    for line in [
        "committed: resident anonymous memory, at its peak; allocated: usable bytes of",
        "live blocks; waste: the rest; fragmentation: waste as a part, over all calls",
    ] {
        out.dim_line(line)?;
    }
    Ok(())
}

/// Prints the processes, if there are several: those with the most calls.
fn print_processes(figures: &Figures<'_>, out: &mut Output) -> Result<()> {
    if figures.subjects.len() < 2 {
        return Ok(());
    }
    let mut order: Vec<usize> = (0..figures.subjects.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(figures.subjects[at].work.calls));
    for &at in order.iter().take(PROCESSES_MAX) {
        let (subject, work) = (&figures.subjects[at], &figures.subjects[at].work);
        out.line("")?;
        let inherited = match work.inherited {
            0 => String::new(),
            blocks => format!(", {} inherited", counted(blocks, "block", "blocks")),
        };
        out.title(format_args!(
            "process {} {}: {}{inherited}",
            subject.process,
            subject.program,
            counted(work.calls, "call", "calls")
        ))?;
        let rows: Vec<(&str, &Run)> = figures.allocators.iter().copied().zip(&figures.runs[at]).collect();
        print_calls(&rows, work.calls, work.bytes_live_max, out)?;
    }
    let left_out = order.len().saturating_sub(PROCESSES_MAX);
    if left_out > 0 {
        out.line("")?;
        out.dim_line(format_args!(
            "and {}: --json has all",
            counted(left_out as u64, "process more", "processes more")
        ))?;
    }
    Ok(())
}

/// Prints resident memory and its fragmentation at tenths of the calls.
fn print_over_time(rows: &[(&str, &Run)], calls: u64, out: &mut Output) -> Result<()> {
    out.line("")?;
    out.title("resident memory, and the part of it that is waste, after so many calls")?;
    let mut table = Tree::new(rows.iter().map(|(name, _)| (*name).to_owned()));
    for part in 1..=PARTS {
        let until = (u128::from(calls) * u128::from(part) / u128::from(PARTS)) as u64;
        let cell = |run: &Run| {
            let sample: Sample = run.samples.iter().rev().find(|sample| sample.calls <= until).copied()?;
            Some(format!("{} {}", bytes(sample.resident), share(sample.fragmentation())))
        };
        let cells = rows.iter().map(|(_, run)| cell(run).unwrap_or_default());
        table.push(0, Row::new(count(until)).cells(cells));
    }
    Ok(out.tree(&table)?)
}

/// Prints the memory at the points at which the program asked for statistics, in the lines of
/// logalloc-replay, as far as they mean something for any allocator; of Heapledger's, by its own
/// statistics.
fn print_statistics(work: &Work, title: &str, run: &Run, out: &mut Output) -> Result<()> {
    let samples = run.samples.iter().filter(|sample| sample.is_statistics);
    for (number, (point, sample)) in work.points.iter().zip(samples).enumerate() {
        out.line("")?;
        out.title(format_args!("{title}, at a call of jemalloc_stats"))?;
        let mut lines = vec![("Objects", point.blocks), ("Slots", point.slots), ("Ops", point.calls)];
        match sample.own {
            Some(own) => lines.extend([
                ("mapped", own.mapped),
                ("committed", own.committed()),
                ("rss", sample.resident),
                ("allocated", own.allocated),
                ("waste", own.waste),
                ("dirty", own.dirty),
                ("fresh", own.fresh),
                ("madvised", own.madvised),
                ("bookkeep", own.bookkeeping),
                ("bin-unused", own.bin_unused),
                ("quantum-max", own.quantum_max),
                ("small-max", own.small_max),
                ("large-max", own.large_max),
            ]),
            None => lines.extend([
                ("mapped", sample.mapped),
                ("committed", sample.resident),
                ("rss", sample.resident),
                ("allocated", sample.usable),
                ("waste", sample.waste()),
            ]),
        }
        for (label, figure) in lines {
            out.line(format_args!("{:<12}{figure:>12}", format!("{label}:")))?;
        }
        for (label, figure) in [
            ("Total slop", sample.slop_all),
            ("Live sloppy objects", sample.sloppy),
            ("Live sloppy bytes", sample.usable.saturating_sub(sample.requested)),
        ] {
            out.line(format_args!("{label}: {figure}"))?;
        }
        if let Some(blocks) = run.points.get(number) {
            print_own_bins(&blocks.own_bins, out)?;
            print_bins(&blocks.bins, "live blocks by their usable sizes", out)?;
            print_requests(&blocks.requests, out)?;
        }
    }
    Ok(())
}

/// Prints the bins of Heapledger's allocator, by its own statistics.
fn print_own_bins(bins: &[OwnBin], out: &mut Output) -> Result<()> {
    if bins.is_empty() {
        return Ok(());
    }
    out.line("")?;
    out.title("bins, and the parts of them that are used")?;
    let mut table = Tree::new(["unused", "total", "used", "non-full runs", "runs", "full"]);
    for bin in bins {
        let cells = [
            bytes(bin.unused),
            bytes(bin.total),
            percent(bin.blocks.saturating_mul(bin.size), bin.total),
            count(bin.runs_non_full),
            count(bin.runs),
            percent(bin.runs.saturating_sub(bin.runs_non_full), bin.runs),
        ];
        table.push(0, Row::new(bytes(bin.size)).cells(cells));
    }
    Ok(out.tree(&table)?)
}

/// Prints the live blocks by their requested sizes.
fn print_requests(requests: &[RequestBucket], out: &mut Output) -> Result<()> {
    out.line("")?;
    out.title("live blocks by their requested sizes")?;
    let mut table = Tree::new(["blocks"]);
    for bucket in requests {
        table.push(0, Row::new(format!("from {}", bytes(bucket.size_min))).cells([count(bucket.blocks)]));
    }
    Ok(out.tree(&table)?)
}

/// Prints the live blocks by their usable sizes.
fn print_bins(bins: &[SizeClass], title: &str, out: &mut Output) -> Result<()> {
    out.line("")?;
    out.title(title)?;
    let mut table = Tree::new(["blocks", "requested", "usable", "slop"]);
    for bin in bins {
        let cells = [
            count(bin.blocks),
            bytes(bin.requested),
            bytes(bin.usable),
            percent(bin.usable.saturating_sub(bin.requested), bin.requested),
        ];
        table.push(0, Row::new(bytes(bin.size_min)).cells(cells));
    }
    Ok(out.tree(&table)?)
}

/// Prints the requests by powers of two, and the slop that each allocator adds to them.
fn print_sizes(runs: &[(&str, &Run)], out: &mut Output) -> Result<()> {
    let classes: Vec<Vec<SizeClass>> = runs.iter().map(|(_, run)| powers(&run.classes)).collect();
    let Some(first) = classes.first() else { return Ok(()) };
    out.line("")?;
    let names = runs.iter().map(|(name, _)| format!("slop of {name}"));
    let headings = ["blocks".to_owned(), "requested".to_owned()].into_iter().chain(names);
    let mut table = Tree::new(headings);
    for class in first {
        let mut cells = vec![count(class.blocks), bytes(class.requested)];
        cells.extend(classes.iter().map(|own| {
            let same = own.iter().find(|other| other.size_min == class.size_min).copied().unwrap_or_default();
            percent(same.usable.saturating_sub(same.requested), same.requested)
        }));
        table.push(0, Row::new(format!("from {}", bytes(class.size_min))).cells(cells));
    }
    Ok(out.tree(&table)?)
}

/// Joins the classes of each power of two.
fn powers(classes: &[SizeClass]) -> Vec<SizeClass> {
    let mut powers: Vec<SizeClass> = Vec::new();
    for class in classes {
        let size_min = 1 << class.size_min.max(1).ilog2();
        match powers.last_mut().filter(|last| last.size_min == size_min) {
            Some(last) => {
                last.blocks += class.blocks;
                last.requested += class.requested;
                last.usable += class.usable;
            }
            None => powers.push(SizeClass { size_min, ..*class }),
        }
    }
    powers
}

fn slop(run: &Run) -> String {
    let (requested, usable) = run.requests();
    percent(usable.saturating_sub(requested), requested)
}

/// Formats the time of one of several calls.
fn each(nanoseconds: u64, calls: u64) -> String {
    format!("{:.1} ns", nanoseconds as f64 / calls.max(1) as f64)
}
