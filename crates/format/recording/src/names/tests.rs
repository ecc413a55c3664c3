use super::*;
use crate::{Footer, ImageId, MemoryEncoder, MemorySample, Recording, RecordingWriter};

fn function(name: &str, file: Option<&str>, line: u32) -> NamedFunction<'static> {
    NamedFunction { name: name.to_owned().into(), file: file.map(|file| file.to_owned().into()), line }
}

fn location(module: u32, offset: u64, functions: Vec<NamedFunction<'static>>) -> NamedLocation<'static> {
    NamedLocation { module: ModuleId(module), offset, functions }
}

fn file(chunks: &[EncodedChunk]) -> Vec<u8> {
    let mut writer = RecordingWriter::new();
    chunks.iter().for_each(|chunk| writer.push(chunk));
    writer.finish(&Footer::default(), &mut Compressor::new());
    writer.pending().to_vec()
}

#[test]
fn names_come_back() {
    let mut locations: Vec<NamedLocation<'_>> = (0..20_000)
        .map(|at| location(1 + at / 9000, u64::from(at) * 8, vec![function(&format!("f{at}"), Some("a.c"), at)]))
        .collect();
    locations[7].functions.insert(0, function("inlined", None, 0));
    locations[8].functions.clear();
    let chunks = NamesEncoder::encode(&locations, &mut Compressor::new()).unwrap();
    assert_eq!(chunks.len(), 2);
    let file = file(&chunks);
    let recording = Recording::open(&file).unwrap();
    assert_eq!(recording.verify(), []);
    let names = recording.names();
    assert_eq!(names.iter().collect::<Vec<_>>(), locations);
    assert_eq!(names.functions(ModuleId(1), 56).unwrap(), locations[7].functions);
    assert_eq!((names.len(), names.functions(ModuleId(9), 0)), (locations.len(), None));
}

#[test]
fn the_latest_names_count() {
    let mut compressor = Compressor::new();
    let mut encode =
        |name: &str| NamesEncoder::encode(&[location(1, 5, vec![function(name, None, 0)])], &mut compressor).unwrap();
    let chunks = [encode("old"), encode("new")].concat();
    let file = file(&chunks);
    let names = Recording::open(&file).unwrap().names();
    assert_eq!((names.len(), &*names.functions(ModuleId(1), 5).unwrap()[0].name), (1, "new"));
}

#[test]
fn a_recording_goes_on_behind_its_chunks() {
    let mut compressor = Compressor::new();
    let mut with = |before: &[u8], name: &str| {
        let before_it = Recording::open(before).unwrap();
        let (mut writer, kept) = RecordingWriter::after(&before_it).unwrap();
        let chunks = NamesEncoder::encode(&[location(1, 5, vec![function(name, None, 7)])], &mut compressor).unwrap();
        chunks.iter().for_each(|chunk| writer.push(chunk));
        writer.finish(before_it.footer().unwrap(), &mut compressor);
        [&before[..kept as usize], writer.pending()].concat()
    };
    let other = MemoryEncoder::encode(ImageId(1), &[MemorySample::default()], &mut Compressor::new()).unwrap();
    let plain = file(&other);
    let once = with(&plain, "once");
    let twice = with(&once, "twic");
    assert_eq!(once.len(), twice.len());
    for (file, name, chunks) in [(&plain, None, 1), (&once, Some("once"), 2), (&twice, Some("twic"), 2)] {
        let recording = Recording::open(file).unwrap();
        assert_eq!((recording.verify(), recording.chunks().len()), (vec![], chunks));
        let names = recording.names();
        let found = names.functions(ModuleId(1), 5).map(|functions| functions[0].name.to_string());
        assert_eq!(found.as_deref(), name);
    }
    // A file without its end is not finished, so no writer can go on behind it.
    let cut = &twice[..twice.len() - 1];
    assert!(RecordingWriter::after(&Recording::open(cut).unwrap()).is_none());
}

#[test]
fn extents_come_back() {
    let mut extents: Vec<CodeExtent<'_>> = (0..9000_u64)
        .map(|at| CodeExtent { module: ModuleId(1), start: at * 100, size: 60 + at % 9, ..CodeExtent::default() })
        .collect();
    extents[5].neighbours = [Some("f".into()), Some("g".into())];
    extents[6].neighbours[1] = Some("f".into());
    extents[7].start = u64::MAX - 1;
    extents[7].size = u64::MAX;
    extents.sort_by_key(|extent| extent.start);
    let mut compressor = Compressor::new();
    let locations = [location(1, 5, vec![function("h", None, 0)])];
    let mut chunks = NamesEncoder::encode(&locations, &mut compressor).unwrap();
    chunks.extend(NamesEncoder::encode_extents(&extents, &mut compressor).unwrap());
    let file = file(&chunks);
    let recording = Recording::open(&file).unwrap();
    assert_eq!(recording.verify(), []);
    let names = recording.names();
    assert_eq!((names.iter().collect::<Vec<_>>(), names.damage.len()), (locations.to_vec(), 0));
    assert_eq!(names.extents().collect::<Vec<_>>(), extents);
    let start = |module: u32, offset| names.extent(ModuleId(module), offset).map(|extent| extent.start);
    for (offset, expected) in [(0, Some(0)), (559, Some(500)), (599, None), (u64::MAX, Some(u64::MAX - 1))] {
        assert_eq!(start(1, offset), expected, "{offset}");
    }
    assert_eq!((start(0, 500), start(2, 500)), (None, None));
}

#[test]
fn extents_that_make_no_sense() {
    let sound = contents(&[], &[CodeExtent { size: 7, ..CodeExtent::default() }]);
    let mut names = Names::default();
    names.add(&sound, 0).unwrap();
    for rows in [[[1, 0, 1, 1, 0]; 1], [[u64::MAX, 0, 1, 0, 0]; 1], [[1, 0, 1, 0, u64::MAX]; 1]] {
        let mut contents = contents(&[], &[]);
        contents.extend(columns::encode_table(EXTENTS, rows));
        assert!(names.add(&contents, 0).is_err(), "{rows:?}");
    }
    let mut short = contents(&[], &[]);
    short.extend(columns::encode_table([EXTENTS[2]], [[5]]));
    assert!(names.add(&short, 0).is_err());
    assert_eq!(names.extents.len(), 1);
}

#[test]
fn contents_that_make_no_sense() {
    let sound = contents(&[location(1, 5, vec![function("f", Some("g"), 3)])], &[]);
    let mut names = Names::default();
    names.add(&sound, 1).unwrap();
    for rows in [0, 2] {
        assert!(names.add(&sound, rows).is_err());
    }
    let without = columns::encode_table(LOCATIONS, [[1, 5, 1]]);
    assert!(names.add(&without, 1).is_err());
    for functions in [[2, 0, 0], [0, 3, 0], [u64::MAX, 0, 0]] {
        let mut contents = columns::encode_table(LOCATIONS, [[1, 5, 1]]);
        contents.extend(columns::encode_table(FUNCTIONS, [functions]));
        columns::put(&mut contents, TEXT_LENGTHS, CODEC_VARINT, &[1, 1]);
        columns::put(&mut contents, TEXTS, CODEC_BYTES, b"ab");
        assert!(names.add(&contents, 1).is_err(), "{functions:?}");
    }
    // Nothing is left of the invalid names.
    assert_eq!((names.locations.len(), names.functions.len(), names.ends.len()), (1, 1, 2));
}
