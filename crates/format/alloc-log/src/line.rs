//! A line of a log: a call of the allocator, with its result.

use std::fmt;

use crate::fields::Fields;
use crate::text::Text;

/// A block as a log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pointer {
    /// An address, `0x7f90495120e0`, as it was.
    Address(u64),
    /// A number, `#3`, that [`Munge`](crate::Munge) has given to the block.
    Slot(u64),
}

impl Pointer {
    /// True for the null pointer.
    pub fn is_null(self) -> bool {
        self == Pointer::Address(0)
    }

    /// Returns a number that no other pointer of a log has, for a [`BlockMap`](crate::BlockMap):
    /// addresses are below half of all numbers in programs.
    pub fn key(self) -> u64 {
        match self {
            Pointer::Address(address) => address,
            Pointer::Slot(slot) => !slot,
        }
    }

    #[inline]
    fn write_to(self, text: &mut Text) {
        match self {
            Pointer::Address(address) => text.address(address),
            Pointer::Slot(slot) => {
                text.add(b"#");
                text.decimal(slot);
            }
        }
    }

    fn parse(text: &[u8]) -> Option<Pointer> {
        match text {
            [b'#', digits @ ..] => decimal(digits).map(Pointer::Slot),
            [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits).map(Pointer::Address),
            // Numbers without a prefix are hexadecimal, too.
            digits => hexadecimal(digits).map(Pointer::Address),
        }
    }
}

/// A function that logs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Function {
    /// `malloc(size)`
    Malloc,
    /// `calloc(count,size)`
    Calloc,
    /// `realloc(block,size)`
    Realloc,
    /// `free(block)`
    Free,
    /// `memalign(alignment,size)`
    Memalign,
    /// `posix_memalign(alignment,size)`; its result is the block, not the error number.
    PosixMemalign,
    /// `aligned_alloc(alignment,size)`
    AlignedAlloc,
    /// `valloc(size)`
    Valloc,
    /// `jemalloc_stats()`: a point at which statistics were asked for.
    JemallocStats,
}

impl Function {
    /// All functions, in their order.
    pub const ALL: [Function; 9] = [
        Function::Malloc,
        Function::Calloc,
        Function::Realloc,
        Function::Free,
        Function::Memalign,
        Function::PosixMemalign,
        Function::AlignedAlloc,
        Function::Valloc,
        Function::JemallocStats,
    ];

    /// Returns the function's name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Function::Malloc => "malloc",
            Function::Calloc => "calloc",
            Function::Realloc => "realloc",
            Function::Free => "free",
            Function::Memalign => "memalign",
            Function::PosixMemalign => "posix_memalign",
            Function::AlignedAlloc => "aligned_alloc",
            Function::Valloc => "valloc",
            Function::JemallocStats => "jemalloc_stats",
        }
    }

    fn named(name: &[u8]) -> Option<Function> {
        // The first letter and the length tell all of them apart; the rest is compared once.
        let function = match (name.first()?, name.len()) {
            (b'm', 6) => Function::Malloc,
            (b'f', 4) => Function::Free,
            (b'c', 6) => Function::Calloc,
            (b'r', 7) => Function::Realloc,
            (b'm', 8) => Function::Memalign,
            (b'p', 14) => Function::PosixMemalign,
            (b'a', 13) => Function::AlignedAlloc,
            (b'v', 6) => Function::Valloc,
            (b'j', 14) => Function::JemallocStats,
            _ => return None,
        };
        (function.name().as_bytes() == name).then_some(function)
    }
}

/// A call with its arguments. Sizes and alignments are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the arguments of the C functions, by their names")]
pub enum Request {
    Malloc { size: u64 },
    Calloc { count: u64, size: u64 },
    Realloc { block: Pointer, size: u64 },
    Free { block: Pointer },
    Memalign { alignment: u64, size: u64 },
    PosixMemalign { alignment: u64, size: u64 },
    AlignedAlloc { alignment: u64, size: u64 },
    Valloc { size: u64 },
    JemallocStats,
}

impl Request {
    /// Returns the called function.
    pub fn function(self) -> Function {
        match self {
            Request::Malloc { .. } => Function::Malloc,
            Request::Calloc { .. } => Function::Calloc,
            Request::Realloc { .. } => Function::Realloc,
            Request::Free { .. } => Function::Free,
            Request::Memalign { .. } => Function::Memalign,
            Request::PosixMemalign { .. } => Function::PosixMemalign,
            Request::AlignedAlloc { .. } => Function::AlignedAlloc,
            Request::Valloc { .. } => Function::Valloc,
            Request::JemallocStats => Function::JemallocStats,
        }
    }

    /// Returns the requested size in bytes, `u64::MAX` if `calloc`'s product is larger; `None` for
    /// calls that request nothing.
    pub fn size(self) -> Option<u64> {
        match self {
            Request::Malloc { size }
            | Request::Realloc { size, .. }
            | Request::Memalign { size, .. }
            | Request::PosixMemalign { size, .. }
            | Request::AlignedAlloc { size, .. }
            | Request::Valloc { size } => Some(size),
            Request::Calloc { count, size } => Some(count.saturating_mul(size)),
            Request::Free { .. } | Request::JemallocStats => None,
        }
    }

    fn parse(function: Function, arguments: &[u8]) -> Option<Request> {
        let (first, second) = match memchr::memchr(b',', arguments) {
            Some(comma) => (&arguments[..comma], Some(&arguments[comma + 1..])),
            None => (arguments, None),
        };
        Some(match (function, second) {
            (Function::JemallocStats, None) if first.is_empty() => Request::JemallocStats,
            (Function::Malloc, None) => Request::Malloc { size: decimal(first)? },
            (Function::Valloc, None) => Request::Valloc { size: decimal(first)? },
            (Function::Free, None) => Request::Free { block: Pointer::parse(first)? },
            (Function::Realloc, Some(size)) => Request::Realloc { block: Pointer::parse(first)?, size: decimal(size)? },
            (Function::Calloc, Some(size)) => Request::Calloc { count: decimal(first)?, size: decimal(size)? },
            (Function::Memalign, Some(size)) => Request::Memalign { alignment: decimal(first)?, size: decimal(size)? },
            (Function::PosixMemalign, Some(size)) => {
                Request::PosixMemalign { alignment: decimal(first)?, size: decimal(size)? }
            }
            (Function::AlignedAlloc, Some(size)) => {
                Request::AlignedAlloc { alignment: decimal(first)?, size: decimal(size)? }
            }
            _ => return None,
        })
    }
}

/// The reason why a line is no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// It is not of the form of a line, or a number in it is none.
    Malformed,
    /// Logs have no function of that name.
    UnknownFunction,
}

impl fmt::Display for LineError {
    /// Writes logalloc's own words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LineError::Malformed => "Malformed input",
            LineError::UnknownFunction => "Unknown function",
        })
    }
}

impl std::error::Error for LineError {}

/// A call of the allocator in a process and a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of the process.
    pub process: u64,
    /// The number of the thread; that of the process in logs without threads.
    pub thread: u64,
    /// The call.
    pub request: Request,
    /// The block that was returned: null if the call failed, `None` if the log does not have it.
    pub result: Option<Pointer>,
}

impl Line {
    /// Parses a line, without its end. Blanks around it do not matter, and neither do
    /// [fields](Fields) behind the call.
    ///
    /// # Errors
    ///
    /// Fails if the line is no call.
    pub fn parse(line: &[u8]) -> Result<Line, LineError> {
        Split::of(line)?.call()
    }

    /// Parses a line, and the fields behind its call.
    ///
    /// # Errors
    ///
    /// Fails if the line is no call, or if the value of a field is none.
    pub fn parse_with_fields(line: &[u8]) -> Result<(Line, Fields<'_>), LineError> {
        let split = Split::of(line)?;
        Ok((split.call()?, Fields::parse(split.fields).ok_or(LineError::Malformed)?))
    }
}

impl fmt::Display for Line {
    /// Writes the line as logalloc does, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write_to(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl Line {
    /// Appends the line as logalloc writes it, without its end.
    pub fn write_to(&self, text: &mut Vec<u8>) {
        let mut line = Text::default();
        line.decimal(self.process);
        line.add(b" ");
        line.decimal(self.thread);
        let pair = |line: &mut Text, first: u64, second: u64| {
            line.decimal(first);
            line.add(b",");
            line.decimal(second);
        };
        match self.request {
            Request::Malloc { size } => {
                line.add(b" malloc(");
                line.decimal(size);
            }
            Request::Free { block } => {
                line.add(b" free(");
                block.write_to(&mut line);
            }
            Request::Realloc { block, size } => {
                line.add(b" realloc(");
                block.write_to(&mut line);
                line.add(b",");
                line.decimal(size);
            }
            Request::Calloc { count, size } => {
                line.add(b" calloc(");
                pair(&mut line, count, size);
            }
            Request::Memalign { alignment, size } => {
                line.add(b" memalign(");
                pair(&mut line, alignment, size);
            }
            Request::PosixMemalign { alignment, size } => {
                line.add(b" posix_memalign(");
                pair(&mut line, alignment, size);
            }
            Request::AlignedAlloc { alignment, size } => {
                line.add(b" aligned_alloc(");
                pair(&mut line, alignment, size);
            }
            Request::Valloc { size } => {
                line.add(b" valloc(");
                line.decimal(size);
            }
            Request::JemallocStats => line.add(b" jemalloc_stats("),
        }
        line.add(b")");
        if let Some(result) = self.result {
            line.add(b"=");
            result.write_to(&mut line);
        }
        text.extend_from_slice(line.as_slice());
    }
}

/// The process and the thread with which the latest line began: most lines begin as the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latest {
    text: [u8; LATEST_MAX],
    /// The length of the text; 0 if there was no line yet.
    length: usize,
    process: u64,
    thread: u64,
}

/// Two numbers of 20 digits, and the blanks behind them.
const LATEST_MAX: usize = 42;

impl Default for Latest {
    fn default() -> Latest {
        Latest { text: [0; LATEST_MAX], length: 0, process: 0, thread: 0 }
    }
}

impl Latest {
    /// Splits a line as [`Split::of`] does.
    #[inline]
    pub(crate) fn split<'l>(&mut self, line: &'l [u8]) -> Result<Split<'l>, LineError> {
        if self.length > 0
            && let Some(rest) = line.strip_prefix(&self.text[..self.length])
            // A log without threads may have a line with one.
            && !rest.first().is_some_and(u8::is_ascii_digit)
            && let Some(call) = Usual::parse(rest)
        {
            let (process, thread) = (self.process, self.thread);
            return Ok(Split { process, thread, call: Call::Usual(call.request, call.result), fields: call.fields });
        }
        self.split_anew(line)
    }

    #[inline(never)]
    fn split_anew<'l>(&mut self, line: &'l [u8]) -> Result<Split<'l>, LineError> {
        let line = line.trim_ascii();
        let (process, thread, rest) = process_and_thread(line).ok_or(LineError::Malformed)?;
        let text = &line[..line.len() - rest.len()];
        if let Some(copy) = self.text.get_mut(..text.len()) {
            copy.copy_from_slice(text);
            (self.length, self.process, self.thread) = (text.len(), process, thread);
        }
        Split::find(process, thread, rest).ok_or(LineError::Malformed)
    }
}

/// Parses lines one after the other, several times as fast as [`Line::parse`] if most of them begin
/// with the same process and thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineParser {
    latest: Latest,
}

impl LineParser {
    /// Does the same as [`Line::parse`].
    ///
    /// # Errors
    ///
    /// Fails if the line is no call.
    #[inline]
    pub fn parse(&mut self, line: &[u8]) -> Result<Line, LineError> {
        self.latest.split(line)?.call()
    }

    /// Does the same as [`Line::parse_with_fields`].
    ///
    /// # Errors
    ///
    /// Fails if the line is no call, or if the value of a field is none.
    pub fn parse_with_fields<'l>(&mut self, line: &'l [u8]) -> Result<(Line, Fields<'l>), LineError> {
        let split = self.latest.split(line)?;
        Ok((split.call()?, Fields::parse(split.fields).ok_or(LineError::Malformed)?))
    }
}

/// A call in the form in which logs have almost all: of one of the four most frequent functions, as
/// logalloc writes it.
struct Usual<'l> {
    request: Request,
    result: Option<Pointer>,
    fields: &'l [u8],
}

impl<'l> Usual<'l> {
    /// Parses what follows the thread. `None` if it is in another form.
    #[inline]
    fn parse(text: &'l [u8]) -> Option<Usual<'l>> {
        let (request, rest) = match text {
            [b'm', b'a', b'l', b'l', b'o', b'c', b'(', rest @ ..] => {
                let (size, rest) = usual_decimal(rest, b')')?;
                (Request::Malloc { size }, rest)
            }
            [b'f', b'r', b'e', b'e', b'(', rest @ ..] => {
                let (block, rest) = usual_pointer(rest)?;
                (Request::Free { block }, rest.strip_prefix(b")")?)
            }
            [b'c', b'a', b'l', b'l', b'o', b'c', b'(', rest @ ..] => {
                let (count, rest) = usual_decimal(rest, b',')?;
                let (size, rest) = usual_decimal(rest, b')')?;
                (Request::Calloc { count, size }, rest)
            }
            [b'r', b'e', b'a', b'l', b'l', b'o', b'c', b'(', rest @ ..] => {
                let (block, rest) = usual_pointer(rest)?;
                let (size, rest) = usual_decimal(rest.strip_prefix(b",")?, b')')?;
                (Request::Realloc { block, size }, rest)
            }
            _ => return None,
        };
        let (result, rest) = match rest {
            [b'=', rest @ ..] if !matches!(request, Request::Free { .. }) => {
                let (result, rest) = usual_pointer(rest)?;
                (Some(result), rest)
            }
            rest => (None, rest),
        };
        // Fields and blanks are rare.
        if rest.is_empty() { Some(Usual { request, result, fields: rest }) } else { None }
    }
}

/// Returns the number up to the byte that must follow it, and what is behind.
#[inline]
fn usual_decimal(text: &[u8], end: u8) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    // As many digits always fit.
    for (at, &byte) in text.iter().enumerate().take(20) {
        let digit = byte.wrapping_sub(b'0');
        if digit >= 10 {
            return (byte == end && at > 0).then(|| (number, &text[at + 1..]));
        }
        if at == 19 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    None
}

/// Returns the pointer at the beginning, and what is behind.
#[inline]
fn usual_pointer(text: &[u8]) -> Option<(Pointer, &[u8])> {
    let Some(text) = text.strip_prefix(b"0x") else {
        let digits = text.strip_prefix(b"#")?;
        let length = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
        return Some((Pointer::Slot(decimal(&digits[..length])?), &digits[length..]));
    };
    let (mut number, mut length) = (0_u64, 0);
    for &byte in text {
        let digit = HEXADECIMAL[usize::from(byte)];
        if digit > 15 {
            break;
        }
        number = number << 4 | u64::from(digit);
        length += 1;
    }
    (1..=16).contains(&length).then(|| (Pointer::Address(number), &text[length..]))
}

/// The values of hexadecimal digits; 255 for other bytes.
const HEXADECIMAL: [u8; 256] = {
    let mut values = [255; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// A line whose process and thread are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split<'l> {
    pub(crate) process: u64,
    pub(crate) thread: u64,
    call: Call<'l>,
    /// The text of the fields, empty or with a blank before it.
    fields: &'l [u8],
}

/// The call of a line.
#[derive(Clone, Copy, Debug)]
enum Call<'l> {
    Usual(Request, Option<Pointer>),
    /// A call that is not parsed yet.
    Text {
        function: &'l [u8],
        arguments: &'l [u8],
        result: &'l [u8],
    },
}

impl<'l> Split<'l> {
    pub(crate) fn of(line: &'l [u8]) -> Result<Split<'l>, LineError> {
        let (process, thread, rest) = process_and_thread(line.trim_ascii()).ok_or(LineError::Malformed)?;
        Split::find(process, thread, rest).ok_or(LineError::Malformed)
    }

    /// Splits what follows the thread.
    fn find(process: u64, thread: u64, rest: &'l [u8]) -> Option<Split<'l>> {
        let (function, rest) = cut(rest, b'(')?;
        let (arguments, rest) = cut(rest, b')')?;
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (result, fields) = rest.split_at(end);
        let result = match result {
            [] => result,
            [b'=', result @ ..] if !result.is_empty() => result,
            _ => return None,
        };
        Fields::are_well_formed(fields).then_some(())?;
        Some(Split { process, thread, call: Call::Text { function, arguments, result }, fields })
    }

    #[inline]
    pub(crate) fn call(self) -> Result<Line, LineError> {
        let (process, thread) = (self.process, self.thread);
        match self.call {
            Call::Usual(request, result) => Ok(Line { process, thread, request, result }),
            Call::Text { function, arguments, result } => {
                let function = Function::named(function).ok_or(LineError::UnknownFunction)?;
                let request = Request::parse(function, arguments).ok_or(LineError::Malformed)?;
                let result = match result {
                    [] => None,
                    _ if matches!(function, Function::Free | Function::JemallocStats) => {
                        return Err(LineError::Malformed);
                    }
                    result => Some(Pointer::parse(result).ok_or(LineError::Malformed)?),
                };
                Ok(Line { process, thread, request, result })
            }
        }
    }
}

/// Returns the process, the thread, and what follows them.
fn process_and_thread(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (process, rest) = first_number(line)?;
    // The first logs had no threads.
    let (thread, rest) = if rest.first()?.is_ascii_digit() { first_number(rest)? } else { (process, rest) };
    Some((process, thread, rest))
}

/// Returns the number at the beginning, and the text behind the blank that follows it.
fn first_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = decimal(&text[..digits])?;
    Some((number, text[digits..].strip_prefix(b" ")?))
}

/// Returns the text before and behind the first of these bytes.
fn cut(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    // Parts of lines are a few bytes long: a plain loop is faster than a search for long texts.
    let place = text.iter().position(|&byte| byte == at)?;
    Some((&text[..place], &text[place + 1..]))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    // Nineteen digits always fit.
    if digits.is_empty() || digits.len() > 19 {
        return number(digits, 10);
    }
    digits.iter().try_fold(0_u64, |number, &digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return number(digits, 16);
    }
    digits.iter().try_fold(0_u64, |number, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

/// Returns the number, if it is one of at most 64 bits without a sign.
fn number(digits: &[u8], base: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?, base).ok()
}
