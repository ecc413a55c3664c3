use std::fs;
use std::path::PathBuf;

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
    named(code, std::process::id()).into_iter().map(|(_, at, name)| (at, name)).collect()
}

/// Returns the names that are written for a process, each with its module and address.
fn named(code: &mut GeneratedCode, pid: u32) -> Vec<(u32, u64, String)> {
    let text = |location: ImportedLocation| {
        let name = String::from_utf8(location.functions.into_iter().next().unwrap()).unwrap();
        (location.module.0, location.offset, name)
    };
    code.names(pid).into_iter().map(text).collect()
}

/// Two processes with no file of their own: their numbers are beyond those that Linux gives.
const PARENT: u32 = (1 << 22) + 1;
const CHILD: u32 = (1 << 22) + 2;

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

    fs::remove_file(&map).unwrap();

    // Names that were read before an exec stay, whatever the next program does.
    fs::write(&map, "1000 10 early\n").unwrap();
    code.read_early(pid, 3);
    fs::write(&map, "1000 10 late\n2000 10 two\n").unwrap();
    let early = [(0x1004, "early".into()), (0x2000, "two".into())];
    assert_eq!(names(&mut code), early);
    // A child of `vfork` is another process.
    code.exec_failed(4);
    assert_eq!(names(&mut code), early);
    code.exec_failed(3);
    assert_eq!(names(&mut code), [(0x1004, "late".into()), (0x2000, "two".into())]);
    fs::remove_file(&map).unwrap();

    // A link, which another user may have made, is not followed.
    let other = tempfile::NamedTempFile::new().unwrap();
    fs::write(other.path(), "1000 10 one\n").unwrap();
    std::os::unix::fs::symlink(other.path(), &map).unwrap();
    let mut fresh = GeneratedCode::default();
    fresh.set_module(ModuleId(7));
    fresh.note(&frame(0x1004), 5);
    let found = names(&mut fresh);
    fs::remove_file(&map).unwrap();
    assert!(found.is_empty(), "{found:?}");
    // The names that were read stay, for the next file of the recording.
    assert_eq!(names(&mut code), [(0x1004, "late".into()), (0x2000, "two".into())]);
}

#[test]
fn a_child_has_the_names_of_its_parents_code() {
    let map = PathBuf::from(format!("/tmp/perf-{PARENT}.map"));
    fs::write(&map, "1000 10 parent\n").unwrap();
    let mut parent = GeneratedCode::default();
    parent.set_module(ModuleId(7));
    parent.announced(PARENT);
    let mut child = parent.fork().fork();
    child.set_module(ModuleId(8));
    child.note(&Node { module: ModuleId(8), ..frame(0x1001) }, 5);
    assert_eq!(named(&mut child, CHILD), [(8, 0x1001, "parent".into())]);
    fs::remove_file(&map).unwrap();
    assert_eq!(named(&mut child, CHILD), [(8, 0x1001, "parent".into())]);
}

/// The nodes that a child has from its parent are the parent's, and each file must name them.
#[test]
fn the_names_of_a_parent_that_has_ended_are_written_again() {
    let map = PathBuf::from(format!("/tmp/perf-{}.map", PARENT + 5));
    fs::write(&map, "1000 10 parent\n").unwrap();
    let mut parent = GeneratedCode::default();
    parent.set_module(ModuleId(7));
    parent.note(&frame(0x1001), 5);
    let [mut child, mut other] = [0, 1].map(|_| parent.fork());
    child.set_module(ModuleId(8));
    let parents = [(7, 0x1001, "parent".to_owned())];
    // While the parent runs it writes them itself.
    for _ in 0..2 {
        assert!(named(&mut child, CHILD).is_empty());
        assert_eq!(named(&mut parent, PARENT + 5), parents);
        [&parent, &child, &other].into_iter().for_each(GeneratedCode::begin_segment);
    }
    fs::remove_file(&map).unwrap();
    // In the file in which it ends, too.
    assert_eq!(named(&mut parent, PARENT + 5), parents);
    parent.end();
    drop(parent);
    assert!(named(&mut child, CHILD).is_empty());
    // Then one of the children does.
    for _ in 0..2 {
        [&child, &other].into_iter().for_each(GeneratedCode::begin_segment);
        assert_eq!(named(&mut child, CHILD), parents);
        assert!(named(&mut other, CHILD + 1).is_empty());
    }
}
