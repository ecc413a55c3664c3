//! The options, which the command has written to a file beside this library: a name and a value on
//! each line.

use heapledger_core::arch::nr;
use heapledger_core::sys;
use heapledger_phc::{FUNCTIONS_MAX, NAMES_BYTES_MAX, PhcOptions, PhcPlacement, PhcSites};

use crate::file;

/// The name of the file.
const NAME: &str = "phc.conf";
/// The bytes of the file that are read: names of functions are the most of them.
const LENGTH_MAX: usize = 8192;
const _: () = assert!(LENGTH_MAX >= NAMES_BYTES_MAX + FUNCTIONS_MAX * "never \n".len() + 1024);

/// Reads the options. Those that the file does not have are the defaults.
pub(crate) fn read() -> PhcOptions {
    let mut bytes = [0_u8; LENGTH_MAX];
    let mut options = PhcOptions::default();
    let text = file::open_beside(format_args!("{NAME}")).and_then(|fd| {
        // SAFETY: the kernel writes at most that many bytes to the live array.
        let read = unsafe { sys::call(nr::READ, [fd as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
        sys::close(fd);
        core::str::from_utf8(bytes.get(..sys::check(read).ok()?)?).ok()
    });
    for line in text.unwrap_or("").lines() {
        set(&mut options, line);
    }
    options
}

fn set(options: &mut PhcOptions, line: &str) {
    let Some((name, value)) = line.split_once(' ') else { return };
    let number = value.parse::<u64>();
    match (name, number) {
        ("first", Ok(number)) => options.delay_first = number,
        ("normal", Ok(number)) => options.delay_normal = number,
        ("reuse", Ok(number)) => options.delay_reuse = number,
        ("size", Ok(number)) => options.bytes_max = number as usize,
        ("memory", Ok(number)) => options.memory_min = number,
        ("adaptive", Ok(number)) => options.is_adaptive = number != 0,
        ("prints", Ok(number)) => options.prints = number != 0,
        ("placement", _) => {
            options.placement = match value {
                "start" => PhcPlacement::Start,
                "drawn" => PhcPlacement::Drawn,
                _ => PhcPlacement::End,
            };
        }
        // The command has checked that there is room for all names.
        ("only", _) => _ = heapledger_phc::choose(PhcSites::Only, value),
        ("never", _) => _ = heapledger_phc::choose(PhcSites::Never, value),
        _ => {}
    }
}
