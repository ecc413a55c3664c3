//! The end of a program that misuses the allocator beyond repair.

use core::fmt::Write;

use crate::arch::{nr, syscall};
use crate::print::Printer;
use crate::sys;

const STDERR: i32 = 2;
const SIGABRT: usize = 6;
/// The status that a shell shows for a program that was ended by SIGABRT.
const STATUS: usize = 128 + SIGABRT;

/// A part of a message. The parts are not made by `core::fmt`, whose code would be mapped into
/// every recorded program.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// A text.
    Text(&'a str),
    /// A text of the program's; printed up to the first byte that is not UTF-8.
    Bytes(&'a [u8]),
    /// A number in base 16, with `0x`: an address, or an id.
    Hex(u64),
    /// A number in base 10.
    Decimal(u64),
}

impl Part<'_> {
    fn print(self, printer: &mut Printer) {
        let _ = match self {
            Part::Text(text) => printer.write_str(text),
            Part::Bytes(bytes) => match str::from_utf8(bytes) {
                Ok(text) => printer.write_str(text),
                Err(error) => {
                    let valid = bytes.get(..error.valid_up_to()).unwrap_or(&[]);
                    printer.write_str(str::from_utf8(valid).unwrap_or(""))
                }
            },
            Part::Hex(number) => printer.write_str("0x").and_then(|()| print_digits(number, 16, printer)),
            Part::Decimal(number) => print_digits(number, 10, printer),
        };
    }
}

fn print_digits(mut number: u64, base: u64, printer: &mut Printer) -> core::fmt::Result {
    let mut digits = [0; 20];
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        let value = (number % base) as u8;
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        number /= base;
        start -= 1;
        if number == 0 {
            break;
        }
    }
    printer.write_str(digits.get(start..).and_then(|digits| str::from_utf8(digits).ok()).unwrap_or(""))
}

/// Prints `heapledger: `, the parts of a message and a newline to standard error.
#[cold]
#[inline(never)]
pub fn print(message: &[Part<'_>]) {
    let mut printer = Printer::new(STDERR);
    Part::Text("heapledger: ").print(&mut printer);
    for part in message {
        part.print(&mut printer);
    }
    Part::Text("\n").print(&mut printer);
    printer.finish();
}

/// Prints a message as [`print`] does, and aborts the program, as the C library's `abort` does.
#[cold]
#[inline(never)]
pub fn abort(message: &[Part<'_>]) -> ! {
    print(message);
    end()
}

/// Ends the process by SIGABRT as abort(3) does, also if the program blocks or ignores the signal:
/// after a handler of the program's has returned, by the default action. In a
/// [sandbox](crate::sandbox) the process exits, with the status that a shell shows for SIGABRT.
#[cold]
pub fn end() -> ! {
    const SIG_UNBLOCK: usize = 1;
    let set = 1_u64 << (SIGABRT - 1);
    let unblocked = [SIG_UNBLOCK, (&raw const set).expose_provenance(), 0, size_of_val(&set), 0, 0];
    let default = [0_usize; 4];
    let action = [SIGABRT, (&raw const default).expose_provenance(), 0, size_of_val(&set), 0, 0];
    let thread = [sys::process_id() as usize, sys::thread_id() as usize, SIGABRT, 0, 0, 0];
    // SAFETY: the kernel reads a live signal set of 8 bytes, and a live `struct kernel_sigaction`
    // of zeroes, which is the default action. No other memory is involved, and the process ends.
    unsafe {
        sys::call(nr::RT_SIGPROCMASK, unblocked);
        sys::call(nr::TGKILL, thread);
        sys::call(nr::RT_SIGACTION, action);
        // A handler of the program's may have blocked it again.
        sys::call(nr::RT_SIGPROCMASK, unblocked);
        sys::call(nr::TGKILL, thread);
    }
    loop {
        // SAFETY: ends the process; no memory is involved.
        unsafe { syscall(nr::EXIT_GROUP, [STATUS, 0, 0, 0, 0, 0]) };
    }
}
