use super::*;

/// A handler may leave a redirected call by a jump: its words stay. A later call from an outer
/// frame is not nested, and its blocks are not those of the call's allocator.
#[test]
fn a_call_that_was_left_does_not_name_the_next_ones_allocator() {
    activate();
    let (inner, outer) = (0x7000_0000, 0x7000_1000);
    arch::set_outermost(inner, 0x1234);
    assert!(begin(inner - 8, 0).is_none(), "inside of the call");
    assert_eq!(around(inner - 8), Some(Around { registers: None }));
    let next = begin(outer, 0x7000_2000).unwrap();
    assert_eq!((arch::outermost(), arch::site()), (outer, 0));
    assert!(begin(inner, 0).is_none());
    assert_eq!(around(inner), Some(Around { registers: Some([outer, 0x7000_2000]) }));
    assert_eq!(around(outer + 8), None);
    drop(next);
    assert_eq!((arch::outermost(), arch::site()), (0, 0));
}
