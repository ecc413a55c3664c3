use std::ffi::OsStr;

use heapledger_wire::module_table::ModuleTable;

use super::*;

#[test]
fn of_this_process() {
    let own = of_this_process as fn() as usize as u64;
    let bytes = bytes_of_process(std::process::id(), own, Kept::All).unwrap();
    let table = ModuleTable::parse(&bytes).unwrap();
    let program = table.find(own).unwrap();
    assert_eq!(table.path(&program), b"");
    let libc = table.modules().find(|module| table.path(module).ends_with(b"/libc.so.6")).unwrap();
    // Where it is loaded, the header begins with its version.
    for module in [program, libc] {
        assert!((module.start..module.end).contains(&module.eh_frame_hdr), "{module:x?}");
        assert_eq!((module.found.pairs, module.bias % 4096), (0, 0));
    }
    assert!(bytes_of_process(std::process::id(), 1, Kept::All).is_none());
    assert!(of_process(std::process::id(), own, Kept::All).unwrap().length >= bytes.len() / 2);
    assert!(of_process(u32::MAX, own, Kept::All).is_none());
}

/// A process that does not notice when libraries are unloaded gets none of those that may be.
#[test]
fn of_a_process_that_does_not_notice() {
    let own = of_this_process as fn() as usize as u64;
    let bytes = bytes_of_process(std::process::id(), own, Kept::NeverUnloaded).unwrap();
    let table = ModuleTable::parse(&bytes).unwrap();
    assert_eq!(table.path(&table.find(own).unwrap()), b"");
    let paths: Vec<_> = table.modules().map(|module| table.path(&module).to_vec()).collect();
    assert!(paths.iter().any(|path| path.ends_with(b"/libc.so.6")), "{paths:?}");
    let is_kept = |path: &[u8]| path.is_empty() || is_never_unloaded(Path::new(OsStr::from_bytes(path)));
    assert!(paths.iter().all(|path| is_kept(path)), "{paths:?}");
    for plugin in ["/usr/lib/x86_64-linux-gnu/libm.so.6", "/opt/plugin.so", "/usr/lib/libcrypt.so.1"] {
        assert!(!is_never_unloaded(plugin.as_ref()), "{plugin}");
    }
}
