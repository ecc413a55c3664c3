//! The list of what is mapped in a process: `/proc/PID/maps`.
//!
//! Source of the format: `proc_pid_maps(5)`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The end of the name of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses; never empty.
    pub range: Range<u64>,
    /// True if it can be read.
    pub is_readable: bool,
    /// True if it can be written.
    pub is_writable: bool,
    /// True if its code can be executed.
    pub is_executable: bool,
    /// True if changes are shared with other processes.
    pub is_shared: bool,
    /// The offset of its first byte in the file, in bytes.
    pub offset: u64,
    /// The device of its file: the major and the minor number; 0 and 0 if it has none.
    pub device: (u32, u32),
    /// The inode of its file on that device; 0 if it has none.
    pub inode: u64,
    /// The path of its file, or a name in brackets; empty if it has neither. These are the bytes
    /// that the kernel writes: `\012` in the place of a line feed, and ` (deleted)` at the end if
    /// the file has been deleted.
    pub name: Vec<u8>,
}

impl Mapping {
    /// Reads a list of mappings, such as `/proc/PID/maps`, in ascending order of their addresses.
    /// The list is empty if the process, or the thread, has no memory any more.
    ///
    /// # Errors
    ///
    /// Fails if there is no such process, if this one may not see its mappings, or if the list is
    /// longer than `length_max` bytes.
    pub fn read_list(path: impl AsRef<Path>, length_max: u64) -> io::Result<Vec<Mapping>> {
        let mut text = Vec::new();
        let length = File::open(path)?.take(length_max.saturating_add(1)).read_to_end(&mut text)?;
        if length as u64 > length_max {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the list of mappings is too long"));
        }
        Ok(Mapping::parse_list(&text))
    }

    /// Parses the text of a list of mappings, and returns them in ascending order of their
    /// addresses. Lines that are not whole are left out.
    pub fn parse_list(text: &[u8]) -> Vec<Mapping> {
        let mut mappings: Vec<Mapping> = text.split(|&byte| byte == b'\n').filter_map(Mapping::parse).collect();
        mappings.sort_by_key(|mapping| mapping.range.start);
        mappings
    }

    /// Parses a line: `55d0…-55d1… r-xp 00001000 08:01 1234   /usr/bin/program`. `None` if it is
    /// not whole, or no address is between its two.
    pub fn parse(line: &[u8]) -> Option<Mapping> {
        let mut rest = line;
        let range = field(&mut rest)?;
        let &[read, write, execute, shared] = field(&mut rest)?.first_chunk::<4>()?;
        let offset = number(field(&mut rest)?, 16)?;
        let (major, minor) = pair(field(&mut rest)?, b':')?;
        let inode = number(field(&mut rest)?, 10)?;
        let (start, end) = pair(range, b'-')?;
        let range = start..end;
        // A name begins with no space, but may end with one.
        let name = rest.iter().position(|&byte| byte != b' ').map_or(&[][..], |start| &rest[start..]);
        if range.is_empty() {
            return None;
        }
        Some(Mapping {
            range,
            is_readable: read == b'r',
            is_writable: write == b'w',
            is_executable: execute == b'x',
            is_shared: shared == b's',
            offset,
            device: (u32::try_from(major).ok()?, u32::try_from(minor).ok()?),
            inode,
            name: name.to_vec(),
        })
    }

    /// Returns the number of bytes that it has; never 0.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns the path of its file, in the process's own file system. The path of a deleted file
    /// ends with ` (deleted)`. `None` if it has no file with a path.
    pub fn path(&self) -> Option<PathBuf> {
        let bytes = unescaped(&self.name);
        self.name.starts_with(b"/").then(|| PathBuf::from(OsString::from_vec(bytes)))
    }

    /// Returns its name without the note that the file has been deleted.
    pub fn name_before_deletion(&self) -> &[u8] {
        self.name.strip_suffix(DELETED).unwrap_or(&self.name)
    }

    /// True if its name has these bytes somewhere.
    pub fn is_named_like(&self, part: &[u8]) -> bool {
        part.is_empty() || self.name.windows(part.len()).any(|bytes| bytes == part)
    }
}

/// Takes the next field of a line.
fn field<'line>(rest: &mut &'line [u8]) -> Option<&'line [u8]> {
    let start = rest.iter().position(|&byte| byte != b' ')?;
    let text = &rest[start..];
    let length = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    let (field, after) = text.split_at(length);
    *rest = after;
    Some(field)
}

/// Returns two hexadecimal numbers with a byte between them.
fn pair(text: &[u8], between: u8) -> Option<(u64, u64)> {
    let at = text.iter().position(|&byte| byte == between)?;
    Some((number(&text[..at], 16)?, number(&text[at + 1..], 16)?))
}

/// Returns the number that a text consists of.
fn number(text: &[u8], radix: u32) -> Option<u64> {
    let add = |value: u64, &digit: &u8| {
        let digit = char::from(digit).to_digit(radix)?;
        value.checked_mul(radix.into())?.checked_add(digit.into())
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, add) }
}

/// Returns a name with its line feeds.
fn unescaped(name: &[u8]) -> Vec<u8> {
    const ESCAPED: &[u8] = b"\\012";
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, after)) = rest.split_first() {
        match rest.strip_prefix(ESCAPED) {
            Some(after) => {
                bytes.push(b'\n');
                rest = after;
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
