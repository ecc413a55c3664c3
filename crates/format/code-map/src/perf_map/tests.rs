use std::io::BufReader;

use super::*;

pub(crate) const FILE: &str = "\
7f7cef00c280 378 JS:~first file.js:155:31\n\
0x1000 20 Interpreter\n\
# a comment\n\
1000 20\n\
-1000 20 negative\n\
1010 8 py::inner:/tmp/a file.py\r\n\
2000 ffffffffffffffffff too long\n\
3000 10  \n\
4000 10 the last one has no end";

#[test]
fn lines_are_read_and_others_counted() {
    let mut wanted = Wanted::new([0x1000, 0x1010, 0x1018, 0x2000, 0x3000, 0x4001, 0x7f7c_ef00_c281].map(|at| (at, 0)));
    let ignored = read(FILE.as_bytes(), &mut wanted).unwrap();
    let names: Vec<_> = wanted.names().map(|(at, name)| (at, &**name)).collect();
    assert_eq!(
        names,
        [
            (0x1000, "Interpreter"),
            (0x1010, "py::inner:/tmp/a file.py"),
            (0x1018, "Interpreter"),
            (0x4001, "the last one has no end"),
            (0x7f7c_ef00_c281, "JS:~first file.js:155:31"),
        ]
    );
    assert_eq!(ignored, 5);
}

#[test]
fn the_size_of_the_pieces_makes_no_difference() {
    for size in 1..40 {
        let mut wanted = Wanted::new([0x1010, 0x4001].map(|at| (at, 0)));
        read(BufReader::with_capacity(size, FILE.as_bytes()), &mut wanted).unwrap();
        assert_eq!(wanted.names().count(), 2, "{size}");
    }
}

#[test]
fn a_line_without_end_takes_no_memory() {
    let mut wanted = Wanted::new([(0x10, 0), (0x20, 0)]);
    let long = std::io::Read::take(std::io::repeat(b'a'), 100 << 20);
    let file = std::io::Read::chain(&b"10 1 "[..], std::io::Read::chain(long, &b"\n20 1 next\n"[..]));
    read(BufReader::new(file), &mut wanted).unwrap();
    let names: Vec<_> = wanted.names().map(|(at, name)| (at, name.len())).collect();
    assert_eq!(names, [(0x10, NAME_MAX), (0x20, 4)]);
}

#[test]
fn an_endless_file_is_left() {
    let mut wanted = Wanted::new([(0x10, 0)]);
    let error = read_up_to(10_000, BufReader::new(std::io::repeat(b'\n')), &mut wanted).unwrap_err();
    assert_eq!(error.to_string(), "at offset 10001: the file is longer than 10000 bytes");
}
