use heapledger_wire::module_table::search;

use super::*;

#[test]
fn tables_have_all_modules_in_order() {
    let own = FileRules::read("/proc/self/exe".as_ref()).unwrap();
    let (start, end) = own.range();
    let at = |bias, path| MappedModule { bias, path, rules: &own };
    // The third one overlaps the second.
    let bytes = table(&[at(0x7000_0000_0000, b"/b"), at(0x1000_0000, b""), at(0x7000_0000_1000, b"/c")]);
    let read = ModuleTable::parse(&bytes).unwrap();
    let found: Vec<_> = read.modules().map(|module| (module.start, module.end, read.path(&module))).collect();
    assert_eq!(
        found,
        [
            (0x1000_0000 + start, 0x1000_0000 + end, &b""[..]),
            (0x7000_0000_0000 + start, 0x7000_0000_0000 + end, &b"/b"[..])
        ]
    );
    let module = read.find(0x7000_0000_0000 + start + 1).unwrap();
    assert_eq!(module.eh_frame_hdr, 0x7000_0000_0000 + own.eh_frame_hdr().unwrap());
    assert_eq!((module.bias, module.found.pairs), (0x7000_0000_0000, 0));
    assert_eq!(search(read.pairs(&module.generated), 0), None);
}
