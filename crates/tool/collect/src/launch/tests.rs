use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn commands_are_found_as_a_shell_finds_them() {
    let directory = tempfile::tempdir().unwrap();
    let (tool, plain) = (directory.path().join("tool"), directory.path().join("plain"));
    for (file, mode) in [(&tool, 0o755), (&plain, 0o644)] {
        std::fs::write(file, "").unwrap();
        std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
    }
    let path = std::env::join_paths([Path::new("/nonexistent"), directory.path()]).unwrap();
    let found = |name: &Path| find(name.as_os_str(), &path);
    assert_eq!(found(Path::new("tool")).unwrap(), tool);
    assert_eq!(found(&tool).unwrap(), tool);
    assert!(matches!(found(Path::new("plain")), Err(RecordError::NotExecutable { .. })));
    assert!(matches!(found(&plain), Err(RecordError::NotExecutable { .. })));
    assert!(matches!(found(directory.path()), Err(RecordError::NotExecutable { .. })));
    assert!(matches!(found(Path::new("neither")), Err(RecordError::CommandNotFound { .. })));
    assert!(matches!(found(Path::new("/nonexistent/tool")), Err(RecordError::CommandNotFound { .. })));
    assert!(matches!(found(Path::new("")), Err(RecordError::CommandNotFound { .. })));
    assert!(matches!(Launch::find(&[]), Err(RecordError::NoCommand)));
}

#[test]
fn entries_are_joined_as_they_are() {
    assert_eq!(joined(["/a/b.so"]), "/a/b.so");
    assert_eq!(joined(["/a/b.so", ""]), "/a/b.so:");
    assert_eq!(joined(["/a/b.so", "x.so y.so"]), "/a/b.so:x.so y.so");
}
