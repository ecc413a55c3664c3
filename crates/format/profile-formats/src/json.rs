//! JSON: read as a whole, or piece by piece.

use serde::Deserialize;

use crate::read_error::ReadError;

pub(crate) mod tokens;

/// Parses the value in the file.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ReadError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let before = bytes.split_inclusive(|&byte| byte == b'\n').take(error.line().saturating_sub(1));
        let offset = before.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1);
        // The position is given by the offset.
        let reason = error.to_string();
        let reason = reason.rsplit_once(" at line ").map_or(&*reason, |(reason, _)| reason);
        ReadError::new(offset as u64, reason)
    })
}
