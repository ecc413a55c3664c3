//! Interned texts, which are kept for ever, each once: the values of scopes, and names that are not
//! constants.
//!
//! Each table has a fixed size and needs no locks: a program may declare contexts inside its own
//! allocator.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use heapledger_core::context::Name;

use crate::untracked;

/// The number of bytes of a text that are kept; the rest is cut off.
const LENGTH_MAX: usize = 200;
/// The number of different texts that a table holds.
const TEXTS_MAX: usize = if cfg!(any(test, miri)) { 32 } else { 4096 };
const SLOTS: usize = 2 * TEXTS_MAX;

static VALUES: Interner = Interner::new();
static OTHER: Name = Name::new("(other)");

/// Returns the interned value of a scope; `(other)` if the table is full.
#[doc(hidden)]
pub fn value(text: fmt::Arguments<'_>) -> &'static Name {
    VALUES.format(text)
}

/// A set of texts.
#[derive(Debug)]
pub(crate) struct Interner {
    slots: [AtomicPtr<Name>; SLOTS],
    count: AtomicUsize,
}

impl Interner {
    pub(crate) const fn new() -> Interner {
        Interner { slots: [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS], count: AtomicUsize::new(0) }
    }

    /// Formats a text and returns the name with it.
    pub(crate) fn format(&self, text: fmt::Arguments<'_>) -> &'static Name {
        let mut line = Line::default();
        // If a `Display` fails, the text up to then counts.
        let _ = line.write_fmt(text);
        self.intern(line.text())
    }

    /// Returns the name with this text, which is cut off if it is too long.
    pub(crate) fn intern(&self, text: &str) -> &'static Name {
        let text = cut(text, LENGTH_MAX);
        let mut hasher = DefaultHasher::new();
        hasher.write(text.as_bytes());
        let first = hasher.finish() as usize;
        let mut new = None;
        for index in first..first + SLOTS {
            let Some(slot) = self.slots.get(index % SLOTS) else { break };
            let mut found = slot.load(Ordering::Acquire);
            if found.is_null() {
                if new.is_none() && self.count.fetch_add(1, Ordering::Relaxed) >= TEXTS_MAX {
                    self.count.store(TEXTS_MAX, Ordering::Relaxed);
                    return &OTHER;
                }
                let name = *new.get_or_insert_with(|| keep(text));
                match slot.compare_exchange(ptr::null_mut(), name, Ordering::AcqRel, Ordering::Acquire) {
                    // SAFETY: `name` is the live, aligned box that `keep` made. The exchange has
                    // put it into the table, from which nothing is taken, and only names that are
                    // in no table are discarded. So it is valid for good, and nobody changes it.
                    Ok(_) => return unsafe { &*name },
                    Err(other) => found = other,
                }
            }
            // SAFETY: `found` is not null, so an exchange has put it into the table: it is a box
            // that `keep` made and that is never freed or changed. The load that found it is an
            // acquire load, so what `keep` has written is seen.
            let known = unsafe { &*found };
            if known.bytes() == text.as_bytes() {
                if let Some(name) = new {
                    discard(name);
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
                return known;
            }
        }
        &OTHER
    }
}

/// Returns a new name with a copy of the text. The memory is Heapledger's, not the program's.
fn keep(text: &str) -> *mut Name {
    let _untracked = untracked::enter();
    let length = text.len() as u32;
    // Not by way of a reference: `discard` takes it back.
    let text = Box::into_raw(Box::<[u8]>::from(text.as_bytes())).cast::<u8>();
    Box::into_raw(Box::new(Name { text, length, flags: 0, category: ptr::null() }))
}

/// Frees a name that was not published.
fn discard(name: *mut Name) {
    // SAFETY: `Box::from_raw` requires a box that `Box::into_raw` gave away, once. `keep` made this
    // one. Each exchange that would have published it has failed, so only `intern` has its address,
    // and does not use it after this call.
    let name = unsafe { Box::from_raw(name) };
    let text = ptr::slice_from_raw_parts_mut(name.text.cast_mut(), name.length as usize);
    // SAFETY: `Box::from_raw` requires a box that `Box::into_raw` gave away, once. `keep` made a
    // boxed slice of `length` bytes, which the name alone pointed to.
    drop(unsafe { Box::from_raw(text) });
}

/// Returns the longest prefix of a text with at most `bytes_max` bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let boundary = (0..=bytes_max).rev().find(|&at| text.is_char_boundary(at));
    text.get(..boundary.unwrap_or(0)).unwrap_or_default()
}

/// A buffer for a text, as far as there is room.
struct Line {
    bytes: [u8; LENGTH_MAX],
    length: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line { bytes: [0; LENGTH_MAX], length: 0 }
    }
}

impl Line {
    fn text(&self) -> &str {
        // Only whole characters have been written.
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let taken = cut(text, LENGTH_MAX - self.length);
        self.bytes[self.length..][..taken.len()].copy_from_slice(taken.as_bytes());
        self.length += taken.len();
        // After a cut nothing more is written.
        if taken.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_there_once() {
        static INTERNER: Interner = Interner::new();
        let interner = &INTERNER;
        let texts: Vec<String> = (0..TEXTS_MAX / 2).map(|number| format!("route=/{number}")).collect();
        let texts = &texts;
        let mut found: Vec<Vec<*const Name>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        texts.iter().map(|text| ptr::from_ref(interner.intern(text)) as usize).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap().into_iter().map(ptr::without_provenance).collect())
                .collect()
        });
        let first = found.pop().unwrap();
        assert!(found.iter().all(|other| *other == first));
        for (text, name) in texts.iter().zip(first) {
            assert_eq!(interner.intern(text).bytes(), text.as_bytes());
            assert!(ptr::eq(interner.intern(text), name));
        }
    }

    #[test]
    fn what_is_too_much_is_other() {
        static INTERNER: Interner = Interner::new();
        let interner = &INTERNER;
        for number in 0..TEXTS_MAX {
            assert_eq!(interner.format(format_args!("{number}")).bytes(), number.to_string().as_bytes());
        }
        assert_eq!(interner.intern("one more").bytes(), b"(other)");
        assert_eq!(interner.intern("7").bytes(), b"7");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        static INTERNER: Interner = Interner::new();
        let interner = &INTERNER;
        let text = "é".repeat(LENGTH_MAX);
        assert_eq!(interner.format(format_args!("x{text}y")).bytes(), format!("x{}", "é".repeat(99)).as_bytes());
    }
}
