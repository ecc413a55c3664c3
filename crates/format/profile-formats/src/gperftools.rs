//! The text of gperftools' heap profiler, as google-pprof and `go tool pprof` read it: addresses,
//! and the addresses of modules. Readers look functions up in the modules themselves.

use std::collections::HashMap;
use std::io::{self, Write};

mod read;

use crate::calls::on_one_line;
use crate::holds::Holds;
use crate::profile::{Amount, Known, Module, Profile, Sample};

pub use read::{detects, read};

/// The live blocks at one moment, and all allocations, by addresses.
pub const HOLDS: Holds = Holds { amounts: AMOUNTS, expected: AMOUNTS, blocks: true, ..Holds::STACKS };

const AMOUNTS: Known = Known { allocated: true, live: true, ..Known::NONE };

/// The live and the allocated amount.
#[derive(Clone, Copy, Default)]
struct Row {
    live: Amount,
    allocated: Amount,
}

/// Writes the file. Takes memory in proportion to the profile. Amounts are final, including
/// estimates: readers do not scale them.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let moved = apart(&profile.modules);
    let mut rows: Vec<(Vec<u64>, Row)> = Vec::new();
    let mut places: HashMap<Vec<u64>, usize> = HashMap::new();
    let mut whole = Row::default();
    for sample in &profile.samples {
        let at = *places.entry(addresses(profile, sample, &moved)).or_insert_with_key(|stack| {
            rows.push((stack.clone(), Row::default()));
            rows.len() - 1
        });
        for row in [&mut rows[at].1, &mut whole] {
            add(&mut row.live, sample.amounts.live);
            add(&mut row.allocated, sample.amounts.allocated);
        }
    }
    writeln!(out, "heap profile: {} @ heapprofile", text(&whole))?;
    for (stack, row) in &rows {
        write!(out, "{} @", text(row))?;
        stack.iter().try_for_each(|address| write!(out, " {address:#x}"))?;
        writeln!(out)?;
    }
    writeln!(out, "\nMAPPED_LIBRARIES:")?;
    for (module, start) in profile.modules.iter().zip(moved).filter(|(module, _)| module.end > module.start) {
        let end = start.saturating_add(module.end - module.start);
        writeln!(out, "{start:08x}-{end:08x} r-xp {:08x} 00:00 1 {}", module.file_offset, on_one_line(&module.path))?;
    }
    Ok(())
}

fn add(sum: &mut Amount, amount: Amount) {
    // An estimate may have bytes but no blocks, which readers refuse.
    let blocks = amount.blocks.max(u64::from(amount.bytes > 0));
    sum.add(Amount { blocks, ..amount });
}

fn text(Row { live, allocated }: &Row) -> String {
    format!("{}: {} [{}: {}]", live.blocks, live.bytes, allocated.blocks, allocated.bytes)
}

/// Returns the addresses of a stack, the innermost first. They are return addresses, from which
/// readers subtract one. google-pprof does not do so for the innermost, so that is an address
/// inside the call.
fn addresses(profile: &Profile, sample: &Sample, moved: &[u64]) -> Vec<u64> {
    let locations = sample.locations.iter().filter_map(|&at| profile.locations.get(at));
    let address =
        |location: &crate::Location| match location.module.and_then(|at| profile.modules.get(at).zip(moved.get(at))) {
            Some((module, &start)) => location.address.wrapping_sub(module.start).wrapping_add(start),
            None => location.address,
        };
    let calls: Vec<u64> = locations.map(address).collect();
    calls.iter().enumerate().map(|(depth, &call)| call.saturating_add(u64::from(depth > 0))).collect()
}

/// Returns the addresses to write for modules: the true ones, except for modules of other processes
/// at the same addresses.
fn apart(modules: &[Module]) -> Vec<u64> {
    const PAGE: u64 = 1 << 16;
    let mut taken: Vec<(u64, u64)> = Vec::with_capacity(modules.len());
    for module in modules {
        let mut start = module.start;
        let length = module.end.saturating_sub(start);
        if taken.iter().any(|&(from, to)| start < to && from < start.saturating_add(length)) {
            let free = taken.iter().map(|&(_, to)| to).max().unwrap_or(0);
            // Readers look at the offset in the page.
            start = free.div_ceil(PAGE).saturating_mul(PAGE).saturating_add(start % PAGE);
        }
        taken.push((start, start.saturating_add(length)));
    }
    taken.into_iter().map(|(start, _)| start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{example, written};

    #[test]
    fn rows_add_up_and_modules_are_apart() {
        let mut profile = example();
        let module = |path: &str, start, end| Module { path: path.into(), start, end, ..Module::default() };
        // A module of another process, at the same address.
        profile.modules.push(module("/bin/b", 0x2000, 0x4000));
        profile.modules.push(module("", 0, 0));
        profile.locations[3].module = Some(1);
        let file = written(write, &profile);
        let expected = "heap profile: 10: 106 [16: 130] @ heapprofile
6: 96 [12: 120] @ 0x1004 0x12201
3: 3 [3: 3] @ 0x1fff 0x2101 0x12201
1: 7 [1: 7] @

MAPPED_LIBRARIES:
00001000-00003000 r-xp 00000000 00:00 1 /bin/a
00012000-00014000 r-xp 00000000 00:00 1 /bin/b
";
        assert_eq!(String::from_utf8(file).unwrap(), expected);
    }

    #[test]
    fn estimates_of_bytes_in_no_block() {
        let mut profile = example();
        profile.samples.truncate(1);
        profile.samples[0].amounts.live = Amount { blocks: 0, bytes: 9 };
        let file = written(write, &profile);
        assert!(file.starts_with(b"heap profile: 1: 9 [8: 80] @ heapprofile\n1: 9 [8: 80] @ 0x1004 0x2201\n"));
    }
}
