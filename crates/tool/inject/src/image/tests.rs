use std::fs;
use std::process::Command;

use super::*;

/// Returns a library made of this C code, without the C library.
fn library(code: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (source, output) = (directory.path().join("library.c"), directory.path().join("library.so"));
    fs::write(&source, code).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-nostdlib", "-O1", "-o"]).arg(&output).arg(&source);
    assert!(compiler.status().unwrap().success());
    fs::read(&output).unwrap()
}

#[test]
fn words_get_their_addresses() {
    let bytes = library(
        "extern int nobody __attribute__((weak));
         static long value = 7;
         static long unused[2000];
         long function(void) { return value + unused[1]; }
         const void *description[] = { (void *)5, function, &value, &nobody, unused + 1999 };",
    );
    let image = Image::parse(&bytes).unwrap();
    let base = 0x7000_0000;
    let mut loaded = image.load(base).unwrap();
    let at = loaded.at(image.symbol("description").unwrap());
    let word = |loaded: &Loaded, index: u64| loaded.word(at + index * 8);
    assert_eq!(word(&loaded, 0), Some(5));
    assert_eq!(word(&loaded, 1), Some(base + image.symbol("function").unwrap()));
    let value = word(&loaded, 2).unwrap();
    assert_eq!((loaded.word(value), word(&loaded, 3)), (Some(7), Some(0)));
    // Every page is in the image, and none is writable and executable.
    assert!(word(&loaded, 4).unwrap() + 8 <= base + image.length());
    assert!(loaded.segments.iter().all(|segment| !(segment.is_writable && segment.is_executable)));
    assert!(loaded.segments.iter().any(|segment| segment.is_executable));
    assert!(loaded.segments.iter().all(|segment| segment.start % PAGE == 0 && segment.length % PAGE == 0));

    assert!(loaded.write(value, &9_u64.to_le_bytes()));
    assert_eq!(loaded.word(value), Some(9));
    let function = word(&loaded, 1).unwrap();
    assert!(!loaded.write(function, &[0; 8]) && !loaded.write(base - 8, &[0; 8]));
    assert!(image.symbol("value").is_err());
}

#[test]
fn what_needs_others_is_refused() {
    let reason = |bytes: &[u8]| Image::parse(bytes).map(drop).unwrap_err().to_string();
    assert!(reason(&library("extern int other; int *address = &other;")).contains("needs other"));
    let with_storage = library("static _Thread_local long word; long get(void) { return word++; }");
    assert!(reason(&with_storage).contains("thread-local"));
    assert!(reason(b"no library").contains("damaged"));
    // However it is cut, it is refused or read, and nothing panics.
    let whole = library("long word = 3; const void *description[] = { &word };");
    for length in (0..whole.len()).step_by(97) {
        let _ = Image::parse(&whole[..length]).and_then(|image| image.load(0x1000).map(drop));
    }
}

/// The bounds and the symbols of this very program are where its loader has put them.
#[test]
fn files_are_read_by_their_headers() {
    let own = || fs::File::open("/proc/self/exe").unwrap();
    let found = bounds(own()).unwrap();
    assert!(found.start < found.end && found.eh_frame_hdr.is_some_and(|at| at < found.end), "{found:?}");
    let bytes = library("long value = 3; long function(void) { return value; }");
    let path = tempfile::NamedTempFile::new().unwrap();
    fs::write(path.path(), &bytes).unwrap();
    let file = || fs::File::open(path.path()).unwrap();
    let expected = Image::parse(&bytes).unwrap().symbol("function").unwrap();
    assert_eq!(exported_symbol(file(), "function"), Some(expected));
    assert_eq!(exported_symbol(file(), "functio"), None);
    // The rest of a huge file is not read: it would not fit in memory.
    fs::OpenOptions::new().write(true).open(path.path()).unwrap().set_len(1 << 42).unwrap();
    assert_eq!(exported_symbol(file(), "function"), Some(expected));
    assert!(bounds(file()).is_some());
    fs::write(path.path(), b"no program").unwrap();
    assert!(bounds(file()).is_none() && exported_symbol(file(), "function").is_none());
}
