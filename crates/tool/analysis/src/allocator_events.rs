//! The events of the allocator itself, which annotations hold: arenas that come and go, and purges.

use std::borrow::Cow;

use heapledger_recording::{Annotation, ImageId, Recording, Time};

/// The code of the annotation about an arena.
const ARENA: u32 = 259;
/// The code of the annotation about a purge.
const PURGE: u32 = 266;

/// An event of the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorEvent {
    /// The image in which it happened.
    pub image: ImageId,
    /// The time at which it ended.
    pub time: Time,
    /// The event.
    pub kind: AllocatorEventKind,
}

/// The kind of an event of the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocatorEventKind {
    /// An arena was created.
    ArenaCreated {
        /// Its number.
        arena: u64,
        /// Its label.
        label: String,
    },
    /// An arena was disposed of.
    ArenaDisposed {
        /// Its number.
        arena: u64,
        /// Its label.
        label: String,
    },
    /// Unused pages were given back to the system.
    Purged(Purge),
}

/// A purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The arena's number; 0 for the allocator as a whole.
    pub arena: u64,
    /// The arena's label; empty if it has none.
    pub label: String,
    /// The reason, in a word; empty if it is not known.
    pub reason: String,
    /// The number of pages.
    pub pages: u64,
    /// The number of system calls.
    pub calls: u64,
    /// The number of chunks that the pages were in.
    pub chunks: u64,
    /// The time that it took, in nanoseconds.
    pub duration_ns: u64,
}

/// Returns the events of the allocator, of each image in the order of time. Reads all annotations.
/// Malformed ones are left out.
pub fn allocator_events<'a>(recording: &'a Recording<'_>) -> impl Iterator<Item = AllocatorEvent> + 'a {
    let images = recording.images().iter();
    images.flat_map(|image| recording.annotations(image.image)).filter_map(|found| allocator_event(&found.ok()?))
}

/// Returns the event that an annotation describes. `None` for annotations of another kind, and for
/// malformed ones.
pub fn allocator_event(annotation: &Annotation) -> Option<AllocatorEvent> {
    let kind = match annotation.code {
        ARENA => arena(&annotation.payload)?,
        PURGE => AllocatorEventKind::Purged(purge(&annotation.payload)?),
        _ => return None,
    };
    Some(AllocatorEvent { image: annotation.image, time: annotation.time, kind })
}

fn arena(payload: &[u8]) -> Option<AllocatorEventKind> {
    let (arena, rest) = word(payload)?;
    let (event, label) = word(rest)?;
    let label = text(label).into_owned();
    match event {
        1 => Some(AllocatorEventKind::ArenaCreated { arena, label }),
        2 => Some(AllocatorEventKind::ArenaDisposed { arena, label }),
        _ => None,
    }
}

fn purge(payload: &[u8]) -> Option<Purge> {
    let mut rest = payload;
    let mut next = || {
        let (first, others) = word(rest)?;
        rest = others;
        Some(first)
    };
    let (arena, pages, calls, chunks, duration_ns, lengths) = (next()?, next()?, next()?, next()?, next()?, next()?);
    let label_length = (lengths & u64::from(u32::MAX)) as usize;
    let reason_length = (lengths >> 32) as usize;
    let label = rest.get(..label_length)?;
    let reason = rest.get(label_length.next_multiple_of(8)..)?.get(..reason_length)?;
    let (label, reason) = (text(label).into_owned(), text(reason).into_owned());
    Some(Purge { arena, label, reason, pages, calls, chunks, duration_ns })
}

fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*first), rest))
}

/// Returns the text up to its padding.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or(&[]))
}

#[cfg(test)]
mod tests;
