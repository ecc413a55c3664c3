//! The address space of an image as events of mappings make it: an interval map.

use std::collections::BTreeMap;

use heapledger_core::Bytes;

use super::{MappingChange, MappingEvent, MappingSerial, Protection};

/// A part of a mapping, with one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedPiece {
    /// The mapping.
    pub serial: MappingSerial,
    /// The first address.
    pub start: u64,
    /// The length.
    pub bytes: Bytes,
    /// The access that is allowed.
    pub protection: Protection,
}

/// The mapped ranges of an address space, each a part of one mapping.
///
/// The recorder finds by this the mappings that a call concerns, and a reader repeats the changes
/// with [`apply`](Self::apply). Operations take logarithmic time in the number of pieces, and
/// linear time in the number of pieces that they change; an event adds at most two pieces. Ranges
/// end at 2⁶⁴ − 1 at the latest: what would lie beyond is cut off.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    /// By first address. They do not overlap.
    pieces: BTreeMap<u64, Piece>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    serial: MappingSerial,
    protection: Protection,
}

impl AddressSpace {
    /// Repeats a change. Returns the pieces that are not mapped any more.
    pub fn apply(&mut self, event: &MappingEvent) -> Vec<MappedPiece> {
        let MappingEvent { serial, start, bytes, .. } = *event;
        match event.change {
            MappingChange::Mapped { protection, .. } => self.map(start, bytes, serial, protection),
            MappingChange::Unmapped => self.unmap(start, bytes),
            MappingChange::Moved { to } => self.relocate(start, bytes, to),
            MappingChange::Protected { protection } => {
                self.protect(start, bytes, protection);
                Vec::new()
            }
            MappingChange::Advised { .. } | MappingChange::Other { .. } => Vec::new(),
        }
    }

    /// Maps a range. Returns the pieces that were mapped there before.
    pub fn map(&mut self, start: u64, bytes: Bytes, serial: MappingSerial, protection: Protection) -> Vec<MappedPiece> {
        let replaced = self.unmap(start, bytes);
        let end = start.saturating_add(bytes.0);
        if end > start {
            self.pieces.insert(start, Piece { end, serial, protection });
            self.bytes += end - start;
            self.join(start, end);
        }
        replaced
    }

    /// Unmaps a range. Returns the pieces that were mapped there, in ascending order.
    pub fn unmap(&mut self, start: u64, bytes: Bytes) -> Vec<MappedPiece> {
        let removed = self.cut_out(start, bytes);
        self.bytes -= removed.iter().map(|piece| piece.bytes.0).sum::<u64>();
        removed
    }

    /// Moves everything in a range to another address. Returns the pieces that were mapped there
    /// before.
    pub fn relocate(&mut self, start: u64, bytes: Bytes, to: u64) -> Vec<MappedPiece> {
        let moved = self.unmap(start, bytes);
        let replaced = self.unmap(to, bytes);
        for piece in moved {
            let start = to.saturating_add(piece.start - start);
            self.map(start, piece.bytes, piece.serial, piece.protection);
        }
        replaced
    }

    /// Changes the protection of what is mapped in a range. Returns the pieces whose protection was
    /// another one, with that.
    pub fn protect(&mut self, start: u64, bytes: Bytes, protection: Protection) -> Vec<MappedPiece> {
        let mut before = self.cut_out(start, bytes);
        for piece in &before {
            let end = piece.start + piece.bytes.0;
            self.pieces.insert(piece.start, Piece { end, serial: piece.serial, protection });
        }
        self.join(start, start.saturating_add(bytes.0));
        before.retain(|piece| piece.protection != protection);
        before
    }

    /// Returns the pieces in a range in ascending order, cut off at its ends.
    pub fn within(&self, start: u64, bytes: Bytes) -> Vec<MappedPiece> {
        let end = start.saturating_add(bytes.0);
        let first = self.pieces.range(..start).next_back().filter(|(_, piece)| piece.end > start);
        let others = self.pieces.range(start..end.max(start));
        let cut = |(&at, piece): (&u64, &Piece)| {
            let (from, until) = (at.max(start), piece.end.min(end));
            MappedPiece {
                serial: piece.serial,
                start: from,
                bytes: Bytes(until.saturating_sub(from)),
                protection: piece.protection,
            }
        };
        first.into_iter().chain(others).map(cut).filter(|piece| piece.bytes.0 > 0).collect()
    }

    /// Returns all pieces in ascending order of addresses.
    pub fn pieces(&self) -> impl Iterator<Item = MappedPiece> + '_ {
        self.pieces.iter().map(|(&start, piece)| MappedPiece {
            serial: piece.serial,
            start,
            bytes: Bytes(piece.end - start),
            protection: piece.protection,
        })
    }

    /// Returns the number of pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// True if nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the number of mapped bytes.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// Removes a range and returns its pieces; those that reach beyond it keep the rest.
    fn cut_out(&mut self, start: u64, bytes: Bytes) -> Vec<MappedPiece> {
        let end = start.saturating_add(bytes.0);
        let cut = self.within(start, bytes);
        for piece in &cut {
            let until = piece.start + piece.bytes.0;
            let Some((&at, &whole)) = self.pieces.range(..=piece.start).next_back() else { continue };
            if at < start {
                self.pieces.insert(at, Piece { end: start, ..whole });
            } else {
                self.pieces.remove(&at);
            }
            if whole.end > end {
                self.pieces.insert(until, whole);
            }
        }
        cut
    }

    /// Joins equal neighbours in and around a range.
    fn join(&mut self, start: u64, end: u64) {
        let first = self.pieces.range(..start).next_back().map_or(start, |(&at, _)| at);
        let starts: Vec<u64> = self.pieces.range(first..=end).map(|(&at, _)| at).collect();
        let mut left: Option<(u64, Piece)> = None;
        for at in starts {
            let Some(&right) = self.pieces.get(&at) else { continue };
            left = match left {
                Some((left_at, before)) if before.is_continued_by(at, &right) => {
                    self.pieces.remove(&at);
                    let joined = Piece { end: right.end, ..before };
                    self.pieces.insert(left_at, joined);
                    Some((left_at, joined))
                }
                _ => Some((at, right)),
            };
        }
    }
}

impl Piece {
    fn is_continued_by(&self, at: u64, other: &Piece) -> bool {
        self.end == at && self.serial == other.serial && self.protection == other.protection
    }
}
