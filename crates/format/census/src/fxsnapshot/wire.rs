//! The encoding of Protocol Buffers: varints and fields.

/// The contents of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A number of four or eight bytes, which no known field has.
    Fixed,
}

/// The fields of a message that have not been taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    /// Returns the number and the contents of the next field.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, &'static str> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.rest)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut self.rest)?),
            2 => {
                let length = varint(&mut self.rest)?;
                Value::Bytes(self.split(length)?)
            }
            1 => self.split(8).map(|_| Value::Fixed)?,
            5 => self.split(4).map(|_| Value::Fixed)?,
            _ => return Err("a field has an unknown encoding"),
        };
        if tag >> 3 == 0 {
            return Err("a field has the number 0");
        }
        Ok(Some((tag >> 3, value)))
    }

    /// Returns the bytes after the field that was taken last.
    #[inline]
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Skips so many bytes, which are at most those that are left.
    #[inline]
    pub(super) fn skip(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }

    #[inline]
    fn split(&mut self, length: u64) -> Result<&'a [u8], &'static str> {
        let length = usize::try_from(length).ok().filter(|&it| it <= self.rest.len());
        let (bytes, rest) = self.rest.split_at(length.ok_or("a field is longer than its message")?);
        self.rest = rest;
        Ok(bytes)
    }
}

/// Takes a varint: seven bits per byte, the lowest first; bit 7 says that another byte follows.
#[inline]
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    match **bytes {
        [byte, ..] if byte < 0x80 => {
            *bytes = &bytes[1..];
            Ok(u64::from(byte))
        }
        [low, high, ..] if high < 0x80 => {
            *bytes = &bytes[2..];
            Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
        }
        _ => long_varint(bytes),
    }
}

/// Takes a varint of any length. Those of up to eight bytes, as ids are, are taken at once.
#[inline]
fn long_varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    const BIT_7: u64 = 0x8080_8080_8080_8080;
    if let Some(eight) = bytes.first_chunk() {
        let eight = u64::from_le_bytes(*eight);
        let ends = !eight & BIT_7;
        if ends != 0 {
            let length = ends.trailing_zeros() / 8 + 1;
            let bits = eight & u64::MAX >> (64 - 8 * length) & !BIT_7;
            // The gaps of one bit are closed in pairs of bytes, then in fours, then in all eight.
            let pairs = bits & 0x007f_007f_007f_007f | (bits & 0x7f00_7f00_7f00_7f00) >> 1;
            let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
            *bytes = &bytes[length as usize..];
            return Ok(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4);
        }
    }
    rare_varint(bytes)
}

/// Takes a varint near the end of a message, or one of more than eight bytes.
#[cold]
fn rare_varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            if at == 9 && byte > 1 {
                break;
            }
            *bytes = &bytes[at + 1..];
            return Ok(value);
        }
    }
    Err(if bytes.len() < 10 { "a number is cut off" } else { "a number has more than 64 bits" })
}

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field that is a number.
pub(super) fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

/// Appends a field that is a text or a message.
pub(super) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_read_as_written() {
        let values =
            (0..64).flat_map(|bits| [1_u64 << bits, (1 << bits) - 1, 0x5a5a_5a5a_5a5a_5a5a >> bits, u64::MAX >> bits]);
        for value in values {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            // With and without other data after it.
            for after in [0, 20] {
                let longer = [bytes.as_slice(), &vec![0xff; after]].concat();
                let mut rest = longer.as_slice();
                assert_eq!(varint(&mut rest), Ok(value));
                assert_eq!(rest.len(), after);
            }
            assert!(varint(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert!(varint(&mut [0xff; 10].as_slice()).is_err());
        assert!(varint(&mut [0x80; 11].as_slice()).is_err());
    }
}
