//! Reports from the kernel's figures about the process.

use std::fs;

use heapledger_report_format::{Report, Unit};

use super::add;

pub(super) fn report(reports: &mut Vec<Report>) {
    // The smaller files first: reading them needs memory, too.
    if let Some(faults) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| Faults::parse(&stat)) {
        add(
            reports,
            "page-faults-soft",
            Unit::CountCumulative,
            faults.soft,
            "Pages that the process touched for the first time, and that the kernel gave it without reading from a disk. \
             Many come with memory that is given back and asked for again.",
        );
        add(
            reports,
            "page-faults-hard",
            Unit::CountCumulative,
            faults.hard,
            "Pages that had to be read from a disk: of files, or swapped out. Many mean that the machine has too little \
             memory.",
        );
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(bytes) = kilobytes(&status, "VmSize:") {
        add(
            reports,
            "vsize",
            Unit::Bytes,
            bytes,
            "Addresses that the process has mapped, touched or not, of files and of memory. It is no measure of memory used.",
        );
    }
    if let Some(bytes) = kilobytes(&status, "VmRSS:") {
        add(
            reports,
            "resident",
            Unit::Bytes,
            bytes,
            "Memory of the process that is in physical memory now, including what it shares with other processes.",
        );
    }
    if let Some(bytes) = kilobytes(&status, "VmHWM:") {
        add(reports, "resident-peak", Unit::Bytes, bytes, "The most that `resident` has ever been.");
    }
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let unique = ["Private_Clean:", "Private_Dirty:", "Private_Hugetlb:"].map(|name| kilobytes(&rollup, name));
    if unique[0].is_some() {
        add(
            reports,
            "resident-unique",
            Unit::Bytes,
            unique.into_iter().flatten().sum(),
            "Memory of the process that is in physical memory now and that no other process has: what would be free again \
             if it ended.",
        );
    }
}

struct Faults {
    soft: u64,
    hard: u64,
}

impl Faults {
    fn parse(stat: &str) -> Option<Faults> {
        // The name in parentheses may have anything in it, but nothing after it has a parenthesis.
        let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(7);
        let soft = words.next()?.parse().ok()?;
        let hard = words.nth(1)?.parse().ok()?;
        Some(Faults { soft, hard })
    }
}

/// The value in kB of the line that begins with this name, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let faults = Faults::parse("7 (a) b) S 1 2 3 4 5 6 77 8 99 10\n").unwrap();
        assert_eq!((faults.soft, faults.hard), (77, 99));
        assert!(Faults::parse("7 (a) S 1 2").is_none() && Faults::parse("").is_none());
        let status = "Name:\tVmRSS: 3 kB\nVmSize:\t  12 kB\nVmRSS:\t8 kB\n";
        assert_eq!((kilobytes(status, "VmSize:"), kilobytes(status, "VmRSS:")), (Some(12 << 10), Some(8 << 10)));
        assert_eq!((kilobytes(status, "VmHWM:"), kilobytes("VmHWM: 99999999999999999 kB", "VmHWM:")), (None, None));
    }
}
