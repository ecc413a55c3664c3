use super::*;

#[test]
fn modules_are_numbered_once() {
    let mut modules = Modules::default();
    assert_eq!(modules.id(b"/a", b"1").0, ModuleId(1));
    assert_eq!(modules.id(b"/a", b"2").1.unwrap().module, ModuleId(2));
    assert_eq!(modules.id(b"/a", b"1"), (ModuleId(1), None));
}
