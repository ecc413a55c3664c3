//! The body of an answer, as it is kept and sent.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::answer::AnswerError;

/// The least size of a body that is compressed, in bytes: below it, compressing saves nothing that
/// anybody would notice.
const PACKED_MIN: usize = 16 << 10;

/// A body, and its media type. Large ones are kept compressed.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    bytes: Bytes,
    is_packed: bool,
    pub(crate) media_type: &'static str,
    /// Warnings and facts for people that belong to it.
    pub(crate) notes: Vec<String>,
}

/// The end of a job.
pub(crate) type Outcome = Result<Reply, AnswerError>;

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";
/// The media type of columns.
pub(crate) const COLUMNS: &str = "application/octet-stream";

impl Reply {
    /// Creates a reply; compresses a large body, which takes about 10 ms for a megabyte.
    pub(crate) fn new(body: Vec<u8>, media_type: &'static str, notes: Vec<String>) -> Reply {
        if body.len() >= PACKED_MIN
            && let Ok(packed) = pack(&body)
            && packed.len() < body.len()
        {
            return Reply { bytes: packed.into(), is_packed: true, media_type, notes };
        }
        Reply { bytes: body.into(), is_packed: false, media_type, notes }
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.bytes.len() + self.notes.iter().map(String::len).sum::<usize>()
    }

    /// Returns the body, and true if it is compressed by gzip: never for a client that does not
    /// accept that.
    ///
    /// # Errors
    ///
    /// Only if there is no memory for the unpacked body.
    pub(crate) fn body(&self, accepts_gzip: bool) -> io::Result<(Bytes, bool)> {
        if !self.is_packed || accepts_gzip {
            return Ok((self.bytes.clone(), self.is_packed));
        }
        let mut body = Vec::new();
        GzDecoder::new(&self.bytes[..]).read_to_end(&mut body)?;
        Ok((body.into(), false))
    }
}

fn pack(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_are_kept_compressed() {
        let small = Reply::new(b"{}".to_vec(), JSON, Vec::new());
        assert_eq!(small.body(true).unwrap(), (Bytes::from_static(b"{}"), false));
        let body = vec![b'a'; PACKED_MIN];
        let large = Reply::new(body.clone(), JSON, Vec::new());
        assert!(large.kept_bytes() < PACKED_MIN / 10);
        assert_eq!(large.body(false).unwrap(), (body.clone().into(), false));
        let (packed, is_packed) = large.body(true).unwrap();
        let mut unpacked = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert!(is_packed && unpacked == body);
    }
}
