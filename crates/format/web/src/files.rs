//! Telling the two kinds of loaded files apart.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use heapledger_dmd::Log;

/// The bytes at the beginning of a file in which a log identifies itself.
const BEGINNING_BYTES: u64 = 4096;

/// True if it is a log of the dark matter detector and not a report file. The result for other
/// files is arbitrary.
pub(crate) fn is_log(file: &[u8]) -> bool {
    let mut beginning = Vec::new();
    let is_packed = file.starts_with(&[0x1f, 0x8b]);
    // The part that can be unpacked of a damaged file is enough to tell its kind.
    let _ = match is_packed {
        true => MultiGzDecoder::new(file).take(BEGINNING_BYTES).read_to_end(&mut beginning),
        false => file.take(BEGINNING_BYTES).read_to_end(&mut beginning),
    };
    let has = |key: &[u8]| beginning.windows(key.len()).any(|part| part == key);
    has(b"\"invocation\"") || has(b"\"blockList\"")
}

/// Returns the log in a file whose text has at most `bytes_max` bytes.
pub(crate) fn read_log(file: &[u8], bytes_max: usize) -> Result<Log, String> {
    Log::read_at_most(file, bytes_max as u64).map_err(|error| error.to_string())
}
