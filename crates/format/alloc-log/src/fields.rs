//! The fields behind a call, which are no part of logalloc's format.

use std::borrow::Cow;
use std::fmt;

/// Facts about a call that logalloc's lines have no place for: words behind the call, such as
/// `usable=40 time=1204 arena=parser`, in any order.
///
/// Fields of other names are skipped, so that later versions can add some. Mozilla's own scripts
/// take a line with fields for malformed; [`Munge`](crate::Munge) removes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<'l> {
    /// `time`: the time of the call in nanoseconds, of a clock that all processes of a log share.
    pub time_ns: Option<u64>,
    /// `usable`: the usable size of the returned block in bytes.
    pub usable: Option<u64>,
    /// `arena`: the label of the arena of the returned block, as it is written: see
    /// [`Fields::arena_label`]. Empty for an arena without one.
    pub arena: Option<&'l [u8]>,
}

impl<'l> Fields<'l> {
    /// Parses the text behind a call. `None` if it is not well-formed, or has a value that is none.
    pub(crate) fn parse(text: &'l [u8]) -> Option<Fields<'l>> {
        let mut fields = Fields::default();
        for word in words(text) {
            let equals = memchr::memchr(b'=', word).filter(|&at| at > 0)?;
            let (name, value) = (&word[..equals], &word[equals + 1..]);
            let number = || std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+'))?.parse().ok();
            match name {
                b"time" => fields.time_ns = Some(number()?),
                b"usable" => fields.usable = Some(number()?),
                b"arena" => fields.arena = Some(value),
                _ => {}
            }
        }
        Some(fields)
    }

    /// True if the text behind a call consists of fields, whatever their values.
    pub(crate) fn are_well_formed(text: &[u8]) -> bool {
        words(text).all(|word| memchr::memchr(b'=', word).is_some_and(|at| at > 0))
    }

    /// Returns the label of the arena, in which `%20` stands for a blank, and so on.
    pub fn arena_label(&self) -> Option<Cow<'l, [u8]>> {
        let text = self.arena?;
        if !text.contains(&b'%') {
            return Some(Cow::Borrowed(text));
        }
        let (mut label, mut rest) = (Vec::with_capacity(text.len()), text);
        while let [first, behind @ ..] = rest {
            let code = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let code = code.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
            (rest, _) = match code {
                Some(byte) => (&behind[2..], label.push(byte)),
                None => (behind, label.push(*first)),
            };
        }
        Some(Cow::Owned(label))
    }

    /// Appends the fields to a line, each with a blank before it.
    pub fn write_to(&self, text: &mut Vec<u8>) {
        for (name, number) in [(" usable=", self.usable), (" time=", self.time_ns)] {
            if let Some(number) = number {
                text.extend_from_slice(name.as_bytes());
                text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
        }
        if let Some(arena) = self.arena {
            text.extend_from_slice(b" arena=");
            text.extend_from_slice(arena);
        }
    }

    /// Returns a label as it is written in a field: bytes that are no visible ASCII characters, and
    /// `%`, become `%` and two digits.
    pub fn escaped_label(label: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(label.len());
        for &byte in label {
            if byte.is_ascii_graphic() && byte != b'%' {
                text.push(byte);
            } else {
                text.extend_from_slice(format!("%{byte:02x}").as_bytes());
            }
        }
        text
    }
}

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write_to(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}
