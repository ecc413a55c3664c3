//! LEB128 varints: seven bits a byte, the low ones first.

/// Appends a varint.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    if value < 1 << 7 {
        out.push(value as u8);
    } else if value < 1 << 14 {
        out.extend_from_slice(&[value as u8 | 0x80, (value >> 7) as u8]);
    } else {
        put_long(out, value);
    }
}

fn put_long(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns a number that is small for small differences of either sign. Differences wrap.
#[inline]
pub(crate) fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    (difference << 1) as u64 ^ (difference >> 63) as u64
}

/// Undoes [`zigzag`]: returns `from` plus the difference.
#[inline]
pub(crate) fn unzigzag(from: u64, zigzag: u64) -> u64 {
    from.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg())
}

/// Reads varints from the front of some bytes.
#[derive(Clone, Debug)]
pub(crate) struct Varints<'a> {
    bytes: &'a [u8],
}

impl<'a> Varints<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Varints<'a> {
        Varints { bytes }
    }

    /// Returns the next varint; `None` at the end, and if the bytes are not a varint of 64 bits.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        match *self.bytes {
            [first, ref rest @ ..] if first < 0x80 => {
                self.bytes = rest;
                Some(u64::from(first))
            }
            [first, second, ref rest @ ..] if second < 0x80 => {
                self.bytes = rest;
                Some(u64::from(first & 0x7f) | u64::from(second) << 7)
            }
            _ => self.next_long(),
        }
    }

    fn next_long(&mut self) -> Option<u64> {
        let mut value = 0;
        for (at, &byte) in self.bytes.iter().enumerate().take(10) {
            // The tenth byte has room for one bit.
            if at == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.bytes = &self.bytes[at + 1..];
                return Some(value);
            }
        }
        None
    }

    /// Returns the next `length` bytes.
    pub(crate) fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(length).ok()?)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests;
