//! The header of a capture.

use crate::input::{Input, Step, Stop};
use crate::read_error::ReadError;

/// The first bytes of an uncompressed file.
pub(super) const MAGIC: &[u8; 7] = b"memray\0";

/// The supported versions of the format, which memray 1.11 to 1.20 write.
pub(super) const VERSIONS: std::ops::RangeInclusive<u32> = 11..=13;

/// The header of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    /// The version of Python, as in `PY_VERSION_HEX`; 0 in files before version 12.
    pub(super) python: u32,
    /// True if native stacks were recorded, too.
    pub(super) has_native: bool,
    /// True if the file has totals instead of every call.
    pub(super) is_aggregated: bool,
    /// Milliseconds since the UNIX epoch.
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
    pub(super) command: String,
    pub(super) pid: u32,
    /// The thread that started the recording.
    pub(super) main_thread: u64,
    /// The number of its outermost Python frames that are memray's own.
    pub(super) skipped: u64,
}

impl Header {
    pub(super) fn read(input: &mut Input<'_>) -> Result<Header, ReadError> {
        Header::parse(input).map_err(|stop| match stop {
            Stop::Cut => ReadError::new(input.offset(), "it ends before its first record"),
            Stop::Wrong(error) => error,
        })
    }

    fn parse(input: &mut Input<'_>) -> Step<Header> {
        if input.bytes(MAGIC.len() as u64)? != MAGIC {
            return input.wrong("it does not begin with `memray`");
        }
        let version = input.u32()?;
        if !VERSIONS.contains(&version) {
            let (first, last) = VERSIONS.into_inner();
            return input
                .wrong(format!("it has version {version} of the format, and versions {first} to {last} are read"));
        }
        let python = if version >= 12 { input.u32()? } else { 0 };
        let has_native = input.flag()?;
        let is_aggregated = match input.byte()? {
            0 => false,
            1 => true,
            kind => return input.wrong(format!("it is of an unknown kind, {kind}")),
        };
        let (_calls, _frames) = (input.u64()?, input.u64()?);
        let (start_ms, end_ms) = (input.u64()?, input.u64()?);
        let (command, pid) = (input.text()?, input.u32()?);
        let (main_thread, skipped) = (input.u64()?, input.u64()?);
        let _python_allocator = input.byte()?;
        let _traces_python_allocators = input.flag()?;
        if version >= 12 {
            let _tracks_objects = input.flag()?;
        }
        if version >= 13 {
            let _libraries = input.text()?;
            // Two lists of paths, each with an empty one at its end.
            for _ in 0..2 {
                while !input.text()?.is_empty() {}
            }
        }
        let header =
            Header { version, python, has_native, is_aggregated, start_ms, end_ms, command, pid, main_thread, skipped };
        Ok(header)
    }
}
