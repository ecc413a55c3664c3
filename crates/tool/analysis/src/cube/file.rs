//! Cubes in files, so that the events of a recording are replayed once, and not each time that it
//! is opened.
//!
//! A file is a cache: one that is damaged, of another version or of another recording is ignored.
//! It is `HLCUBE` and a version; the [identity](RecordingIdentity) of the recording, and checksums
//! of its sites and of the images that were counted; the length of the rest when it is not
//! compressed, and the rest, compressed with zstd; all sealed with a
//! [checksum](heapledger_symbols::cache). The rest consists of columns, each with the number of its
//! rows before it, of 1 to 16 bytes a row, little-endian.

use std::path::Path;
use std::sync::Arc;

use heapledger_core::{Bytes, ThreadId};
use heapledger_ledger::Variance;
use heapledger_recording::{ImageId, Time};
use heapledger_symbols::cache::{CacheEntry, sealed, unsealed};

use super::cells::{Cell, CellKey};
use super::parts::{PartRow, Parts};
use super::{CUBE_INTERVALS, Cube, CubeQuestion, CubeSite};
use crate::amount::{Amount, MomentAmounts};
use crate::parts::PartBy;
use crate::site_table::amounts::{Amounts, ExactAmounts};
use crate::site_table::{Shared, SiteTable};

const MAGIC: &[u8; 6] = b"HLCUBE";
/// Changes whenever the same recording would have another file.
const VERSION: u16 = 1;
/// The maximum bytes of a file, and of what it has when it is not compressed.
const FILE_MAX: u64 = 256 << 20;
const TABLES_MAX: u64 = 1 << 30;
const EXTENSION: &str = "cube";
/// The level of compression: speed matters more than size.
const LEVEL: i32 = 1;

/// The identity of a recording's file. A file that was changed has another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordingIdentity {
    /// Its length in bytes.
    pub bytes: u64,
    /// The time of its last change, in nanoseconds since the UNIX epoch.
    pub modified_ns: u64,
    /// The checksum of its last 32 bytes, which are the trailer if the recorder finished. The
    /// trailer has a checksum itself, and the offsets of the index and the footer.
    pub trailer: u32,
}

impl RecordingIdentity {
    /// Returns the identity of a recording with these contents.
    pub fn new(recording: &[u8], modified_ns: u64) -> RecordingIdentity {
        let trailer = &recording[recording.len().saturating_sub(32)..];
        RecordingIdentity { bytes: recording.len() as u64, modified_ns, trailer: crc32fast::hash(trailer) }
    }

    /// Returns the place of the cube of some images in a directory.
    fn entry(self, directory: &Path, images: &[ImageId]) -> CacheEntry {
        let RecordingIdentity { bytes, modified_ns, trailer } = self;
        let images = checksum_of(images);
        CacheEntry::named(directory, &format!("{bytes:x}-{modified_ns:x}-{trailer:08x}-{images:08x}"))
    }

    fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.modified_ns.to_le_bytes());
        bytes[16..].copy_from_slice(&self.trailer.to_le_bytes());
        bytes
    }
}

impl Cube {
    /// Keeps the cube in a directory of such files, which is made if it is not there. Does nothing
    /// if the cube cannot be [encoded](Cube::encode), or if the file cannot be written. Files
    /// beyond 256 MiB together are removed, the oldest first.
    pub fn save(&self, directory: &Path, identity: RecordingIdentity, table: &SiteTable) {
        if let Some(file) = self.encode(identity, table) {
            identity.entry(directory, &self.images).write(EXTENSION, &file);
        }
    }

    /// Returns the cube that was [saved](Cube::save) in a directory, as [`Cube::decode`] does.
    pub fn load(directory: &Path, identity: RecordingIdentity, images: &[ImageId], table: &SiteTable) -> Option<Cube> {
        let file = identity.entry(directory, images).read(EXTENSION, FILE_MAX)?;
        Cube::decode(&file, identity, images, table)
    }

    /// Returns the contents of a file with the cube of a recording. `None` if
    ///
    /// - sites were [merged](Cube::merged): a cube with other limits may have them;
    /// - the cube has sites that the table does not have;
    /// - parts are missing in it because they could not be read;
    /// - the file would have more than 256 MiB.
    pub fn encode(&self, identity: RecordingIdentity, table: &SiteTable) -> Option<Vec<u8>> {
        if self.merged > 0 || !Arc::ptr_eq(&self.shared, table.shared()) || !self.damage.is_empty() {
            return None;
        }
        let tables = self.tables();
        if tables.len() as u64 > TABLES_MAX {
            return None;
        }
        let mut message = head(identity, &self.shared, &self.images);
        message.extend_from_slice(&(tables.len() as u64).to_le_bytes());
        message.extend_from_slice(&zstd::bulk::compress(&tables, LEVEL).ok()?);
        let file = sealed(&message);
        (file.len() as u64 <= FILE_MAX).then_some(file)
    }

    /// Returns the cube in a file that [`Cube::encode`] wrote for the same recording and the same
    /// [images](crate::Filter::images); `None` if there is none. `table` must be the table of these
    /// images with all their blocks.
    ///
    /// Any bytes are safe to give. Takes the memory of the cube and at most 1 GiB more, which is
    /// given back.
    pub fn decode(file: &[u8], identity: RecordingIdentity, images: &[ImageId], table: &SiteTable) -> Option<Cube> {
        let shared = table.shared();
        let rest = unsealed(file, FILE_MAX)?.strip_prefix(&head(identity, shared, images)[..])?;
        let (length, compressed) = rest.split_first_chunk::<8>()?;
        let length = u64::from_le_bytes(*length);
        let length = usize::try_from(length).ok().filter(|_| length <= TABLES_MAX)?;
        let tables = zstd::bulk::decompress(compressed, length).ok()?;
        if tables.len() == length { read(&tables, shared, images) } else { None }
    }

    pub(super) fn tables(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.boundaries.iter().map(|time| time.0.to_le_bytes()));
        put(&mut out, self.sites.iter().map(|site| site.process.0.to_le_bytes()));
        put(&mut out, self.sites.iter().map(|site| site.site.to_le_bytes()));
        put(&mut out, self.cells.iter().map(|(key, _)| key.number().to_le_bytes()));
        put(&mut out, self.cells.iter().map(|(_, cell)| cell.bytes.to_le_bytes()));
        put(&mut out, self.cells.iter().map(|(_, cell)| cell.blocks.to_le_bytes()));
        put(&mut out, self.variances.iter().map(|variance| variance.bytes.to_le_bytes()));
        put(&mut out, self.variances.iter().map(|variance| variance.blocks.to_le_bytes()));
        put(&mut out, self.lifetimes.iter().map(|((site, _), _)| site.to_le_bytes()));
        put(&mut out, self.lifetimes.iter().map(|((_, class), _)| [*class]));
        put(&mut out, self.lifetimes.iter().map(|(_, cell)| cell.bytes.to_le_bytes()));
        put(&mut out, self.lifetimes.iter().map(|(_, cell)| cell.blocks.to_le_bytes()));
        self.put_parts(&mut out);
        out.extend_from_slice(&self.merged.to_le_bytes());
        out
    }

    fn put_parts(&self, out: &mut Vec<u8>) {
        let Parts { rows, amounts } = &self.parts;
        put(out, rows.iter().map(|row| row.site.to_le_bytes()));
        put(out, rows.iter().map(|row| [row.thread.is_some().into()]));
        let thread = |row: &PartRow| row.thread.unwrap_or_default();
        put(out, rows.iter().map(|row| thread(row).0.0.to_le_bytes()));
        put(out, rows.iter().map(|row| thread(row).1.0.to_le_bytes()));
        put(out, rows.iter().map(|row| row.class.0.to_le_bytes()));
        out.push(matches!(amounts, Amounts::Exact(_)).into());
        match amounts {
            Amounts::Exact(all) => {
                let columns = ExactAmounts::FIGURES;
                columns.iter().for_each(|figure| put(out, all.iter().map(|it| figure(&mut { *it }).to_le_bytes())));
            }
            Amounts::Estimated(all) => {
                for moment in MOMENTS {
                    for figure in FIGURES {
                        put(out, all.iter().map(|it| figure(moment(&mut { *it })).to_le_bytes()));
                    }
                    for figure in WIDE_FIGURES {
                        put(out, all.iter().map(|it| figure(moment(&mut { *it })).to_le_bytes()));
                    }
                }
            }
        }
    }
}

type OfMoment = fn(&mut MomentAmounts) -> &mut Amount;
const MOMENTS: [OfMoment; 3] = [|it| &mut it.total, |it| &mut it.peak, |it| &mut it.live];
/// The figures of an amount, without slop, which a cube does not have.
const FIGURES: [fn(&mut Amount) -> &mut u64; 3] =
    [|it| &mut it.bytes.0, |it| &mut it.blocks.0, |it| &mut it.temporaries.0];
const WIDE_FIGURES: [fn(&mut Amount) -> &mut u128; 3] =
    [|it| &mut it.variance.bytes, |it| &mut it.variance.blocks, |it| &mut it.temporaries_variance];

/// Returns the first part of a message, which is compared as a whole.
fn head(identity: RecordingIdentity, shared: &Shared, images: &[ImageId]) -> Vec<u8> {
    let version = VERSION.to_le_bytes();
    let checksums = [shared.checksum(), checksum_of(images)].map(u32::to_le_bytes);
    [&MAGIC[..], &version, &identity.to_bytes(), checksums.as_flattened()].concat()
}

fn checksum_of(images: &[ImageId]) -> u32 {
    let images: Vec<u8> = images.iter().flat_map(|image| image.0.to_le_bytes()).collect();
    crc32fast::hash(&images)
}

/// Appends a column.
fn put<const N: usize>(out: &mut Vec<u8>, column: impl ExactSizeIterator<Item = [u8; N]>) {
    out.extend_from_slice(&(column.len() as u64).to_le_bytes());
    out.reserve(column.len() * N);
    column.for_each(|bytes| out.extend_from_slice(&bytes));
}

/// The columns that are still to be read.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// Returns the next column. Takes no memory.
    fn column<const N: usize>(&mut self) -> Option<&'b [[u8; N]]> {
        let (length, rest) = self.0.split_first_chunk::<8>()?;
        let bytes = usize::try_from(u64::from_le_bytes(*length)).ok()?.checked_mul(N)?;
        let (column, rest) = rest.split_at_checked(bytes)?;
        self.0 = rest;
        Some(column.as_chunks::<N>().0)
    }

    /// Returns the next column if it has this many rows.
    fn column_of<const N: usize>(&mut self, rows: usize) -> Option<&'b [[u8; N]]> {
        self.column().filter(|column| column.len() == rows)
    }

    fn cells(&mut self, rows: usize) -> Option<impl Iterator<Item = Cell> + 'b> {
        let (bytes, blocks) = (self.column_of(rows)?, self.column_of(rows)?);
        let cell = |(bytes, blocks): (&[u8; 8], &[u8; 8])| Cell {
            bytes: u64::from_le_bytes(*bytes),
            blocks: u64::from_le_bytes(*blocks),
        };
        Some(bytes.iter().zip(blocks).map(cell))
    }
}

fn u32s(column: &[[u8; 4]]) -> impl ExactSizeIterator<Item = u32> + '_ {
    column.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

fn read(tables: &[u8], shared: &Arc<Shared>, images: &[ImageId]) -> Option<Cube> {
    let mut reader = Reader(tables);
    let boundaries = reader.column_of(CUBE_INTERVALS + 1)?;
    let boundaries: Vec<Time> = boundaries.iter().map(|bytes| Time(u64::from_le_bytes(*bytes))).collect();
    if !boundaries.is_sorted() {
        return None;
    }
    let processes = reader.column()?;
    let sites = u32s(processes).zip(u32s(reader.column_of(processes.len())?));
    let site = |(process, site): (u32, u32)| {
        ((site as usize) < shared.sites.len()).then_some(CubeSite { process: ImageId(process), site })
    };
    let sites: Vec<CubeSite> = sites.map(site).collect::<Option<_>>()?;
    let is_site = |site: u32| (site as usize) < sites.len();

    let keys = reader.column()?;
    let key = |bytes: &[u8; 8]| CellKey::from_number(u64::from_le_bytes(*bytes)).filter(|key| is_site(key.site()));
    let contents = reader.cells(keys.len())?;
    let cells: Vec<(CellKey, Cell)> =
        keys.iter().zip(contents).map(|(bytes, cell)| Some((key(bytes)?, cell))).collect::<Option<_>>()?;
    let (bytes, blocks) = (reader.column()?, reader.column()?);
    if bytes.len() != blocks.len() || !(bytes.is_empty() || bytes.len() == cells.len()) {
        return None;
    }
    let variance = |(bytes, blocks): (&[u8; 16], &[u8; 16])| Variance {
        bytes: u128::from_le_bytes(*bytes),
        blocks: u128::from_le_bytes(*blocks),
    };
    let variances = bytes.iter().zip(blocks).map(variance).collect();

    let of_sites = reader.column()?;
    let classes: &[[u8; 1]] = reader.column_of(of_sites.len())?;
    let contents = reader.cells(of_sites.len())?;
    let lifetime = |((site, &[class]), cell): ((u32, &[u8; 1]), Cell)| is_site(site).then_some(((site, class), cell));
    let lifetimes: Vec<((u32, u8), Cell)> =
        u32s(of_sites).zip(classes).zip(contents).map(lifetime).collect::<Option<_>>()?;

    let parts = read_parts(&mut reader, sites.len())?;
    let merged = u64::from_le_bytes(reader.0.try_into().ok()?);
    let (shared, images, damage) = (Arc::clone(shared), images.to_vec(), Vec::new());
    Some(Cube { shared, images, boundaries, sites, cells, variances, parts, lifetimes, merged, damage })
}

fn read_parts(reader: &mut Reader<'_>, sites: usize) -> Option<Parts> {
    let of_sites = reader.column()?;
    let length = of_sites.len();
    let has_thread: &[[u8; 1]] = reader.column_of(length)?;
    let (images, threads) = (reader.column_of(length)?, reader.column_of(length)?);
    let classes: &[[u8; 8]] = reader.column_of(length)?;
    let mut rows: Vec<PartRow> = Vec::with_capacity(length);
    for (at, (site, (image, thread))) in u32s(of_sites).zip(u32s(images).zip(u32s(threads))).enumerate() {
        if site as usize >= sites {
            return None;
        }
        let thread = (has_thread[at] != [0]).then_some((ImageId(image), ThreadId(thread)));
        rows.push(PartRow { site, thread, class: Bytes(u64::from_le_bytes(classes[at])) });
    }
    let (&is_exact, rest) = reader.0.split_first()?;
    reader.0 = rest;
    // Nothing is allocated for figures that are not there.
    let bytes = if is_exact != 0 { 8 * ExactAmounts::FIGURES.len() } else { MOMENTS.len() * (3 * 8 + 3 * 16) };
    if rest.len() < length.checked_mul(bytes)? {
        return None;
    }
    let mut amounts = Amounts::nothing(length, is_exact != 0);
    match &mut amounts {
        Amounts::Exact(all) => {
            for figure in ExactAmounts::FIGURES {
                let column = all.iter_mut().zip(reader.column_of(length)?);
                column.for_each(|(it, bytes)| *figure(it) = u64::from_le_bytes(*bytes));
            }
        }
        Amounts::Estimated(all) => {
            for moment in MOMENTS {
                for figure in FIGURES {
                    let column = all.iter_mut().zip(reader.column_of(length)?);
                    column.for_each(|(it, bytes)| *figure(moment(it)) = u64::from_le_bytes(*bytes));
                }
                for figure in WIDE_FIGURES {
                    let column = all.iter_mut().zip(reader.column_of(length)?);
                    column.for_each(|(it, bytes)| *figure(moment(it)) = u128::from_le_bytes(*bytes));
                }
            }
        }
    }
    Some(Parts { rows, amounts })
}

/// True if these bytes are the tables of a file for a recording with two sites.
#[cfg(test)]
pub(super) fn is_readable(data: &[u8]) -> bool {
    read(data, &Arc::new(Shared::of_nothing(2)), &[]).is_some()
}

/// Reads bytes as the tables of a file, for a recording with two sites, and asks the cube what it
/// has. Panics only if one of these steps does.
pub(crate) fn exercise(data: &[u8]) {
    let shared = Arc::new(Shared::of_nothing(2));
    let Some(cube) = read(data, &shared, &[]) else { return };
    let table = cube.table(CubeQuestion::LiveAt(CUBE_INTERVALS), None);
    for question in
        [CubeQuestion::Allocated(0, 7), CubeQuestion::Freed(3, CUBE_INTERVALS), CubeQuestion::LiveSince(1, 200)]
    {
        let _ = cube.table(question, Some(ImageId(0)));
    }
    let _ = cube.lifetimes(&table.all(), None);
    let _ = cube.parts(&table.all(), PartBy::Thread);
    let _ = cube.table_of_parts(PartBy::SizeClass, |_| true);
    // Tables are written as they were read.
    let again = read(&cube.tables(), &shared, &[]);
    assert!(again.is_some_and(|again| again.tables() == cube.tables()));
}
