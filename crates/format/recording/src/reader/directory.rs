//! The chunks of a file: found by the index or, without one, by going from chunk to chunk. They are
//! read by their entries.

use crate::error::{Damage, Reason};
use crate::frame::{self, ChunkFrame, FILE_HEADER, NoFrame, TRAILER, Trailer, Unpacker};
use crate::head::{CHUNK_ROWS_MAX, ChunkEntry, ChunkKind};
use crate::messages::Footer;
use crate::{proto, records};

/// The chunks that a file has.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) chunks: Vec<ChunkEntry>,
    pub(super) footer: Option<Footer>,
    pub(super) damage: Vec<Damage>,
}

impl Directory {
    pub(super) fn read(file: &[u8]) -> Directory {
        let end = file.len().saturating_sub(TRAILER).max(FILE_HEADER);
        let Some(trailer) = file.get(end..).and_then(Trailer::from_bytes) else {
            return Directory::scan(file, Damage { offset: file.len() as u64, reason: Reason::NoTrailer });
        };
        Directory::from_index(&file[..end], trailer).unwrap_or_else(|| {
            // The trailer is not at fault, but there is no better place to point at: scanning finds
            // what is wrong.
            Directory::scan(file, Damage { offset: end as u64, reason: Reason::BadIndex })
        })
    }

    /// Reads the index. `file` ends where the trailer begins.
    fn from_index(file: &[u8], trailer: Trailer) -> Option<Directory> {
        let index = usize::try_from(trailer.index).ok()?;
        let footer = usize::try_from(trailer.footer).ok()?;
        if index < FILE_HEADER || index > footer || footer > file.len() {
            return None;
        }
        let mut unpacker = Unpacker::default();
        let mut directory =
            Directory { footer: Some(read_footer(&file[footer..], &mut unpacker)?), ..Directory::default() };
        let mut end = FILE_HEADER as u64;
        let mut rest = &file[index..footer];
        while !rest.is_empty() {
            let frame = ChunkFrame::parse(rest).ok().filter(|frame| frame.kind == ChunkKind::Index)?;
            rest = &rest[frame.length()..];
            for entry in records::read::<proto::IndexEntry>(unpacker.unpack(&frame).ok()?) {
                let proto::IndexEntry { length, kind, head } = entry.ok()?;
                let offset = end;
                end += u64::from(length);
                // This bounds the number of entries by the size of the file.
                if (length as usize) < frame::CHUNK_HEADER || end > trailer.index {
                    return None;
                }
                let kind = ChunkKind::from_number(u16::try_from(kind).ok()?);
                directory.chunks.push(ChunkEntry { offset, length, kind, head: head?.into() });
            }
        }
        // The chunks fill the file: none was left out.
        (end == trailer.index).then_some(directory)
    }

    /// Goes from chunk to chunk, and skips bytes that are not a chunk.
    fn scan(file: &[u8], why: Damage) -> Directory {
        let mut directory = Directory { damage: vec![why], ..Directory::default() };
        let mut unpacker = Unpacker::default();
        let mut astray = file.len();
        let mut at = FILE_HEADER;
        while at < file.len() {
            let rest = &file[at..];
            if rest.len() == TRAILER && Trailer::from_bytes(rest).is_some() {
                break;
            }
            let mut wrong = |reason| directory.damage.push(Damage { offset: at as u64, reason });
            let frame = match ChunkFrame::parse(rest) {
                Ok(frame) => frame,
                Err(no_frame) => {
                    let next = frame::find_chunk(file, at + 1).unwrap_or(file.len());
                    wrong(match no_frame {
                        NoFrame::Truncated if next == file.len() => Reason::Truncated,
                        NoFrame::Damaged => Reason::ChunkHeader,
                        _ => Reason::Gap { bytes: (next - at) as u64 },
                    });
                    at = next;
                    continue;
                }
            };
            let end = at + frame.length();
            let checked = frame.check();
            let next = match checked {
                // Bytes are missing from the chunk or there are too many, so its length is wrong.
                // Each byte may be looked at a second time only once, lest a hostile file take
                // forever.
                Err(_) if !is_boundary(file, end) && frame.length() <= astray => {
                    astray -= frame.length();
                    frame::find_chunk(file, at + frame::CHUNK_HEADER).unwrap_or(file.len())
                }
                _ => end,
            };
            match (frame.kind, checked.and_then(|()| frame.head())) {
                (_, Err(reason)) => wrong(reason),
                (ChunkKind::Index, Ok(_)) => {}
                (ChunkKind::Footer, Ok(_)) => match read_footer(&file[at..end], &mut unpacker) {
                    Some(footer) => directory.footer = Some(footer),
                    None => wrong(Reason::Invalid("the footer")),
                },
                (kind, Ok(head)) => {
                    // A frame is a little larger than CHUNK_RAW_MAX at most.
                    let length = frame.length() as u32;
                    directory.chunks.push(ChunkEntry { offset: at as u64, length, kind, head });
                }
            }
            at = next;
        }
        directory
    }
}

/// Returns the contents of a chunk, which must be the one that its entry describes.
pub(super) fn read_chunk<'u, 'a: 'u>(
    file: &'a [u8],
    chunk: &ChunkEntry,
    unpacker: &'u mut Unpacker,
) -> Result<&'u [u8], Reason> {
    let bytes = usize::try_from(chunk.offset).ok().and_then(|offset| file.get(offset..)).unwrap_or(&[]);
    let frame = ChunkFrame::parse(bytes).map_err(|_| Reason::ChunkHeader)?;
    let contents = unpacker.unpack(&frame)?;
    if frame.kind != chunk.kind || frame.length() != chunk.length as usize || frame.head()? != chunk.head {
        return Err(Reason::IndexMismatch);
    }
    if chunk.head.rows as usize > CHUNK_ROWS_MAX {
        return Err(Reason::Invalid("more rows than a chunk may have"));
    }
    Ok(contents)
}

/// True if a chunk, the trailer or the end of the file is here.
fn is_boundary(file: &[u8], at: usize) -> bool {
    let rest = &file[at..];
    rest.is_empty() || ChunkFrame::parse(rest).is_ok() || Trailer::from_bytes(rest).is_some()
}

/// Returns the footer, if these bytes are exactly its chunk.
fn read_footer(bytes: &[u8], unpacker: &mut Unpacker) -> Option<Footer> {
    let frame = ChunkFrame::parse(bytes).ok().filter(|frame| frame.kind == ChunkKind::Footer)?;
    if frame.length() != bytes.len() {
        return None;
    }
    let footer: proto::Footer = records::read(unpacker.unpack(&frame).ok()?).next()?.ok()?;
    Some(footer.into())
}

#[cfg(test)]
mod tests;
