//! The options, which the command has written to a file beside this library: a name and a value on
//! each line.

use heapledger_core::arch::nr;
use heapledger_core::sys;
use heapledger_memcheck as checks;

use crate::file;

/// The name of the file.
const NAME: &str = "checks.conf";
/// The bytes of the file that are read.
const LENGTH_MAX: usize = 256;

/// Reads the options and sets them. Without the file there is no quarantine.
pub(crate) fn apply() {
    let mut bytes = [0_u8; LENGTH_MAX];
    let Some(fd) = file::open_beside(format_args!("{NAME}")) else { return };
    // SAFETY: the kernel writes at most that many bytes to the live array.
    let read = unsafe { sys::call(nr::READ, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
    sys::close(fd);
    let text = sys::check(read).ok().and_then(|length| bytes.get(..length));
    let text = text.and_then(|text| core::str::from_utf8(text).ok()).unwrap_or("");
    for line in text.lines() {
        match line.split_once(' ').map(|(name, value)| (name, value.parse::<u64>())) {
            Some(("quarantine", Ok(bytes))) => checks::set_quarantine(bytes),
            Some(("canary", Ok(bytes))) => checks::set_canary(bytes as usize),
            _ => {}
        }
    }
}
