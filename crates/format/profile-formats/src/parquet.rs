//! Apache Parquet, for DuckDB, pandas, Polars, Spark and everything else that queries tables: a row
//! for each sample.
//!
//! The columns are those of [`SCHEMA`]. Unknown values are null: amounts that the profile does not
//! know, files, lines and modules of functions, labels. Values that apply to the whole profile are
//! in the metadata of the file.

use std::io::{self, Write};

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::calls::Call;
use crate::holds::Holds;
use crate::profile::{Amounts, Known, Profile, Sample};

/// The format has a place for everything but the live bytes over time.
pub const HOLDS: Holds = Holds {
    amounts: Known {
        allocated: true,
        temporaries: true,
        live: true,
        peak: true,
        end: true,
        most: true,
        lifetimes: true,
    },
    blocks: true,
    labels: true,
    names: true,
    files: true,
    lines: true,
    modules: true,
    ..Holds::STACKS
};

/// The columns: a stack with the innermost function first, labels, amounts. Numbers of bytes and
/// blocks are signed, which all readers support.
pub const SCHEMA: &str = "
    message heapledger {
        required group stack (LIST) {
            repeated group list {
                required group element {
                    optional binary function (STRING);
                    optional binary full_name (STRING);
                    optional binary file (STRING);
                    optional int32 line;
                    optional binary module (STRING);
                    optional binary build_id (STRING);
                    optional int64 address;
                    optional boolean inlined;
                }
            }
        }
        optional binary type (STRING);
        optional binary context (STRING);
        optional binary task (STRING);
        optional binary heap (STRING);
        optional int64 bytes_live;
        optional int64 blocks_live;
        optional int64 bytes_live_peak;
        optional int64 blocks_live_peak;
        optional int64 bytes_live_end;
        optional int64 blocks_live_end;
        optional int64 bytes_live_max;
        optional int64 blocks_live_max;
        optional int64 bytes_allocated;
        optional int64 allocations;
        optional int64 temporary_allocations;
        optional int64 lifetimes_ns;
    }";

/// The labels that [`SCHEMA`] has for each sample beside its stack, in its order.
const LABELS: [&str; 4] = ["type", "context", "task", "heap"];

type Column = (fn(&Known) -> bool, fn(&Amounts) -> u64);

const AMOUNTS: [Column; 12] = [
    (|known| known.live, |amounts| amounts.live.bytes),
    (|known| known.live, |amounts| amounts.live.blocks),
    (|known| known.peak, |amounts| amounts.peak.bytes),
    (|known| known.peak, |amounts| amounts.peak.blocks),
    (|known| known.end, |amounts| amounts.end.bytes),
    (|known| known.end, |amounts| amounts.end.blocks),
    (|known| known.most, |amounts| amounts.most.bytes),
    (|known| known.most, |amounts| amounts.most.blocks),
    (|known| known.allocated, |amounts| amounts.allocated.bytes),
    (|known| known.allocated, |amounts| amounts.allocated.blocks),
    (|known| known.temporaries, |amounts| amounts.temporaries),
    (|known| known.lifetimes, |amounts| amounts.lifetimes_ns),
];

/// The number of rows in a part that readers take at once, and the number of rows whose cells of a
/// column are in memory at once.
const ROWS_PER_GROUP: usize = 1 << 16;
const ROWS_PER_BATCH: usize = 1 << 10;

/// Writes the file. Takes memory in proportion to the profile. Labels other than ours are left out.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let file = file(profile).map_err(io::Error::other)?;
    out.write_all(&file)
}

fn file(profile: &Profile) -> Result<Vec<u8>> {
    let properties = WriterProperties::builder()
        .set_created_by(format!("heapledger version {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(metadata(profile)))
        .build();
    let schema = parse_message_type(SCHEMA)?;
    let mut writer = SerializedFileWriter::new(Vec::new(), schema.into(), properties.into())?;
    let modules = ModuleNames::of(profile);
    for samples in profile.samples.chunks(ROWS_PER_GROUP) {
        let mut group = writer.next_row_group()?;
        stacks(profile, samples, &modules, &mut group)?;
        for name in LABELS {
            column::<ByteArrayType, _>(&mut group, samples, |sample, cells| cells.push(label(sample, name)))?;
        }
        for (is_known, amount) in AMOUNTS {
            let amount = |sample: &Sample| is_known(&profile.known).then(|| signed(amount(&sample.amounts)));
            column::<Int64Type, _>(&mut group, samples, |sample, cells| cells.push(amount(sample)))?;
        }
        group.close()?;
    }
    writer.into_inner()
}

/// Returns the values that apply to the whole profile, as text.
fn metadata(profile: &Profile) -> Vec<KeyValue> {
    let known = |number: u64| (number > 0).then(|| number.to_string());
    let values = [
        ("format", Some("1".to_owned())),
        ("command", Some(profile.command.clone())),
        ("pid", known(profile.pid.into())),
        ("start_unix_ns", known(profile.start_unix_ns)),
        ("duration_ns", Some(profile.duration_ns.to_string())),
        ("peak_ns", profile.known.peak.then(|| profile.peak_ns.to_string())),
        ("moment", Some(profile.moment.clone())),
        ("moment_ns", known(profile.moment_ns)),
        ("sampling_bytes", profile.sampling_bytes.map(|bytes| bytes.to_string())),
        ("comments", Some(profile.comments.join("\n"))),
    ];
    let values = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
    values.map(|(name, value)| KeyValue::new(format!("heapledger.{name}"), value)).collect()
}

/// Writes the columns of stacks.
fn stacks(profile: &Profile, samples: &[Sample], modules: &ModuleNames, group: &mut RowGroup<'_>) -> Result<()> {
    let calls = |sample: &Sample| Call::of(profile, sample).into_iter();
    type Name = fn(&Call<'_>) -> Option<ByteArray>;
    let names: [Name; 3] = [
        |call| Some(text(&call.name())),
        |call| call.frame.known.then(|| text(&call.frame.full_name)),
        |call| some_text(&call.frame.file),
    ];
    for name in names {
        column::<ByteArrayType, _>(group, samples, |sample, cells| {
            cells.extend(calls(sample).map(|call| name(&call)));
        })?;
    }
    column::<Int32Type, _>(group, samples, |sample, cells| {
        let line = |call: Call<'_>| i32::try_from(call.frame.line).ok().filter(|line| *line > 0);
        cells.extend(calls(sample).map(line));
    })?;
    for of_modules in [&modules.paths, &modules.build_ids] {
        column::<ByteArrayType, _>(group, samples, |sample, cells| {
            cells.extend(calls(sample).map(|call| of_modules.get(call.location.module?)?.clone()));
        })?;
    }
    column::<Int64Type, _>(group, samples, |sample, cells| {
        let address = |call: Call<'_>| (call.location.address > 0).then(|| call.location.address.cast_signed());
        cells.extend(calls(sample).map(address));
    })?;
    // True for all functions of a location but the last, into which the others were inlined.
    column::<BoolType, _>(group, samples, |sample, cells| {
        cells.extend(calls(sample).map(|call| {
            let last = call.location.frames.last();
            Some(last.is_some_and(|last| !std::ptr::eq(last, call.frame)))
        }));
    })
}

type RowGroup<'w> = SerializedRowGroupWriter<'w, Vec<u8>>;

/// Writes the next column. `cells` gives those of a row: one, or for a column of the stack one for
/// each function.
fn column<T, F>(group: &mut RowGroup<'_>, samples: &[Sample], mut cells: F) -> Result<()>
where
    T: DataType,
    F: FnMut(&Sample, &mut Vec<Option<T::T>>),
{
    let missing = || ParquetError::General("there are more columns than in the schema".into());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    let writer = column.typed::<T>();
    // The definition level of a value; that of null is one less.
    let there = writer.get_descriptor().max_def_level();
    for samples in samples.chunks(ROWS_PER_BATCH) {
        let (mut values, mut levels, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        let mut row = Vec::new();
        for sample in samples {
            cells(sample, &mut row);
            repeated.extend((0..row.len()).map(|at| i16::from(at > 0)));
            levels.extend(row.iter().map(|cell| if cell.is_some() { there } else { there - 1 }));
            values.extend(row.drain(..).flatten());
        }
        writer.write_batch(&values, Some(&levels), Some(&repeated))?;
    }
    column.close()
}

/// The names of modules, each once.
struct ModuleNames {
    paths: Vec<Option<ByteArray>>,
    build_ids: Vec<Option<ByteArray>>,
}

impl ModuleNames {
    fn of(profile: &Profile) -> ModuleNames {
        let modules = || profile.modules.iter();
        ModuleNames {
            paths: modules().map(|module| some_text(&module.path)).collect(),
            build_ids: modules().map(|module| some_text(&module.build_id)).collect(),
        }
    }
}

fn label(sample: &Sample, name: &str) -> Option<ByteArray> {
    sample.labels.iter().find(|(known, _)| known == name).map(|(_, value)| text(value))
}

fn text(text: &str) -> ByteArray {
    ByteArray::from(text)
}

fn some_text(name: &str) -> Option<ByteArray> {
    (!name.is_empty()).then(|| text(name))
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};
    use prost::bytes::Bytes;

    use super::*;
    use crate::testing::example;

    fn reader(profile: &Profile) -> SerializedFileReader<Bytes> {
        let mut file = Vec::new();
        write(profile, &mut file).unwrap();
        SerializedFileReader::new(Bytes::from(file)).unwrap()
    }

    fn rows(profile: &Profile) -> Vec<Row> {
        reader(profile).get_row_iter(None).unwrap().map(Result::unwrap).collect()
    }

    fn cell<'r>(row: &'r Row, name: &str) -> &'r Field {
        row.get_column_iter().find(|(known, _)| *known == name).unwrap().1
    }

    fn frames(row: &Row) -> Vec<&Row> {
        let Field::ListInternal(list) = cell(row, "stack") else { panic!("{row}") };
        let frames = list.elements().iter();
        frames.map(|frame| if let Field::Group(frame) = frame { frame } else { panic!("{frame}") }).collect()
    }

    fn known(text: &str) -> Field {
        Field::Str(text.to_owned())
    }

    #[test]
    fn a_row_for_each_sample() {
        let profile = example();
        let rows = rows(&profile);
        assert_eq!(rows.len(), profile.samples.len());
        let stack = frames(&rows[0]);
        let column = |name: &str| stack.iter().map(|frame| cell(frame, name).clone()).collect::<Vec<_>>();
        assert_eq!(column("function"), ["inner", "outer", "main"].map(known));
        assert_eq!(column("full_name"), ["inner(int)", "outer(int)", "main(int)"].map(known));
        assert_eq!(column("file"), ["a.c", "a.c", "m.c"].map(known));
        assert_eq!(column("line"), [3, 7, 12].map(Field::Int));
        assert_eq!(column("module"), ["/bin/a"; 3].map(known));
        assert_eq!(column("build_id"), ["ab"; 3].map(known));
        assert_eq!(column("address"), [0x1004, 0x1004, 0x2200].map(Field::Long));
        assert_eq!(column("inlined"), [true, false, false].map(Field::Bool));
        let types: Vec<_> = rows.iter().map(|row| cell(row, "type").clone()).collect();
        assert_eq!(types, [known("Token"), known("Node"), Field::Null, Field::Null]);
        assert_eq!(cell(&rows[0], "context"), &Field::Null);
        for (name, expected) in [
            ("bytes_live", [64, 32, 3, 7]),
            ("blocks_live", [4, 2, 3, 1]),
            ("bytes_live_peak", [64, 32, 1, 0]),
            ("blocks_live_peak", [4, 2, 1, 0]),
            ("bytes_live_end", [16, 0, 0, 0]),
            ("blocks_live_end", [1, 0, 0, 0]),
            ("bytes_live_max", [70, 32, 3, 7]),
            ("blocks_live_max", [5, 2, 3, 1]),
            ("bytes_allocated", [80, 40, 3, 7]),
            ("allocations", [8, 4, 3, 1]),
            ("temporary_allocations", [2, 0, 0, 0]),
            ("lifetimes_ns", [9_000_000, 1_000_000, 0, 0]),
        ] {
            let found: Vec<_> = rows.iter().map(|row| cell(row, name).clone()).collect();
            assert_eq!(found, expected.map(Field::Long), "{name}");
        }
    }

    #[test]
    fn what_is_not_known_is_null() {
        let profile = Profile { known: Known { live: true, ..Known::NONE }, ..example() };
        let rows = rows(&profile);
        // An address without a function, a function without a module, and no stack at all.
        let odd = frames(&rows[2]);
        assert_eq!((cell(odd[0], "function"), cell(odd[0], "full_name")), (&known("0x1fff"), &Field::Null));
        assert_eq!([cell(odd[1], "module"), cell(odd[1], "file"), cell(odd[1], "line")], [&Field::Null; 3]);
        let nowhere = frames(&rows[3]);
        assert_eq!((nowhere.len(), cell(nowhere[0], "function")), (1, &known("[no stack]")));
        assert_eq!(cell(nowhere[0], "address"), &Field::Null);
        assert_eq!((cell(&rows[0], "bytes_live"), cell(&rows[0], "bytes_live_peak")), (&Field::Long(64), &Field::Null));
    }

    #[test]
    fn of_many_rows_and_of_none() {
        let mut profile = example();
        let samples: Vec<Sample> = profile.samples.iter().cycle().take(ROWS_PER_GROUP + 5).cloned().collect();
        profile.samples = samples;
        let reader = reader(&profile);
        assert_eq!(
            reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect::<Vec<_>>(),
            [65_536, 5]
        );
        let bytes: i64 = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| {
                let Field::Long(bytes) = *cell(&row.unwrap(), "bytes_live") else { panic!() };
                bytes
            })
            .sum();
        assert_eq!(bytes, profile.samples.iter().map(|sample| sample.amounts.live.bytes as i64).sum::<i64>());
        assert_eq!(rows(&Profile::default()).len(), 0);
    }

    #[test]
    fn what_is_known_of_the_whole() {
        let reader = reader(&example());
        let file = reader.metadata().file_metadata();
        let value = |name: &str| {
            let mut values = file.key_value_metadata().unwrap().iter();
            values.find(|value| value.key == name).and_then(|value| value.value.clone())
        };
        assert_eq!(value("heapledger.command").as_deref(), Some("/bin/a --b \"c\""));
        assert_eq!(value("heapledger.peak_ns").as_deref(), Some("20000000"));
        assert_eq!((value("heapledger.format").as_deref(), value("heapledger.sampling_bytes")), (Some("1"), None));
        assert!(file.created_by().unwrap().starts_with("heapledger version "));
    }
}
