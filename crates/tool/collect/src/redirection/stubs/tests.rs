use super::*;

#[test]
fn a_plan_without_entries_has_no_stubs() {
    let plan = Plan::default();
    let (code, jumps) = Stubs::new(&plan, 0, 0x1234).place(0x10_0000, 0);
    assert_eq!(code, 0x1234_u64.to_le_bytes());
    assert!(jumps.is_empty());
}
