//! The memory of the process, as the kernel counts it.

use core::ffi::{c_char, c_int, c_long, c_void};

unsafe extern "C" {
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn pread(fd: c_int, buffer: *mut c_void, length: usize, offset: c_long) -> isize;
    fn getpagesize() -> c_int;
}

/// The resident anonymous memory and the mapped addresses, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) mapped: u64,
}

/// The file of the kernel that has both.
#[derive(Clone, Copy)]
pub(crate) struct Meter {
    fd: c_int,
    page: u64,
}

impl Meter {
    pub(crate) fn open() -> Meter {
        // SAFETY: a string; no other memory is involved.
        unsafe { Meter { fd: open(c"/proc/self/statm".as_ptr(), 0), page: getpagesize() as u64 } }
    }

    /// Reads both. 0 if the kernel does not say.
    pub(crate) fn read(self) -> Memory {
        let mut text = [0_u8; 128];
        // SAFETY: `pread` writes at most as many bytes as the buffer has.
        let length = unsafe { pread(self.fd, text.as_mut_ptr().cast(), text.len(), 0) };
        let text = text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or(&[]);
        // size resident shared …, in pages; shared is memory of files and shared memory.
        let mut numbers = [0_u64; 3];
        for (number, word) in numbers.iter_mut().zip(text.split(|byte| *byte == b' ')) {
            *number = word.iter().fold(0, |number, digit| number * 10 + u64::from(digit.wrapping_sub(b'0')));
        }
        let [mapped, resident, shared] = numbers;
        Memory { resident: resident.saturating_sub(shared) * self.page, mapped: mapped * self.page }
    }
}
