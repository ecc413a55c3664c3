//! Line tables of code objects, in the formats of all versions of Python.

/// Returns the line of an instruction; 0 if the table has none.
pub(super) fn line(python: u32, table: &[u8], first_line: i32, instruction: i64) -> u32 {
    let Ok(instruction) = u64::try_from(instruction) else { return 0 };
    if table.is_empty() {
        return 0;
    }
    let line = match python >> 16 {
        0x030b.. => since_3_11(table, first_line, instruction / 2),
        0x030a => of_3_10(table, first_line, instruction.saturating_mul(2)),
        _ => before_3_10(table, first_line, instruction),
    };
    line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0)
}

/// Reads entries of a byte with a kind and a length in code units, and operands that depend on the
/// kind (`Objects/locations.md` of CPython).
fn since_3_11(table: &[u8], first_line: i32, unit: u64) -> Option<i32> {
    let mut bytes = table.iter().copied();
    let (mut line, mut end) = (first_line, 0);
    while let Some(head) = bytes.next() {
        end += u64::from(head & 7) + 1;
        match head >> 3 & 15 {
            15 => {}
            14 => {
                line = line.wrapping_add(signed(&mut bytes)?);
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
            }
            13 => line = line.wrapping_add(signed(&mut bytes)?),
            kind @ 10..=12 => {
                line = line.wrapping_add(i32::from(kind) - 10);
                bytes.nth(1)?;
            }
            _ => _ = bytes.next()?,
        }
        if unit < end {
            return Some(line);
        }
    }
    None
}

/// Reads a number in groups of six bits, the lowest first.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0_u32;
    for shift in (0..32).step_by(6) {
        let byte = bytes.next()?;
        value |= u32::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a number in zigzag encoding: the sign is the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i32> {
    let value = unsigned(bytes)?;
    let size = (value >> 1) as i32;
    Some(if value & 1 == 1 { -size } else { size })
}

/// Reads pairs of an entry's length in bytes and the difference of its line (PEP 626).
fn of_3_10(table: &[u8], first_line: i32, byte: u64) -> Option<i32> {
    const NO_LINE: i8 = -128;
    let (mut line, mut end) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        end += u64::from(pair[0]);
        let difference = pair[1] as i8;
        if difference != NO_LINE {
            line = line.wrapping_add(difference.into());
        }
        if end > byte {
            break;
        }
    }
    Some(line)
}

/// Reads pairs of the distance to the next entry in bytes and the difference of its line
/// (`co_lnotab`).
fn before_3_10(table: &[u8], first_line: i32, byte: u64) -> Option<i32> {
    let (mut line, mut start) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        start += u64::from(pair[0]);
        if start > byte {
            break;
        }
        line = line.wrapping_add(i32::from(pair[1] as i8));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_all_versions() {
        // The table of `def f():`, `a = 1`, `return a` in CPython 3.11: a prologue, one line each,
        // a short entry.
        let table = [0x80, 0x00, 0xd8, 0x08, 0x09, 0x80, 0x41, 0xd8, 0x0b, 0x0c, 0x80, 0x48];
        let lines: Vec<u32> = (0..7).map(|unit| line(0x030b_00f0, &table, 10, unit * 2)).collect();
        assert_eq!(lines, [10, 11, 11, 12, 12, 0, 0]);
        let long = [0x80 | 14 << 3, 0x07, 0x00, 0x05, 0x08, 0x80 | 13 << 3, 0x40, 0x02, 0xf8];
        let lines: Vec<u32> = (0..4).map(|unit| line(0x030d_0000, &long, 40, unit * 2)).collect();
        assert_eq!(lines, [37, 101, 101, 0]);
        let pairs = [4, 1, 6, 0xff, 2, 0x80];
        let lines: Vec<u32> = (0..6).map(|word| line(0x030a_0000, &pairs, 7, word)).collect();
        assert_eq!(lines, [8, 8, 7, 7, 7, 7]);
        let lines: Vec<u32> = [0, 3, 4, 9, 10, 99].map(|byte| line(0x0308_0000, &pairs[..4], 7, byte)).into();
        assert_eq!(lines, [7, 7, 8, 8, 7, 7]);
        assert_eq!((line(0x030b_0000, &table, 10, -1), line(0x030b_0000, &[], 10, 0)), (0, 0));
    }

    #[test]
    fn damaged_tables_have_no_lines() {
        for first in 0..=u8::MAX {
            for length in 0..4 {
                let table = [first, 0xff, 0xff, 0xff];
                for python in [0x0309_0000, 0x030a_0000, 0x030b_0000] {
                    line(python, &table[..length], i32::MAX, 99);
                }
            }
        }
    }
}
