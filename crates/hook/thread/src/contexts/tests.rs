extern crate std;

use core::ptr;

use heapledger_core::context::ScopeStackCell;

use super::*;

#[test]
fn the_first_stack_is_the_threads() {
    let (first, second) = (ScopeStackCell::new(), ScopeStackCell::new());
    assert!(contexts().is_null());
    // SAFETY: nothing in this thread reads its contexts after this test.
    unsafe {
        assert!(ptr::eq(bind(first.get()), first.get()));
        assert!(ptr::eq(bind(second.get()), first.get()));
    }
    assert!(ptr::eq(contexts(), first.get()));
    std::thread::spawn(|| assert!(contexts().is_null())).join().unwrap();
}
