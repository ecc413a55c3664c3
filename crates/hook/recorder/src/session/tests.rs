use super::*;

/// Once blocks of another allocator may come, no later session asks for usable sizes.
#[test]
fn usable_sizes_stay_stopped() {
    let address = Address::parse(b"0123456789abcdef0123456789abcdef:0123456789abcdef0123456789abcdef:u").unwrap();
    // SAFETY: `join` and `reset` require that no thread is inside a session: no other test of this
    // crate joins one.
    unsafe {
        join(address, true);
        start_usable();
        assert!(wants_usable());
        reset();
        assert!(!wants_usable());
        start_usable();
        assert!(wants_usable());
        stop_usable();
        reset();
        start_usable();
    }
    assert!(!wants_usable());
}
