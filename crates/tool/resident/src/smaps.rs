//! The kernel's description of a process's mappings: `/proc/PID/smaps`.
//!
//! Source of the format: `proc_pid_smaps(5)` and `proc_pid_maps(5)`.

use std::ops::Range;

/// A mapping of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SystemMapping {
    /// The addresses.
    pub(crate) addresses: Range<u64>,
    /// True if the process may read it.
    pub(crate) is_readable: bool,
    /// True if the process may write to it.
    pub(crate) is_writable: bool,
    /// True if writes are seen by the other processes that map the same.
    pub(crate) is_shared: bool,
    /// The number of the file in its file system; 0 if there is no file.
    pub(crate) inode: u64,
    /// The path of the file, or a name such as `[heap]`; empty if it has none.
    pub(crate) name: String,
    /// The amounts of memory.
    pub(crate) amounts: Amounts,
}

/// The amounts of memory of a mapping, or of all mappings of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Amounts {
    /// Resident memory. Pages of zeroes that were only read do not count.
    pub resident: u64,
    /// Resident memory that other processes map, too, and that was not written to.
    pub shared_clean: u64,
    /// Resident memory that other processes map, too, and that was written to.
    pub shared_dirty: u64,
    /// Resident memory of this process alone that was written to.
    pub private_dirty: u64,
    /// Resident memory whose pages are marked as touched: since they were made, or since the marks
    /// were cleared.
    pub referenced: u64,
    /// Resident memory that belongs to no file, copies of file pages included.
    pub anonymous: u64,
    /// The part of `anonymous` that is in huge pages.
    pub anonymous_huge: u64,
    /// Memory that was written to swap.
    pub swapped: u64,
    /// Pages of hugetlbfs, which the kernel does not count as resident.
    pub huge_tlb: u64,
}

impl Amounts {
    /// Adds the amount of a line such as `Rss:   12 kB`. Lines of other names are ignored.
    fn add_line(&mut self, name: &str, kilobytes: u64) {
        let amount = match name {
            "Rss" => &mut self.resident,
            "Shared_Clean" => &mut self.shared_clean,
            "Shared_Dirty" => &mut self.shared_dirty,
            "Private_Dirty" => &mut self.private_dirty,
            "Referenced" => &mut self.referenced,
            "Anonymous" => &mut self.anonymous,
            "AnonHugePages" => &mut self.anonymous_huge,
            "Swap" => &mut self.swapped,
            "Shared_Hugetlb" | "Private_Hugetlb" => &mut self.huge_tlb,
            _ => return,
        };
        *amount = amount.saturating_add(kilobytes.saturating_mul(1024));
    }

    /// Adds other amounts to these.
    fn add(&mut self, other: &Amounts) {
        self.resident = self.resident.saturating_add(other.resident);
        self.shared_clean = self.shared_clean.saturating_add(other.shared_clean);
        self.shared_dirty = self.shared_dirty.saturating_add(other.shared_dirty);
        self.private_dirty = self.private_dirty.saturating_add(other.private_dirty);
        self.referenced = self.referenced.saturating_add(other.referenced);
        self.anonymous = self.anonymous.saturating_add(other.anonymous);
        self.anonymous_huge = self.anonymous_huge.saturating_add(other.anonymous_huge);
        self.swapped = self.swapped.saturating_add(other.swapped);
        self.huge_tlb = self.huge_tlb.saturating_add(other.huge_tlb);
    }
}

impl SystemMapping {
    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }

    /// True if the mapping has neither a file nor memory that processes share.
    pub(crate) fn is_private_memory(&self) -> bool {
        !self.is_shared && self.inode == 0 && !self.name.starts_with('/')
    }
}

/// Returns the mappings that `/proc/PID/smaps` lists, by address. Lines that cannot be understood
/// are left out: later kernels may add some.
pub(crate) fn parse(smaps: &str) -> Vec<SystemMapping> {
    let mut mappings: Vec<SystemMapping> = Vec::new();
    for line in smaps.lines() {
        if let Some((name, kilobytes)) = amount(line) {
            if let Some(last) = mappings.last_mut() {
                last.amounts.add_line(name, kilobytes);
            }
        } else if let Some(mapping) = header(line) {
            mappings.push(mapping);
        }
    }
    mappings
}

/// Returns the sums over all mappings. The kernel makes the same for `/proc/PID/smaps_rollup`, for
/// which it would look at each page once more.
pub(crate) fn sum(mappings: &[SystemMapping]) -> Amounts {
    let mut sum = Amounts::default();
    mappings.iter().for_each(|mapping| sum.add(&mapping.amounts));
    sum
}

/// Returns the name and the number of a line such as `Rss:   12 kB`, also from `/proc/PID/status`.
pub(crate) fn amount(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.split_once(':')?;
    let number = rest.trim_start().strip_suffix(" kB")?;
    Some((name, number.parse().ok()?))
}

/// Returns the mapping that a line begins: `START-END PERMISSIONS OFFSET DEVICE INODE NAME`.
fn header(line: &str) -> Option<SystemMapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let permissions = fields.next()?.as_bytes();
    let inode = fields.nth(2)?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim_start().to_owned();
    let has = |at: usize, letter| permissions.get(at) == Some(&letter);
    (start < end).then(|| SystemMapping {
        addresses: start..end,
        is_readable: has(0, b'r'),
        is_writable: has(1, b'w'),
        is_shared: has(3, b's'),
        inode,
        name,
        amounts: Amounts::default(),
    })
}

/// Returns the name that a process has given to private memory: `[anon:NAME]`.
pub(crate) fn name_of(name: &str) -> &str {
    name.strip_prefix("[anon:").and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

/// True for memory that processes share and that is in no file on a disk.
pub(crate) fn is_shared_memory(mapping: &SystemMapping) -> bool {
    let starts = ["/dev/zero", "/dev/shm/", "/memfd:", "/SYSV", "[anon_shmem"];
    starts.iter().any(|start| mapping.name.starts_with(start)) || (mapping.is_shared && mapping.inode == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_and_their_amounts() {
        let smaps = "\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                  12 kB
Private_Dirty:         8 kB
Anonymous:            12 kB
AnonHugePages:         0 kB
Swap:                  4 kB
VmFlags: rd wr mr mw me ac 
7f0000000000-7f0000001000 r--s 00003000 08:01 43                         /a dir/b: c.so (deleted)
Rss:                   4 kB
Shared_Clean:          4 kB
SomethingNew:        many
7f0000002000-7f0000002000 rw-p 00000000 00:00 0 
nonsense
";
        let mappings = parse(smaps);
        assert_eq!(mappings.len(), 2);
        let heap = &mappings[0];
        assert_eq!((heap.size(), heap.name.as_str(), heap.is_private_memory()), (0x21000, "[heap]", true));
        assert!(heap.is_readable && heap.is_writable && !heap.is_shared);
        let amounts = Amounts {
            resident: 12 << 10,
            private_dirty: 8 << 10,
            anonymous: 12 << 10,
            swapped: 4096,
            ..Default::default()
        };
        assert_eq!(heap.amounts, amounts);
        let file = &mappings[1];
        assert_eq!((file.name.as_str(), file.inode, file.is_shared), ("/a dir/b: c.so (deleted)", 43, true));
        assert_eq!((file.amounts.resident, file.amounts.shared_clean), (4096, 4096));
    }

    #[test]
    fn numbers_that_are_too_large_are_bounded() {
        let smaps = format!("0-ffffffffffffffff rw-p 0 0:0 0\nRss: {0} kB\nRss: {0} kB\n", u64::MAX);
        assert_eq!(parse(&smaps)[0].amounts.resident, u64::MAX);
    }

    /// The sums of the mappings are the kernel's own sums.
    #[test]
    fn the_sums_of_this_process_are_close_to_the_kernels() {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap();
        let rollup = read("smaps_rollup");
        let rollup = rollup.lines().filter_map(amount).find(|(name, _)| *name == "Rss").unwrap().1 * 1024;
        let sums = sum(&parse(&read("smaps")));
        // Other tests run in other threads meanwhile.
        assert!(rollup > 0 && sums.resident.abs_diff(rollup) < 64 << 20, "{sums:?} {rollup:?}");
        assert!(sums.anonymous <= sums.resident, "{sums:?}");
    }
}
