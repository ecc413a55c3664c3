use std::io::Read;
use std::os::unix::fs::symlink;

use super::*;
use crate::way::{INTERPRETERS_MAX, Way, way_by};

/// Returns the text of a file, or the error's kind.
fn text(files: &Files, path: &str) -> Result<String, io::ErrorKind> {
    let mut text = String::new();
    let read = files.find(path.as_ref()).and_then(|found| found.open()?.read_to_string(&mut text));
    read.map(|_| text).map_err(|error| error.kind())
}

#[test]
fn paths_lead_from_the_root_of_the_process() {
    let scratch = tempfile::tempdir().expect("there is room");
    let root = scratch.path();
    fs::create_dir_all(root.join("bin/below")).expect("it is ours");
    fs::write(root.join("bin/sh"), "inside").expect("it is ours");
    symlink("/bin/sh", root.join("bin/below/absolute")).expect("it is ours");
    symlink("../../../../../../bin/sh", root.join("bin/below/relative")).expect("it is ours");
    let place = open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
    let mut files = Files {
        root: place,
        has_our_root: false,
        directory: Some("/bin/below".into()),
        descriptors: "/proc/self/fd".into(),
    };
    if files.find("/bin/sh".as_ref()).is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS)) {
        return eprintln!("skipped: the kernel has no openat2(2)");
    }
    for path in ["/bin/sh", "/bin/below/absolute", "/bin/below/relative", "absolute", "../../../bin/sh"] {
        assert_eq!(text(&files, path).as_deref(), Ok("inside"), "{path}");
    }
    for (path, error) in [("/etc/passwd", io::ErrorKind::NotFound), ("/bin", io::ErrorKind::InvalidInput)] {
        assert_eq!(text(&files, path), Err(error), "{path}");
    }
    // A file that the process has opened is found wherever it is.
    let script = File::open("/bin/sh").expect("there is a shell");
    let own = files.find(format!("/proc/self/fd/{}", script.as_raw_fd()).as_ref()).expect("it is open");
    let inode = |file: &File| file.metadata().expect("it is open").ino();
    assert_eq!(inode(&own.open().expect("it can be read")), inode(&script));
    let beside = format!("/proc/self/fd/{}/../../status", script.as_raw_fd());
    assert!(files.find(beside.as_ref()).is_err());
    // The interpreter of a script is the one inside, too: here a program for another machine.
    let elf = [&b"\x7fELF\x01\x01\x01"[..], &[0; 60]].concat();
    fs::write(root.join("bin/sh"), elf).expect("it is ours");
    fs::write(root.join("script"), "#!/bin/below/absolute\n").expect("it is ours");
    let way = way_by("/script".as_ref(), INTERPRETERS_MAX, &|path| files.find(path)?.open());
    assert!(matches!(way, Way::None(Some(_))), "{way:?}");
    // A directory that is not below the root.
    files.directory = below(Path::new("/some/root"), Path::new("/elsewhere"));
    assert_eq!(text(&files, "sh"), Err(io::ErrorKind::NotFound));
    assert_eq!(below(Path::new("/some/root"), Path::new("/some/root/a")), Some("/a".into()));
    assert_eq!(below(Path::new("/"), Path::new("/a/b")), Some("/a/b".into()));
}

#[test]
fn a_process_with_our_root_has_our_files() {
    let files = Files::of(std::process::id()).expect("it is this process");
    assert!(files.has_our_root);
    let own = std::env::current_exe().expect("it has one");
    assert!(files.find(&own).is_ok_and(|found| !found.has_capabilities()));
    // Tests run in the directory of their crate.
    assert!(text(&files, "Cargo.toml").is_ok_and(|text| text.contains("[package]")));
    assert_eq!(text(&files, "no such file"), Err(io::ErrorKind::NotFound));
}
