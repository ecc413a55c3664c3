//! The contents of bulk chunks: columns, each with its id, codec and length.

use crate::error::Reason;
use crate::varint::{self, Varints};

/// One byte a value.
pub(crate) const CODEC_BYTES: u8 = 0;
/// One varint a value; or a sequence of varints with a structure of its own.
pub(crate) const CODEC_VARINT: u8 = 1;
/// One varint a value: the zigzag difference from the value before, the first from 0.
pub(crate) const CODEC_DELTA: u8 = 2;

const HEADER: usize = 8;

/// Appends a column.
pub(crate) fn put(out: &mut Vec<u8>, id: u16, codec: u8, bytes: &[u8]) {
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&[codec, 0]);
    // A chunk's limit is far below 4 GiB, and is checked when the chunk is made.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// A column of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    pub(crate) codec: u8,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Column<'a> {
    /// Returns the bytes, if they have the codec that the column's own structure requires.
    pub(crate) fn with_codec(self, codec: u8) -> Result<&'a [u8], Reason> {
        if self.codec == codec { Ok(self.bytes) } else { Err(Reason::Unsupported("the codec of a column")) }
    }
}

/// Finds the columns with these ids, all of which must be there; others are skipped.
pub(crate) fn find<const N: usize>(contents: &[u8], ids: [u16; N]) -> Result<[Column<'_>; N], Reason> {
    let mut found = [None; N];
    let mut rest = contents;
    while !rest.is_empty() {
        let Some((header, after)) = rest.split_first_chunk::<HEADER>() else {
            return Err(Reason::Invalid("a column's header is cut short"));
        };
        let [id_low, id_high, codec, _, l0, l1, l2, l3] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let Some((bytes, after)) = after.split_at_checked(length) else {
            return Err(Reason::Invalid("a column is longer than its chunk"));
        };
        rest = after;
        let id = u16::from_le_bytes([id_low, id_high]);
        if let Some(at) = ids.iter().position(|&wanted| wanted == id)
            && found[at].replace(Column { codec, bytes }).is_some()
        {
            return Err(Reason::Invalid("a column is there twice"));
        }
    }
    if found.iter().any(Option::is_none) {
        return Err(Reason::Invalid("a column is missing"));
    }
    Ok(found.map(|column| column.unwrap_or(Column { codec: CODEC_BYTES, bytes: &[] })))
}

/// Finds a column that may be missing.
pub(crate) fn find_optional(contents: &[u8], id: u16) -> Result<Option<Column<'_>>, Reason> {
    let mut rest = contents;
    while let Some((header, after)) = rest.split_first_chunk::<HEADER>() {
        let [id_low, id_high, codec, _, l0, l1, l2, l3] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let Some((bytes, after)) = after.split_at_checked(length) else {
            return Err(Reason::Invalid("a column is longer than its chunk"));
        };
        if u16::from_le_bytes([id_low, id_high]) == id {
            return Ok(Some(Column { codec, bytes }));
        }
        rest = after;
    }
    Ok(None)
}

/// A column of a table that has one value per row: its id and the codec it is written with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) id: u16,
    pub(crate) codec: u8,
}

/// Encodes the contents of a chunk that is a table: `N` columns with a value for each row.
pub(crate) fn encode_table<const N: usize>(specs: [Spec; N], rows: impl IntoIterator<Item = [u64; N]>) -> Vec<u8> {
    let mut columns: [Vec<u8>; N] = std::array::from_fn(|_| Vec::new());
    let mut before = [0; N];
    for row in rows {
        for at in 0..N {
            match specs[at].codec {
                CODEC_BYTES => columns[at].push(row[at] as u8),
                CODEC_VARINT => varint::put(&mut columns[at], row[at]),
                _ => varint::put(&mut columns[at], varint::zigzag(before[at], row[at])),
            }
        }
        before = row;
    }
    let mut contents = Vec::with_capacity(columns.iter().map(|column| column.len() + HEADER).sum());
    for (spec, column) in specs.iter().zip(&columns) {
        put(&mut contents, spec.id, spec.codec, column);
    }
    contents
}

/// Calls `each` with the rows of a table. The file tells the codec of each column; any codec is
/// accepted.
pub(crate) fn decode_table<const N: usize>(
    contents: &[u8],
    specs: [Spec; N],
    rows: u32,
    mut each: impl FnMut([u64; N]) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let mut cursors = find(contents, specs.map(|spec| spec.id))?.map(Cursor::new);
    for _ in 0..rows {
        let mut row = [0; N];
        for (value, cursor) in row.iter_mut().zip(&mut cursors) {
            *value = cursor.next()?;
        }
        each(row)?;
    }
    if cursors.iter().all(|cursor| cursor.varints.is_empty()) { Ok(()) } else { Err(TOO_LONG) }
}

pub(crate) const TOO_SHORT: Reason = Reason::Invalid("a column ends early");
pub(crate) const TOO_LONG: Reason = Reason::Invalid("a column goes on after the last row");

struct Cursor<'a> {
    codec: u8,
    varints: Varints<'a>,
    before: u64,
}

impl<'a> Cursor<'a> {
    fn new(column: Column<'a>) -> Cursor<'a> {
        Cursor { codec: column.codec, varints: Varints::new(column.bytes), before: 0 }
    }

    fn next(&mut self) -> Result<u64, Reason> {
        let value = match self.codec {
            CODEC_BYTES => self.varints.take(1).map(|byte| u64::from(byte[0])),
            CODEC_VARINT => self.varints.next(),
            CODEC_DELTA => self.varints.next().map(|difference| varint::unzigzag(self.before, difference)),
            _ => return Err(Reason::Unsupported("the codec of a column")),
        };
        self.before = value.ok_or(TOO_SHORT)?;
        Ok(self.before)
    }
}
