use std::os::unix::fs::symlink;

use super::*;

/// Returns the files of a process with this root, which has the same number there.
fn files(root: &Path) -> CodeFiles {
    let (root, user) = (File::open(root).ok(), rustix::process::geteuid().as_raw());
    CodeFiles { pid: 7, root, inner_pid: Some(7), user, dumps: RefCell::default() }
}

fn text(files: &CodeFiles, path: &str) -> Option<String> {
    let mut text = String::new();
    files.open(Path::new(path))?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A container may have a link to anywhere, which means a file inside of it.
#[test]
fn links_stay_below_the_root() {
    let directory = tempfile::tempdir().unwrap();
    let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
    let inside = root.join(outside.strip_prefix("/").unwrap());
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(&inside).unwrap();
    fs::write(outside.join("perf-7.map"), "outside").unwrap();
    symlink(&outside, root.join("there")).unwrap();
    symlink("../../../../../../../../..", root.join("up")).unwrap();
    let files = files(&root);
    assert_eq!(text(&files, "/there/perf-7.map"), None);
    assert_eq!(text(&files, &format!("/up{}/perf-7.map", outside.display())), None);
    fs::write(inside.join("perf-7.map"), "inside").unwrap();
    assert_eq!(text(&files, "/there/perf-7.map").as_deref(), Some("inside"));
    // The last component is no link at all.
    symlink(inside.join("perf-7.map"), inside.join("perf-8.map")).unwrap();
    assert_eq!(text(&files, "/there/perf-8.map"), None);
    // Nor a directory, or a file of another kind.
    assert!(files.open(Path::new("/there")).is_none() && files.open(Path::new("/")).is_none());
}

#[test]
fn a_process_that_is_gone_has_its_parents_root_and_user() {
    let directory = tempfile::tempdir().unwrap();
    let parent = CodeFiles { user: 12345, ..files(directory.path()) };
    let gone = |parent: Option<&CodeFiles>| CodeFiles::from_status(9, "", None, parent);
    let child = gone(Some(&parent));
    assert!(child.root.is_some());
    assert_eq!((child.user, child.inner_pid), (12345, Some(9)));
    // The parent is in another namespace, and so is its child.
    let child = gone(Some(&CodeFiles { inner_pid: Some(1), ..parent }));
    assert_eq!((child.user, child.inner_pid), (12345, None));
    assert!(CodeFiles { root: None, ..child }.open(Path::new("/proc/version")).is_none());

    let alone = gone(None);
    assert_eq!((alone.user, alone.inner_pid), (rustix::process::geteuid().as_raw(), Some(9)));
    let known = CodeFiles::from_status(9, "Uid:\t1\t2\t3\t4\nNSpid:\t9\t4\n", None, None);
    assert_eq!((known.user, known.inner_pid), (2, Some(4)));
}

#[test]
fn a_damaged_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path());
    let mut dump = vec![0; 64];
    dump[..12].copy_from_slice(&[0x4a69_5444, 1, 40].map(u32::to_le_bytes).concat());
    fs::write(directory.path().join("jit-7.dump"), dump).unwrap();
    let path = PathBuf::from("/jit-7.dump");
    files.dumps.borrow_mut().push((path.clone(), files.open(&path).unwrap()));
    let (mut wanted, mut names, mut damaged) = (BTreeMap::from([(1, 1)]), BTreeMap::new(), Vec::new());
    files.read(&mut wanted, &mut names, &mut damaged);
    let error = "at offset 56: the length of a record".to_owned();
    assert_eq!(damaged, [DamagedCodeFile { path, pid: 7, error }]);
}

#[test]
fn jitdump_files_have_their_name() {
    assert!(is_dump(Path::new("/home/me/.debug/jit/x/jit-123.dump")));
    for path in ["/tmp/jit-.dump", "/tmp/jit-1.dumps", "/tmp/jit-1a.dump", "/tmp/ajit-1.dump", "/"] {
        assert!(!is_dump(Path::new(path)), "{path}");
    }
}
