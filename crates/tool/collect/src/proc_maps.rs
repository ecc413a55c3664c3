//! Reads all of `/proc/PID/maps`: what is mapped in a process, with names.

use std::fs::File;
use std::io::Read;

use heapledger_recording::Protection;

/// The most bytes of the file that are read: those of the 65,530 mappings that Linux allows by
/// default, with long names.
const BYTES_MAX: u64 = 32 << 20;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) protection: Protection,
    /// True if changes are shared with other processes.
    pub(crate) is_shared: bool,
    /// The offset in the file.
    pub(crate) offset: u64,
    pub(crate) inode: u64,
    /// The path, or a name in brackets; empty without one.
    pub(crate) name: Vec<u8>,
}

/// Returns the mapped regions of a process in ascending order; `None` if it has ended, has no
/// memory any more, or may not be read, or if there are more regions than are read.
pub(crate) fn read(pid: u32) -> Option<Vec<Region>> {
    let mut text = Vec::new();
    let file = File::open(format!("/proc/{pid}/maps")).ok()?;
    let read = file.take(BYTES_MAX).read_to_end(&mut text).ok()?;
    let regions = parse(&text);
    (!regions.is_empty() && (read as u64) < BYTES_MAX).then_some(regions)
}

/// Parses lines such as `55d0…-55d1… r-xp 00001000 08:01 1234   /usr/bin/program`; others are left
/// out.
pub(crate) fn parse(text: &[u8]) -> Vec<Region> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Region> {
    let (range, rest) = field(line)?;
    let (bits, rest) = field(rest)?;
    let (offset, rest) = field(rest)?;
    let (_device, rest) = field(rest)?;
    let (inode, name) = field(rest)?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let number = |text: &[u8], radix| u64::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok();
    let (start, end) = (number(&range[..dash], 16)?, number(&range[dash + 1..], 16)?);
    let &[read, write, execute, shared] = bits.first_chunk::<4>()?;
    let bit = |byte: u8, letter: u8, bit: u8| if byte == letter { bit } else { 0 };
    Some(Region {
        start,
        end: (end > start).then_some(end)?,
        protection: Protection::from_bits(bit(read, b'r', 1) | bit(write, b'w', 2) | bit(execute, b'x', 4)),
        is_shared: shared == b's',
        offset: number(offset, 16)?,
        inode: number(inode, 10)?,
        name: name.trim_ascii().to_vec(),
    })
}

/// Returns the first field of a text, and the text after it.
fn field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let length = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    (length > 0).then(|| text.split_at(length))
}

#[cfg(test)]
mod tests;
