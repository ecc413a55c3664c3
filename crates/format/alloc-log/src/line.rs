//! A line of a log: a call of the allocator, with its result.

use std::fmt;

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

    /// Returns a number that no other pointer of a log has: addresses are below half of all numbers
    /// in programs.
    pub(crate) fn key(self) -> u64 {
        match self {
            Pointer::Address(address) => address,
            Pointer::Slot(slot) => !slot,
        }
    }

    fn write_to(self, text: &mut Vec<u8>) {
        match self {
            Pointer::Address(address) => text.extend_from_slice(format!("{address:#x}").as_bytes()),
            Pointer::Slot(slot) => {
                text.push(b'#');
                add_decimal(slot, text);
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
    /// Parses a line, without its end. Blanks around it do not matter.
    ///
    /// # Errors
    ///
    /// Fails if the line is no call.
    pub fn parse(line: &[u8]) -> Result<Line, LineError> {
        Split::of(line)?.call()
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
        add_decimal(self.process, text);
        text.push(b' ');
        add_decimal(self.thread, text);
        text.push(b' ');
        text.extend_from_slice(self.request.function().name().as_bytes());
        text.push(b'(');
        match self.request {
            Request::Realloc { block, .. } | Request::Free { block } => block.write_to(text),
            Request::Calloc { count: first, .. }
            | Request::Memalign { alignment: first, .. }
            | Request::PosixMemalign { alignment: first, .. }
            | Request::AlignedAlloc { alignment: first, .. } => add_decimal(first, text),
            Request::Malloc { .. } | Request::Valloc { .. } | Request::JemallocStats => {}
        }
        match self.request {
            Request::Malloc { size } | Request::Valloc { size } => add_decimal(size, text),
            Request::Calloc { size, .. }
            | Request::Realloc { size, .. }
            | Request::Memalign { size, .. }
            | Request::PosixMemalign { size, .. }
            | Request::AlignedAlloc { size, .. } => {
                text.push(b',');
                add_decimal(size, text);
            }
            Request::Free { .. } | Request::JemallocStats => {}
        }
        text.push(b')');
        if let Some(result) = self.result {
            text.push(b'=');
            result.write_to(text);
        }
    }
}

fn add_decimal(number: u64, text: &mut Vec<u8>) {
    // Several times as fast as `core::fmt`: a log has six million lines in 200 MB.
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A line whose process and thread are known, and whose call is not parsed yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split<'l> {
    pub(crate) process: u64,
    pub(crate) thread: u64,
    function: &'l [u8],
    arguments: &'l [u8],
    result: &'l [u8],
}

impl<'l> Split<'l> {
    pub(crate) fn of(line: &'l [u8]) -> Result<Split<'l>, LineError> {
        Split::find(line.trim_ascii()).ok_or(LineError::Malformed)
    }

    fn find(line: &'l [u8]) -> Option<Split<'l>> {
        let (process, rest) = first_number(line)?;
        // The first logs had no threads.
        let (thread, rest) = if rest.first()?.is_ascii_digit() { first_number(rest)? } else { (process, rest) };
        let (function, rest) = cut(rest, b'(')?;
        let (arguments, result) = cut(rest, b')')?;
        let result = match result {
            [] => result,
            [b'=', result @ ..] if !result.is_empty() => result,
            _ => return None,
        };
        Some(Split { process, thread, function, arguments, result })
    }

    pub(crate) fn call(self) -> Result<Line, LineError> {
        let function = Function::named(self.function).ok_or(LineError::UnknownFunction)?;
        let request = Request::parse(function, self.arguments).ok_or(LineError::Malformed)?;
        let result = match self.result {
            [] => None,
            _ if matches!(function, Function::Free | Function::JemallocStats) => return Err(LineError::Malformed),
            result => Some(Pointer::parse(result).ok_or(LineError::Malformed)?),
        };
        Ok(Line { process: self.process, thread: self.thread, request, result })
    }
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
