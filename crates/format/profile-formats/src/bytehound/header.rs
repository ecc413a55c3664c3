//! The header of a file.

use crate::input::{Input, Step, Stop};
use crate::read_error::ReadError;

/// The names that bytehound gives architectures.
const ARCHITECTURES: [&[u8]; 4] = [b"x86_64", b"aarch64", b"arm", b"mips64"];
/// The flag of a little-endian machine.
const IS_LITTLE_ENDIAN: u64 = 1;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The time at which the program began, in microseconds of the clock of events.
    pub(super) start_us: u64,
    /// The same time, in nanoseconds since the UNIX epoch.
    pub(super) start_unix_ns: u64,
    pub(super) pid: u32,
    pub(super) command: String,
}

impl Header {
    /// Reads the first event, which is the header.
    pub(super) fn read(input: &mut Input<'_>) -> Result<Header, ReadError> {
        let header = input.u32().and_then(|kind| match kind {
            super::kind::HEADER => Header::parse(input),
            _ => input.wrong("it does not begin with a header"),
        });
        header.map_err(|stop| match stop {
            Stop::Cut => ReadError::new(input.offset(), "it ends before its first event"),
            Stop::Wrong(error) => error,
        })
    }

    /// Reads a header, after its kind.
    pub(super) fn parse(input: &mut Input<'_>) -> Step<Header> {
        input.skip(16)?;
        let (start_us, now_us) = (input.u64()?, input.u64()?);
        let (now_unix_s, now_unix_ns) = (input.u64()?, input.u64()?);
        let pid = input.u32()?;
        let command = sized(input)?;
        let _executable = sized(input)?;
        let architecture = sized(input)?;
        let (flags, pointer_size) = (input.u64()?, input.byte()?);
        if flags & IS_LITTLE_ENDIAN == 0 || !matches!(pointer_size, 4 | 8) {
            return input.wrong(format!("it was recorded on an architecture that is not read, `{architecture}`"));
        }
        let now_unix_ns = now_unix_s.saturating_mul(1_000_000_000).saturating_add(now_unix_ns);
        let start_unix_ns = now_unix_ns.saturating_sub(now_us.saturating_sub(start_us).saturating_mul(1000));
        // The arguments are separated by zeros.
        let command = command.trim_end_matches('\0').replace('\0', " ");
        Ok(Header { start_us, start_unix_ns, pid, command })
    }
}

/// True if the first bytes of a compressed block that is longer look like a header. The block
/// cannot be decompressed without its end. But it begins with literals, since the kind and the
/// random number of the file have nothing to refer to: a token, the rest of their count, and they.
pub(super) fn is_in_cut_block(bytes: &[u8]) -> bool {
    let [1, a, b, c, d, token, _, literals @ ..] = bytes else { return false };
    let is_cut = bytes.len() - 5 < u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let is_header = token >> 4 == 15 && literals.starts_with(&super::kind::HEADER.to_le_bytes());
    let head = &literals[..literals.len().min(4096)];
    is_cut && is_header && ARCHITECTURES.iter().any(|name| head.windows(name.len()).any(|part| part == *name))
}

/// Reads a string that is preceded by its length.
pub(super) fn sized(input: &mut Input<'_>) -> Step<String> {
    let length = input.u32()?;
    Ok(String::from_utf8_lossy(&input.bytes(length.into())?).into_owned())
}
