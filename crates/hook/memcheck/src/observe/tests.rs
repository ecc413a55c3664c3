use super::*;

/// A block that another thread has allocated while the checks started has canaries, and is not in
/// the register.
#[test]
fn frees_of_blocks_from_before_are_left_to_the_canary() {
    let (call, stack, thread) = (Call::Free, StackId::ROOT, ThreadId(0));
    let free = Free { address: 0x1000, call, declared: None, alignment: 0, stack, thread };
    assert!(matches!(free.check_unknown(), Some(Freeing::Unknown)), "all blocks are known");
    begin_late();
    assert!(free.check_unknown().is_none());
}
