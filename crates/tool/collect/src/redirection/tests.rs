use std::sync::Barrier;
use std::thread;

use super::*;

/// All that ask at once get the result of one examination.
#[test]
fn a_file_is_examined_once() {
    let file = std::env::current_exe().unwrap();
    let metadata = fs::metadata(&file).unwrap();
    let barrier = Barrier::new(8);
    let ask = || {
        barrier.wait();
        allocators_in(&file, &metadata, true, Linking::Dynamic)
    };
    let found: Vec<Allocators> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found.iter().all(|one| Arc::ptr_eq(one, &found[0])));
}

#[test]
fn files_are_found_by_either_root_and_by_their_inode() {
    let pid = std::process::id();
    let mappings = Mappings::of(pid).unwrap();
    let own = std::env::current_exe().unwrap().canonicalize().unwrap();
    let module = mappings.modules().into_iter().find(|module| module.path == own).unwrap();
    let path = |module: &Mapped, is_executable| Some(file_of(pid, module, is_executable)?.0);
    assert_eq!(path(&module, true).unwrap(), Path::new(&format!("/proc/{pid}/exe")));
    assert!(path(&module, false).unwrap().starts_with(format!("/proc/{pid}/root")));
    if !is_on_overlay(&own) {
        let other = Mapped { inode: module.inode + 1, ..module };
        assert_eq!(path(&other, false), None);
    }
}

/// The test has no allocator but the system's; a process that is gone cannot be examined.
#[test]
fn entries_are_counted() {
    assert_eq!(entries_of(std::process::id()), 0);
    let made = plan(std::process::id(), 0x1000);
    assert_eq!((made.entries, made.file.is_none()), (0, true));
    assert_eq!(plan(u32::MAX, 0x1000).entries, ENTRIES_UNKNOWN);
}
