use heapledger_wire::module_table::ModuleTable;

use super::*;

#[test]
fn of_this_process() {
    let own = of_this_process as fn() as usize as u64;
    let bytes = bytes_of_process(std::process::id(), own).unwrap();
    let table = ModuleTable::parse(&bytes).unwrap();
    let program = table.find(own).unwrap();
    assert_eq!(table.path(&program), b"");
    let libc = table.modules().find(|module| table.path(module).ends_with(b"/libc.so.6")).unwrap();
    // Where it is loaded, the header begins with its version.
    for module in [program, libc] {
        assert!((module.start..module.end).contains(&module.eh_frame_hdr), "{module:x?}");
        assert_eq!((module.found.pairs, module.bias % 4096), (0, 0));
    }
    assert!(bytes_of_process(std::process::id(), 1).is_none());
    assert!(of_process(std::process::id(), own).unwrap().length >= bytes.len() / 2);
    assert!(of_process(u32::MAX, own).is_none());
}
