//! Files of the reader's own: which of the two kinds one is of.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use heapledger_dmd::Log;

/// A log says what it is in its beginning.
const BEGINNING_BYTES: u64 = 4096;

/// Whether it is a log of the dark matter detector, and no report file. Of what is neither, nothing is said.
pub(crate) fn is_log(file: &[u8]) -> bool {
    let mut beginning = Vec::new();
    let is_packed = file.starts_with(&[0x1f, 0x8b]);
    // What can be unpacked of a file that is damaged is enough to say what it was to be.
    let _ = match is_packed {
        true => MultiGzDecoder::new(file).take(BEGINNING_BYTES).read_to_end(&mut beginning),
        false => file.take(BEGINNING_BYTES).read_to_end(&mut beginning),
    };
    let has = |key: &[u8]| beginning.windows(key.len()).any(|part| part == key);
    has(b"\"invocation\"") || has(b"\"blockList\"")
}

/// The log in a file, whose text has at most so many bytes.
pub(crate) fn read_log(file: &[u8], bytes_max: usize) -> Result<Log, String> {
    Log::read_at_most(file, bytes_max as u64).map_err(|error| error.to_string())
}
