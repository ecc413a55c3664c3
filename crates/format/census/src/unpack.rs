//! The contents of compressed files.

use std::io::{self, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

/// The maximum number of bytes that are unpacked from a file. A snapshot is about as large as its
/// heap, and the heap of a page in Chrome has at most 4 GiB. But a small file may unpack to a
/// thousand times its size.
pub(crate) const UNPACKED_BYTES_MAX: u64 = 8 << 30;

/// The contents of a gzip stream. Reading fails with [`ErrorKind::FileTooLarge`] if there are more
/// than a maximum of bytes.
pub(crate) struct Unpacked<R> {
    /// Ends one byte after the maximum.
    bytes: io::Take<MultiGzDecoder<R>>,
    bytes_max: u64,
}

impl<R: Read> Unpacked<R> {
    pub(crate) fn new(packed: R, bytes_max: u64) -> Unpacked<R> {
        Unpacked { bytes: MultiGzDecoder::new(packed).take(bytes_max + 1), bytes_max }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(buffer)?;
        if self.bytes.limit() == 0 {
            let reason = format!("the file has more than {} bytes unpacked, which is the limit", self.bytes_max);
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::input::Input;

    #[test]
    fn no_more_than_the_limit_is_unpacked() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&[7; 100]).unwrap();
        let packed = packed.finish().unwrap();
        let mut whole = Vec::new();
        Unpacked::new(packed.as_slice(), 100).read_to_end(&mut whole).unwrap();
        assert_eq!(whole, [7; 100]);
        let mut cut = Unpacked::new(packed.as_slice(), 99);
        let error = Input::new(&mut cut).take(1).unwrap_err();
        let expected = "the file has more than 99 bytes unpacked, which is the limit";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
}
