extern crate std;

use std::vec::Vec;

use super::*;

static NAMES: [Name; 2] = [Name::new("one"), Name::new("two")];

fn names(stack: &ScopeStackCell) -> Vec<&'static [u8]> {
    // SAFETY: `stack` is live, and used by this thread only, through its address: it is this
    // thread's own stack. The indices are below `depth`. All names in it are from `NAMES`.
    unsafe { (0..depth(stack.get())).map(|index| (*frame(stack.get(), index).name).bytes()).collect() }
}

#[test]
fn scopes_nest_and_heal() {
    let stack = ScopeStackCell::new();
    // SAFETY: all calls ask for the thread's own stack. `stack` is live, and used by this
    // thread only, through its address.
    unsafe {
        let outer = enter(stack.get(), ScopeFrame::new(&NAMES[0]));
        let middle = enter(stack.get(), ScopeFrame::new(&NAMES[1]));
        assert_eq!(names(&stack), [b"one", b"two"]);
        // Left by a jump: no `leave`.
        enter(stack.get(), ScopeFrame::new(&NAMES[0]));
        leave(stack.get(), middle);
        assert_eq!(names(&stack), [b"one"]);
        leave(stack.get(), outer);
        // Out of order: the inner one does not bring the outer one back.
        leave(stack.get(), middle);
        assert_eq!(names(&stack), [] as [&[u8]; 0]);
    }
}

#[test]
fn frames_beyond_the_maximum_are_only_counted() {
    let stack = ScopeStackCell::new();
    // SAFETY: all calls ask for the thread's own stack. `stack` is live, and used by this
    // thread only, through its address.
    unsafe {
        let first = enter(stack.get(), ScopeFrame::new(&NAMES[0]));
        let deep: Vec<u32> = (0..2 * DEPTH_MAX).map(|_| enter(stack.get(), ScopeFrame::new(&NAMES[1]))).collect();
        assert_eq!(names(&stack).len(), DEPTH_MAX);
        for &before in deep.iter().rev() {
            leave(stack.get(), before);
        }
        assert_eq!(names(&stack), [b"one"]);
        leave(stack.get(), first);
        assert_eq!(depth(stack.get()), 0);
    }
}

#[test]
fn ignoring_nests() {
    let stack = ScopeStackCell::new();
    // SAFETY: all calls ask for the thread's own stack. `stack` is live, and used by this
    // thread only, through its address.
    unsafe {
        let outer = begin_ignoring(stack.get());
        let inner = begin_ignoring(stack.get());
        end_ignoring(stack.get(), inner);
        assert!(is_ignoring(stack.get()));
        end_ignoring(stack.get(), outer);
        assert!(!is_ignoring(stack.get()));
    }
}

#[test]
fn code_that_heapledger_calls_is_the_programs() {
    let stack = ScopeStackCell::new();
    // SAFETY: all calls ask for the thread's own stack. `stack` is live, and used by this
    // thread only, through its address.
    unsafe {
        let own = begin_untracked(stack.get());
        let callback = begin_tracked(stack.get());
        assert!(!is_ignoring(stack.get()));
        let nested = begin_untracked(stack.get());
        assert!(is_ignoring(stack.get()));
        end_ignoring(stack.get(), nested);
        end_ignoring(stack.get(), callback);
        assert!(is_ignoring(stack.get()));
        end_ignoring(stack.get(), own);
        // Blocks that the program asks to ignore stay ignored.
        let wanted = begin_ignoring(stack.get());
        let own = begin_untracked(stack.get());
        let callback = begin_tracked(stack.get());
        assert!(is_ignoring(stack.get()));
        end_ignoring(stack.get(), callback);
        end_ignoring(stack.get(), own);
        end_ignoring(stack.get(), wanted);
        assert!(!is_ignoring(stack.get()));
    }
}

/// Checks the layout that `heapledger.h` declares.
#[test]
fn layout() {
    assert_eq!((size_of::<Name>(), size_of::<Category>(), size_of::<ScopeFrame>()), (24, 32, 16));
    assert_eq!((size_of::<ScopeStack>(), core::mem::offset_of!(ScopeStack, frames)), (8 + 16 * DEPTH_MAX, 8));
    assert_eq!((core::mem::offset_of!(Name, flags), core::mem::offset_of!(Name, category)), (12, 16));
}
