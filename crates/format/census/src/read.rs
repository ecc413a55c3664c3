//! Reading of snapshots of any format, by their contents.

use std::io::{Cursor, Read};

use flate2::read::MultiGzDecoder;

use crate::graph::Graph;
use crate::read_error::ReadError;
use crate::unpack::{UNPACKED_BYTES_MAX, Unpacked};
use crate::{fxsnapshot, heapsnapshot};

/// A format of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.fxsnapshot` of Firefox.
    Firefox,
    /// `.heapsnapshot` or `.heaptimeline` of V8: Node.js, Chromium and others.
    V8,
    /// `.heapprofile` of V8: a sampling profile, which cannot be read as a graph.
    V8Profile,
}

/// The bytes of a file's beginning that [`detect`] looks at.
pub const HEAD_BYTES: usize = 4096;

/// Returns the format of a file from its beginning, which may end anywhere and may be compressed
/// with gzip. Looks at [`HEAD_BYTES`] bytes at most.
pub fn detect(head: &[u8]) -> Option<Format> {
    let head = &head[..head.len().min(HEAD_BYTES)];
    if !is_gzip(head) {
        return detect_json(head);
    }
    let mut unpacked = Vec::new();
    // The head ends anywhere: what could be unpacked before that is kept.
    let _ = MultiGzDecoder::new(head).take(HEAD_BYTES as u64).read_to_end(&mut unpacked);
    if fxsnapshot::detects(&unpacked) { Some(Format::Firefox) } else { detect_json(&unpacked) }
}

/// Reads a snapshot of Firefox or V8, compressed with gzip or not.
///
/// The time and the memory are in proportion to the unpacked file; see the readers of
/// [`fxsnapshot`] and [`heapsnapshot`].
///
/// # Errors
///
/// Fails if the stream fails, if it is not a snapshot or a damaged one, or if more than 8 GiB are
/// unpacked.
pub fn read(mut input: impl Read) -> Result<Graph, ReadError> {
    let mut head = Vec::new();
    (&mut input).take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(ReadError::Io)?;
    let (format, is_packed) = (detect(&head), is_gzip(&head));
    let whole = Cursor::new(head).chain(input);
    match format {
        Some(Format::Firefox) => fxsnapshot::read(whole),
        Some(Format::V8) if is_packed => heapsnapshot::read(Unpacked::new(whole, UNPACKED_BYTES_MAX)),
        Some(Format::V8) => heapsnapshot::read(whole),
        Some(Format::V8Profile) => Err(ReadError::Profile),
        None => Err(ReadError::Malformed {
            offset: 0,
            reason: "this is neither a snapshot of Firefox (.fxsnapshot) nor one of V8 (.heapsnapshot)".to_owned(),
        }),
    }
}

fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(&[0x1f, 0x8b])
}

fn detect_json(head: &[u8]) -> Option<Format> {
    let has = |text: &str| head.windows(text.len()).any(|part| part == text.as_bytes());
    if head.trim_ascii_start().first() != Some(&b'{') {
        None
    } else if has("\"snapshot\"") && has("\"node_fields\"") {
        Some(Format::V8)
    } else if has("\"head\"") && has("\"callFrame\"") {
        Some(Format::V8Profile)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
