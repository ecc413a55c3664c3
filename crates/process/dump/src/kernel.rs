//! The kernel's figures about this process.

use std::fs;

use heapledger_profile_formats::chrome::{Region, Totals, protection};

pub(crate) fn totals() -> Option<Totals> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    parse_totals(&status)
}

/// Returns all mappings. This takes the kernel a millisecond for some thousand pages.
pub(crate) fn regions() -> Vec<Region> {
    parse_regions(&fs::read_to_string("/proc/self/smaps").unwrap_or_default())
}

fn parse_totals(status: &str) -> Option<Totals> {
    let value = |name: &str| status.lines().find_map(|line| bytes(line.strip_prefix(name)?));
    Some(Totals {
        resident: value("VmRSS:")?,
        resident_max: value("VmHWM:"),
        is_resident_max_resettable: false,
        private_footprint: value("RssAnon:").map(|anonymous| anonymous + value("VmSwap:").unwrap_or(0)),
    })
}

/// Parses ` 12 kB`.
fn bytes(value: &str) -> Option<u64> {
    value.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn parse_regions(smaps: &str) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for line in smaps.lines() {
        if let Some(region) = parse_mapping(line) {
            regions.push(region);
            continue;
        }
        let Some((region, (name, value))) = regions.last_mut().zip(line.split_once(':')) else { continue };
        let place = match name {
            "Pss" => &mut region.bytes_proportional,
            "Private_Dirty" => &mut region.bytes_private_dirty,
            "Private_Clean" => &mut region.bytes_private_clean,
            "Shared_Dirty" => &mut region.bytes_shared_dirty,
            "Shared_Clean" => &mut region.bytes_shared_clean,
            "Swap" => &mut region.bytes_swapped,
            _ => continue,
        };
        *place = bytes(value).unwrap_or(0);
    }
    regions
}

/// Parses `START-END RIGHTS OFFSET DEVICE INODE   FILE`.
fn parse_mapping(line: &str) -> Option<Region> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (number(start)?, number(end)?);
    let rights = words.next()?;
    let file = words.nth(3).map_or("", str::trim_start);
    let bits =
        [('r', protection::READ), ('w', protection::WRITE), ('x', protection::EXECUTE), ('s', protection::SHARED)];
    Some(Region {
        start,
        bytes: end.checked_sub(start)?,
        protection: bits.iter().filter(|(letter, _)| rights.contains(*letter)).map(|(_, bit)| bit).sum(),
        file: file.to_owned(),
        ..Region::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let status = "Name:\ta\nVmHWM:\t 9 kB\nVmRSS:\t 8 kB\nRssAnon:\t 3 kB\nVmSwap:\t 1 kB\n";
        let totals = parse_totals(status).unwrap();
        assert_eq!((totals.resident, totals.resident_max, totals.private_footprint), (8192, Some(9216), Some(4096)));
        assert_eq!(parse_totals("Name:\ta\n"), None);
        let smaps = "\
55e000-55f000 r-xp 00001000 08:01 17                     /usr/bin/a program\n\
Size:                  4 kB\nPss:                   2 kB\nPrivate_Clean:         1 kB\nSwap:                  0 kB\n\
VmFlags: rd ex\n\
7f0000-7f2000 rw-s 00000000 00:00 0 \nPrivate_Dirty:         8 kB\n";
        let [program, other] = &parse_regions(smaps)[..] else { panic!() };
        assert_eq!((program.start, program.bytes, program.protection), (0x55e000, 4096, 5));
        assert_eq!(
            (&*program.file, program.bytes_proportional, program.bytes_private_clean),
            ("/usr/bin/a program", 2048, 1024)
        );
        assert_eq!((other.bytes, other.protection, &*other.file, other.bytes_private_dirty), (8192, 134, "", 8192));
        assert!(regions().iter().any(|region| region.file == "[stack]") && self::totals().unwrap().resident > 0);
    }
}
