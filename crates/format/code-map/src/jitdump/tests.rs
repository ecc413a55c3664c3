use super::*;

/// Returns a file with two functions, one of which is moved, and another kind of record.
pub(crate) fn file(is_big: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let n32 = |number: u32| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
    let n64 = |number: u64| if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
    [MAGIC, 1, 48, 62, 0, 77].iter().for_each(|&number| file.extend(n32(number)));
    [5, 1, 0xdead].iter().for_each(|&number| file.extend(n64(number)));
    let mut record = |kind: u32, time: u64, contents: &[u8]| {
        file.extend(n32(kind));
        file.extend(n32(16 + contents.len() as u32));
        file.extend(n64(time));
        file.extend(contents);
    };
    let load = |address: u64, size: u64, index: u64, name: &str| {
        let numbers = [7 << 32 | 7, address, address, size, index].map(n64).concat();
        [&numbers, name.as_bytes(), &[0], &vec![0xcc; size as usize]].concat()
    };
    record(CODE_LOAD, 10, &load(0x1000, 16, 1, "first"));
    record(2, 11, &[0; 24]);
    record(CODE_LOAD, 20, &load(0x2000, 5000, 2, "second"));
    record(CODE_MOVE, 30, &[7 << 32 | 7, 0x2000, 0x1000, 0x2000, 16, 1].map(n64).concat());
    record(CODE_MOVE, 31, &[7 << 32 | 7, 0x3000, 0x1000, 0x3000, 16, 99].map(n64).concat());
    file
}

fn read_names(file: &[u8], wanted: &[(u64, u64)]) -> Vec<(u64, String)> {
    let mut wanted = Wanted::new(wanted.iter().copied());
    read(file, &mut wanted).unwrap();
    wanted.names().map(|(at, name)| (at, name.to_string())).collect()
}

#[test]
fn functions_have_their_names_in_time() {
    for is_big in [false, true] {
        let file = file(is_big);
        let wanted = [(0x100f, 15), (0x1010, 15), (0x2000, 25), (0x3387, 25), (0x3388, 25)];
        assert_eq!(
            read_names(&file, &wanted),
            [(0x100f, "first".into()), (0x2000, "second".into()), (0x3387, "second".into())]
        );
        assert_eq!(read_names(&file, &[(0x2000, 35)]), [(0x2000, "first".into())]);
        assert_eq!(clock(&file), Some(DumpClock::Ticks));
    }
}

/// The names that are kept for moves are limited in number.
#[test]
fn an_index_that_is_used_again_has_its_latest_name() {
    let mut file = file(false);
    let mut record = |kind: u32, contents: &[u8]| {
        file.extend(kind.to_le_bytes());
        file.extend((16 + contents.len() as u32).to_le_bytes());
        file.extend(40_u64.to_le_bytes());
        file.extend(contents);
    };
    let load = |index: u64, name: &[u8]| {
        let numbers = [0, 0x10_0000, 0x10_0000, 0, index].map(u64::to_le_bytes).concat();
        [&numbers, name, &[0]].concat()
    };
    for index in 0..FUNCTIONS_MAX as u64 + 10 {
        record(CODE_LOAD, &load(index, b"old"));
    }
    record(CODE_LOAD, &load(9, b"new"));
    record(CODE_MOVE, &[0, 0x10_0000, 0x10_0000, 0x9000, 16, 9].map(u64::to_le_bytes).concat());
    assert_eq!(read_names(&file, &[(0x9000, 50)]), [(0x9000, "new".into())]);
}

#[test]
fn a_file_that_ends_early_is_read_to_there() {
    let file = file(false);
    for length in HEADER_LENGTH as usize..file.len() {
        let names = read_names(&file[..length], &[(0x1000, 15)]);
        assert!(names.is_empty() || names == [(0x1000, "first".into())]);
    }
    assert_eq!(read_names(&file[..file.len() - 1], &[(0x2000, 35)]), [(0x2000, "first".into())]);
}

#[test]
fn damage_has_an_offset() {
    let failure = |file: &[u8]| read(file, &mut Wanted::new([(0x1000, 0)])).unwrap_err().to_string();
    assert_eq!(failure(b"short"), "at offset 0: the header is cut");
    assert_eq!(failure(&[0; 64]), "at offset 40: no jitdump file");
    let mut damaged = file(false);
    damaged[48 + 4] = 3;
    damaged[48 + 5] = 0;
    assert_eq!(failure(&damaged), "at offset 64: the length of a record");
    damaged[48 + 4] = 17;
    assert_eq!(failure(&damaged), "at offset 64: the length of a load record");
}
