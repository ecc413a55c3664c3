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

/// A signal handler may come when a thunk has set the mark, and not yet the site: the frame pointer
/// of an earlier call is not taken for that of this one.
#[test]
fn a_frame_pointer_does_not_outlive_its_call() {
    activate();
    let sp = 0x7000_0000;
    drop(begin(sp, 0x7000_2000));
    arch::set_outermost(sp, 0);
    assert_eq!(around(sp - 64), Some(Around { registers: None }));
    arch::set_outermost(0, 0);
}
