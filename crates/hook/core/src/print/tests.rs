extern crate std;

use std::format;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::string::String;

use super::*;

#[test]
fn printed_text_arrives_whole() {
    let path = std::env::temp_dir().join(format!("heapledger-print-{}", std::process::id()));
    let mut file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut printer = Printer::new(file.as_raw_fd());
    let mut expected = String::new();
    for number in 0..3_000_u32 {
        writeln!(printer, "line {number}").unwrap();
        expected += &format!("line {number}\n");
    }
    assert!(printer.finish());
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, expected);
}

#[test]
fn a_closed_descriptor_is_no_panic() {
    let mut printer = Printer::new(-1);
    let _ = printer.write_str("lost");
    assert!(!printer.finish());
}
