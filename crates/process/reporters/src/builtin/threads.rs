//! The stacks of threads.

use std::fs;
use std::ops::Range;

use heapledger_report_format::{Kind, Report, Unit};

use crate::path::{RenderedPath, part, variable};

const PAGE: usize = 4096;

/// Each thread's stack, as far as it is in memory.
pub(super) fn report(reports: &mut Vec<Report>, is_anonymous: bool) {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return };
    let process = std::process::id();
    let mut threads: Vec<(u32, usize)> = tasks
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .filter(|&thread| thread != process)
        .filter_map(|thread| Some((thread, control_block(thread)?)))
        .collect();
    threads.sort_unstable();
    let mut stacks: Vec<(u32, Range<usize>)> = Vec::new();
    stacks.extend(named_stack(&maps).map(|range| (process, range)));
    for &(thread, top) in &threads {
        let Some(mapping) = mappings(&maps).find(|(mapping, _)| mapping.contains(&top)).map(|(mapping, _)| mapping)
        else {
            continue;
        };
        // Where no guard is between two stacks they are one mapping: each begins where the one
        // below it has its end. What is above may be anything.
        let below =
            threads.iter().map(|&(_, other)| other).filter(|other| mapping.contains(other) && *other < top).max();
        stacks.push((thread, below.map_or(mapping.start, end_of)..end_of(top).min(mapping.end)));
    }
    for (thread, range) in stacks {
        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
        let path = format_args!("explicit/threads/stacks/{} (tid={})", part(name.trim_end()), variable(thread));
        let path = RenderedPath::new(path, is_anonymous);
        reports.push(Report {
            process: "".into(),
            path: path.text.into(),
            stable_path: path.stable.map(Into::into),
            kind: Kind::NonHeap,
            unit: Unit::Bytes,
            amount: i64::try_from(resident(range)).unwrap_or(i64::MAX),
            description: "The stack of a thread, as far as it is in memory.".into(),
        });
    }
}

/// An address at the top of a thread's stack: C libraries have the block that they keep of each
/// thread there, and with it the head of its list of locks that outlive it, which the kernel tells.
fn control_block(thread: u32) -> Option<usize> {
    let (mut head, mut length) = (0_usize, 0_usize);
    // SAFETY: the kernel writes an address and a size there; nothing is read through them.
    let answer = unsafe { libc::syscall(libc::SYS_get_robust_list, thread as i32, &raw mut head, &raw mut length) };
    (answer == 0 && head != 0).then_some(head)
}

/// Where a stack ends that has this in its thread's block: that is smaller than a page, and the
/// last of the stack.
fn end_of(control_block: usize) -> usize {
    (control_block + PAGE / 2).next_multiple_of(PAGE)
}

fn mappings(maps: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(start)?..number(end)?, rest))
    })
}

/// The stack of the first thread.
fn named_stack(maps: &str) -> Option<Range<usize>> {
    mappings(maps).find(|(_, rest)| rest.ends_with("[stack]")).map(|(range, _)| range)
}

/// How many bytes of these are in memory. 0 where it cannot be told: the mapping is gone.
fn resident(range: Range<usize>) -> usize {
    let (start, end) = (range.start & !(PAGE - 1), range.end.next_multiple_of(PAGE));
    if start >= end {
        return 0;
    }
    let mut pages = vec![0_u8; (end - start) / PAGE];
    // SAFETY: there is room for a byte per page; the memory asked about is neither read nor
    // written.
    let error = unsafe { libc::mincore(start as *mut libc::c_void, end - start, pages.as_mut_ptr()) };
    if error != 0 {
        return 0;
    }
    pages.iter().filter(|&&page| page & 1 != 0).count() * PAGE
}
