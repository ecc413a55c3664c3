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

/// Prints `heapledger: `, the parts of a message and a newline to standard error, and aborts the
/// program, as the C library's `abort` does.
#[cold]
#[inline(never)]
pub fn abort(message: &[Part<'_>]) -> ! {
    let mut printer = Printer::new(STDERR);
    Part::Text("heapledger: ").print(&mut printer);
    for part in message {
        part.print(&mut printer);
    }
    Part::Text("\n").print(&mut printer);
    printer.finish();
    loop {
        // SAFETY: sends a signal to this thread, and ends the process if it has a handler that
        // returns, ignores the signal or blocks it; no memory is involved.
        unsafe {
            syscall(nr::TGKILL, [sys::process_id() as usize, sys::thread_id() as usize, SIGABRT, 0, 0, 0]);
            syscall(nr::EXIT_GROUP, [STATUS, 0, 0, 0, 0, 0]);
        }
    }
}
