//! Reading of the kernel's text files, without allocation.

use core::ffi::CStr;

use heapledger_core::arch::nr;
use heapledger_core::sys::{self, check};

/// The bytes that are read at once.
const BUFFER: usize = 2048;
/// The bytes of a line that are looked at.
const LINE: usize = 256;

/// Passes the content of a file to `visit`, part by part. False if it cannot be read.
fn for_parts(path: &CStr, mut visit: impl FnMut(&[u8])) -> bool {
    let Some(fd) = super::open(path) else { return false };
    let mut buffer = [0_u8; BUFFER];
    let is_read = loop {
        // SAFETY: the kernel writes at most that many bytes to the live buffer.
        let read = check(unsafe {
            sys::call(nr::READ, [fd as usize, buffer.as_mut_ptr().expose_provenance(), BUFFER, 0, 0, 0])
        });
        match read {
            Ok(0) => break true,
            Ok(count) => visit(buffer.get(..count).unwrap_or(&[])),
            Err(_) => break false,
        }
    };
    sys::close(fd);
    is_read
}

/// Passes each line of a file to `visit`, up to 256 bytes of it. False if the file cannot be read.
pub(super) fn for_lines(path: &CStr, mut visit: impl FnMut(&[u8])) -> bool {
    let (mut line, mut length) = ([0_u8; LINE], 0);
    let is_read = for_parts(path, |part| {
        for &byte in part {
            if byte == b'\n' {
                visit(line.get(..length).unwrap_or(&[]));
                length = 0;
            } else if let Some(to) = line.get_mut(length) {
                *to = byte;
                length += 1;
            }
        }
    });
    if length > 0 {
        visit(line.get(..length).unwrap_or(&[]));
    }
    is_read
}

/// Returns the number of lines of a file. `None` if it cannot be read.
pub(super) fn lines_in(path: &CStr) -> Option<usize> {
    let mut count = 0;
    for_parts(path, |part| count += part.iter().filter(|&&byte| byte == b'\n').count()).then_some(count)
}

/// Returns the number with which a text begins, after blanks.
pub(super) fn number(text: &[u8]) -> Option<usize> {
    let digits = text.trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    core::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// Returns the number behind a name at the beginning of a line.
pub(super) fn number_after(line: &[u8], name: &str) -> Option<usize> {
    number(line.strip_prefix(name.as_bytes())?)
}

/// Returns the number with which a file begins.
pub(super) fn number_in(path: &CStr) -> Option<usize> {
    let mut first = None;
    for_lines(path, |line| first = first.or(Some(number(line))));
    first?
}
