use heapledger_core::StackId;

use super::*;

fn frame(address: u64) -> Node {
    Node {
        id: StackId(1),
        parent: StackId::ROOT,
        kind: NodeKind::Frame,
        module: ModuleId(7),
        offset: address,
        is_unproven: true,
    }
}

fn names(code: &mut GeneratedCode) -> Vec<(u64, String)> {
    let text = |location: ImportedLocation| {
        (location.offset, String::from_utf8(location.functions.into_iter().next().unwrap()).unwrap())
    };
    code.names(std::process::id()).into_iter().map(text).collect()
}

/// This process writes files as a compiler would.
#[test]
fn names_come_from_the_files_of_the_process() {
    let pid = std::process::id();
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    fs::write(&map, "1000 10 one\n2000 10 two\n1000 10 last\n").unwrap();
    let mut code = GeneratedCode::default();
    assert!(names(&mut code).is_empty());
    code.set_module(ModuleId(7));
    for address in [0x1004, 0x2000, 0x3000] {
        code.note(&frame(address), 5);
    }
    code.note(&Node { module: ModuleId(8), ..frame(0x1005) }, 5);
    assert_eq!(names(&mut code), [(0x1004, "last".into()), (0x2000, "two".into())]);

    // A child has the names of its parent's code.
    let mut child = code.fork();
    child.note(&frame(0x1001), 5);
    fs::remove_file(&map).unwrap();
    assert!(names(&mut child).is_empty());

    // Names that were read before an exec stay, whatever the next program does.
    fs::write(&map, "1000 10 early\n").unwrap();
    code.read_early(pid);
    fs::write(&map, "1000 10 late\n2000 10 two\n").unwrap();
    assert_eq!(names(&mut code), [(0x1004, "early".into()), (0x2000, "two".into())]);
    fs::remove_file(&map).unwrap();
    code = GeneratedCode { early: BTreeMap::new(), ..code };

    // A link, which another user may have made, is not followed.
    let other = tempfile::NamedTempFile::new().unwrap();
    fs::write(other.path(), "1000 10 one\n").unwrap();
    std::os::unix::fs::symlink(other.path(), &map).unwrap();
    let found = names(&mut code);
    fs::remove_file(&map).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn jitdump_files_have_their_name() {
    assert!(is_dump(Path::new("/home/me/.debug/jit/x/jit-123.dump")));
    for path in ["/tmp/jit-.dump", "/tmp/jit-1.dumps", "/tmp/jit-1a.dump", "/tmp/ajit-1.dump", "/"] {
        assert!(!is_dump(Path::new(path)), "{path}");
    }
}
