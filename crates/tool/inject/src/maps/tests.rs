use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use super::*;

#[test]
fn lines_are_parsed() {
    let text = b"7f0000000000-7f0000021000 rw-s 00000000 00:00 0 \n\
55d0aa000000-55d0aa001000 r-xp 00001000 08:01 1234                       /usr/bin/a program\n\
7ffc00000000-7ffc00021000 ---p 00000000 00:00 0                          [stack]\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n\
2000-1000 rw-p 00000000 00:00 0\n\
nonsense\n";
    let mappings = Mapping::parse_list(text);
    assert_eq!(mappings.len(), 4);
    let [program, shared, stack, last] = &mappings[..] else { panic!() };
    let expected = Mapping {
        range: 0x55d0_aa00_0000..0x55d0_aa00_1000,
        is_readable: true,
        is_writable: false,
        is_executable: true,
        is_shared: false,
        offset: 0x1000,
        device: (8, 1),
        inode: 1234,
        name: b"/usr/bin/a program".to_vec(),
    };
    assert_eq!(*program, expected);
    assert_eq!((shared.is_shared, shared.is_readable, shared.is_writable), (true, true, true));
    assert!(!shared.is_executable && shared.name.is_empty() && shared.path().is_none());
    assert_eq!((stack.is_readable, &stack.name[..], stack.path()), (false, &b"[stack]"[..], None));
    assert_eq!((last.range.end, last.bytes()), (0xffff_ffff_ff60_1000, 0x1000));
}

#[test]
fn damaged_lines_are_left_out() {
    for damaged in [
        "",
        "7f00",
        "7f00-7e00 r--p 0 0:0 0",
        "7f00-7f00 r--p 0 0:0 0",
        "x-y r--p 0 0:0 0",
        "-7f00 r--p 0 0:0 0",
        "7f00-7f10 r--p 0 0:0",
        "7f00-7f10 r-- 0 0:0 0",
        "7f00-7f10 r--p 0 0:0 0x",
        "7f00-7f10 r--p +1 0:0 0",
        "7f00-7f10 r--p 0 0 0",
        "7f00-7f10 r--p 0 100000000:0 0",
        "7f00-17f10000000000000 r--p 0 0:0 0",
    ] {
        assert_eq!(Mapping::parse(damaged.as_bytes()), None, "{damaged}");
    }
}

/// A path may have any bytes but 0.
#[test]
fn paths_keep_their_bytes() {
    let line = |name: &[u8]| [b"7f00-7f10 r--p 00000000 08:01 7     ", name].concat();
    for (name, path, before) in [
        (&b"/a \xff b "[..], &b"/a \xff b "[..], &b"/a \xff b "[..]),
        (b"/a\\012b", b"/a\nb", b"/a\\012b"),
        (b"/a\\01", b"/a\\01", b"/a\\01"),
        (b"/a (deleted)", b"/a (deleted)", b"/a"),
    ] {
        let mapping = Mapping::parse(&line(name)).unwrap();
        assert_eq!((&mapping.name[..], mapping.name_before_deletion()), (name, before));
        assert_eq!(mapping.path().unwrap().as_os_str().as_bytes(), path);
    }
    let mapping = Mapping::parse(&line(b"[anon: x]")).unwrap();
    assert!(mapping.path().is_none() && mapping.is_named_like(b"on: ") && !mapping.is_named_like(b"y"));
}

/// The kernel escapes a line feed in the way that is expected here.
#[test]
fn a_program_with_a_line_feed_in_its_name_is_found() {
    /// In the copy of this program, which waits for the end of its input.
    const IS_COPY: &str = "HEAPLEDGER_TEST_IS_COPY";
    if std::env::var_os(IS_COPY).is_some() {
        io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
        return;
    }
    let name = format!("{}::a_program_with_a_line_feed_in_its_name_is_found", module_path!());
    let (_, name) = name.split_once("::").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = fs::canonicalize(directory.path()).unwrap().join("line\nfeed ");
    fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
    // Another test may be forking while the copy is open for writing.
    let mut child = loop {
        let mut command = Command::new(&path);
        command.args(["--exact", name]).env(IS_COPY, "").stdin(Stdio::piped()).stdout(Stdio::null());
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
            child => break child.unwrap(),
        }
    };
    let mappings = Mapping::read_list(format!("/proc/{}/maps", child.id()), 1 << 24);
    child.kill().and_then(|()| child.wait()).unwrap();
    assert!(mappings.unwrap().iter().any(|mapping| mapping.is_executable && mapping.path().as_ref() == Some(&path)));
}

#[test]
fn lists_are_read_up_to_their_limit() {
    let length = fs::read("/proc/self/maps").unwrap().len();
    assert!(Mapping::read_list("/proc/self/maps", 4 * length as u64).unwrap().len() > 3);
    let error = Mapping::read_list("/proc/self/maps", 100).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    let gone = Mapping::read_list("/proc/4294967295/maps", 100).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}
