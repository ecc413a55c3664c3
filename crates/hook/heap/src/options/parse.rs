//! The grammar of the options: words and letters, separated by spaces, commas or semicolons.
//!
//! A word is `NAME` or `NAME=VALUE`. Letters are those of mozjemalloc's `MALLOC_OPTIONS`, each
//! with a decimal number before it if it takes one, and may be written together: `4fj2Q`.

use super::{AllocatorOptions, Poison};

/// Receives a text that is not an option, and the reason.
pub(super) type Refuse<'a> = &'a mut dyn FnMut(&[u8], &str);

/// The largest number before a letter.
const PREFIX_MAX: usize = 9999;
/// The largest shift of the page size: from 4 to 64 KiB.
const PAGE_SHIFT_MAX: u32 = 4;

/// Sets the options that a text names.
pub(super) fn parse(text: &[u8], options: &mut AllocatorOptions, refuse: Refuse<'_>) {
    for word in text.split(|&byte| byte.is_ascii_whitespace() || byte == b',' || byte == b';') {
        if word.is_empty() || is_word(word, options) {
            continue;
        }
        if word.iter().any(|&byte| byte == b'=' || byte == b'-') || !word.iter().any(|&byte| is_letter(byte)) {
            refuse(word, reason(word));
        } else {
            letters(word, options, refuse);
        }
    }
}

/// Returns the reason why a word is not an option.
fn reason(word: &[u8]) -> &'static str {
    let name = word.split(|&byte| byte == b'=').next().unwrap_or(&[]);
    match name {
        b"poison" => "expected `poison=none`, `poison=all` or `poison=CACHE_LINES`",
        b"dirty-shift" => "expected a number from -16 to 16, such as `dirty-shift=-2`",
        b"limit" => "expected a number of bytes, such as `limit=512M`",
        b"thp" => "expected `thp=never` or `thp=default`",
        b"page-shift" => "expected a number from 0 to 4, such as `page-shift=2`",
        b"decay" => "expected a number of seconds, such as `decay=10`",
        _ => "unknown option",
    }
}

/// Sets the option that a word is. False if there is none.
fn is_word(word: &[u8], options: &mut AllocatorOptions) -> bool {
    let mut parts = word.splitn(2, |&byte| byte == b'=');
    let (name, value) = (parts.next().unwrap_or(&[]), parts.next());
    match (name, value) {
        (b"junk", None) => options.junk = true,
        (b"zero", None) => options.zero = true,
        (b"poison", None | Some(b"all")) => options.poison = Poison::All,
        (b"poison", Some(b"none")) => options.poison = Poison::None,
        (b"random", None) => options.randomize = true,
        (b"guard", None) => options.guards = true,
        (b"keyed", None) => options.keyed_lists = true,
        (b"stats-at-exit", None) => options.statistics_at_exit = true,
        (b"thp", Some(b"never")) => options.no_large_pages = true,
        (b"thp", Some(b"default")) => options.no_large_pages = false,
        (b"poison", Some(lines)) => match number(lines) {
            Some(0) => options.poison = Poison::None,
            Some(lines) => options.poison = Poison::CacheLines(lines),
            None => return false,
        },
        (b"dirty-shift", Some(value)) => {
            let (is_negative, digits) = value.strip_prefix(b"-").map_or((false, value), |digits| (true, digits));
            match number(digits).filter(|&shift| shift <= 16) {
                Some(shift) => options.dirty_shift = if is_negative { -(shift as i32) } else { shift as i32 },
                None => return false,
            }
        }
        (b"page-shift", Some(value)) => match number(value).and_then(|shift| u32::try_from(shift).ok()) {
            Some(shift @ 0..=PAGE_SHIFT_MAX) => options.page_shift = shift,
            _ => return false,
        },
        (b"decay", Some(value)) => match number(value).and_then(|seconds| u32::try_from(seconds).ok()) {
            Some(seconds) => options.decay_seconds = seconds,
            None => return false,
        },
        (b"limit", Some(value)) => match bytes(value) {
            Some(bytes) => options.bytes_max = bytes,
            None => return false,
        },
        _ => return false,
    }
    true
}

/// Returns a decimal number of digits only.
fn number(text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_usize, |number, &digit| {
        let digit = char::from(digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit as usize)
    })
}

/// Returns a number of bytes, with `K`, `M` or `G` for powers of 1024.
fn bytes(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text.split_last() {
        Some((b'K', digits)) => (digits, 10),
        Some((b'M', digits)) => (digits, 20),
        Some((b'G', digits)) => (digits, 30),
        _ => (text, 0),
    };
    number(digits)?.checked_mul(1 << shift)
}

fn is_letter(byte: u8) -> bool {
    b"fFjJzZqQrRP".contains(&byte)
}

/// Sets the options that letters stand for. Others are refused one by one.
fn letters(word: &[u8], options: &mut AllocatorOptions, refuse: Refuse<'_>) {
    let mut prefix = None;
    let mut at = 0;
    while let Some(&letter) = word.get(at) {
        at += 1;
        if let Some(digit) = char::from(letter).to_digit(10) {
            prefix = Some((prefix.unwrap_or(0) * 10 + digit as usize).min(PREFIX_MAX));
            continue;
        }
        let times = prefix.take().unwrap_or(1);
        let shift = times.min(16) as i32;
        match letter {
            b'f' => options.dirty_shift = (options.dirty_shift - shift).max(-16),
            b'F' => options.dirty_shift = (options.dirty_shift + shift).min(16),
            b'j' => options.junk = false,
            b'J' => options.junk = true,
            b'z' => options.zero = false,
            b'Z' => options.zero = true,
            b'q' => options.poison = Poison::None,
            b'Q' if word.get(at) == Some(&b'Q') => {
                at += 1;
                options.poison = Poison::All;
            }
            b'Q' => options.poison = if times == 0 { Poison::None } else { Poison::CacheLines(times) },
            b'r' => options.randomize = false,
            b'R' => options.randomize = true,
            b'P' => options.page_shift = (options.page_shift + shift as u32).min(PAGE_SHIFT_MAX),
            _ => refuse(&[letter], "unknown letter"),
        }
    }
}
