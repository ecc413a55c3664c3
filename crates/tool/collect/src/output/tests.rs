use super::*;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.hl");
    drop(Output::create(Some(&path), false, false).unwrap());
    assert!(!path.exists(), "not kept");
    let mut output = Output::create(Some(&path), false, false).unwrap();
    output.keep();
    output.file().unwrap().write_all(b"old").unwrap();
    assert_eq!(output.path(), path);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(Output::create(Some(&path), false, false), Err(RecordError::OutputExists { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    // If the program does not run after all, the file stays as it was.
    drop(Output::create(Some(&path), true, false).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    let mut output = Output::create(Some(&path), true, false).unwrap();
    output.name(OsStr::new("x"), 1, true).unwrap();
    output.keep();
    assert_eq!((std::fs::read(&path).unwrap(), output.path()), (vec![], &*path));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let missing = directory.path().join("no/x.hl");
    assert!(matches!(Output::create(Some(&missing), false, false), Err(RecordError::CreateOutput { .. })));
}

#[test]
fn segments_are_numbered_and_the_oldest_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut output = Output::create(Some(&directory.path().join("a.b.hl")), false, true).unwrap();
    output.keep();
    for _ in 0..3 {
        output.next(false, Some(2)).unwrap();
    }
    let names = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["a.b.0003.hl", "a.b.0004.hl"]);
    assert_eq!((output.segments(), output.path().ends_with("a.b.0004.hl")), (4, true));
    std::fs::write(directory.path().join("a.b.0005.hl"), "mine").unwrap();
    assert!(matches!(output.next(false, None), Err(RecordError::OutputExists { .. })));
    output.next(true, None).unwrap();
    assert_eq!(segment_path(Path::new("x/name"), 12_345), Path::new("x/name.12345"));
}

#[test]
fn devices_are_written_to() {
    let null = Path::new("/dev/null");
    drop(Output::create(Some(null), false, false).unwrap());
    drop(Output::create(Some(null), true, false).unwrap());
    assert!(null.exists());
}

#[test]
fn names_that_are_taken_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let in_directory = |name: &str| directory.path().join(name);
    std::fs::write(in_directory("a"), "a").unwrap();
    std::fs::write(in_directory("b"), "b").unwrap();
    let taken = rename(&in_directory("a"), &in_directory("b"), false).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    rename(&in_directory("a"), &in_directory("b"), true).unwrap();
    assert_eq!(std::fs::read(in_directory("b")).unwrap(), b"a");
}
