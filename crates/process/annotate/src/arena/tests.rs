use super::*;

fn layout(size: usize, alignment: usize) -> Layout {
    Layout::from_size_align(size, alignment).unwrap()
}

#[test]
fn totals_and_limit_are_exact() {
    let arena = Arena::with_limit("images", 1000).unwrap();
    assert_eq!((arena.label(), arena.blocks(), arena.bytes()), ("images", 0, 0));
    let first = arena.allocate(layout(600, 8)).unwrap();
    assert!(arena.allocate(layout(401, 8)).is_none());
    let second = arena.allocate_zeroed(layout(300, 4096)).unwrap();
    assert!(second.as_ptr().addr().is_multiple_of(4096));
    // SAFETY: the block has 300 bytes, which are zeroes.
    assert!(unsafe { core::slice::from_raw_parts(second.as_ptr(), 300) }.iter().all(|&byte| byte == 0));
    let empty = arena.allocate(layout(0, 1)).unwrap();
    assert_eq!((arena.blocks(), arena.bytes()), (3, 900));
    // SAFETY: blocks of this arena with these layouts, none of which is used afterwards.
    unsafe {
        first.as_ptr().write_bytes(7, 600);
        assert!(arena.reallocate(first, layout(600, 8), 701).is_none());
        arena.deallocate(second, layout(300, 4096));
        let smaller = arena.reallocate(first, layout(600, 8), 100).unwrap();
        assert_eq!(core::slice::from_raw_parts(smaller.as_ptr(), 100), [7; 100]);
        assert_eq!((arena.blocks(), arena.bytes()), (2, 100));
        arena.deallocate(smaller, layout(100, 8));
        arena.deallocate(empty, layout(0, 1));
    }
    assert_eq!((arena.blocks(), arena.bytes()), (0, 0));
}

#[test]
fn threads_share_an_arena() {
    let arena = Arena::new("shared").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for size in 1..200 {
                    let block = arena.allocate(layout(size, 16)).unwrap();
                    // SAFETY: the block is from this arena and of this layout.
                    unsafe { arena.deallocate(block, layout(size, 16)) };
                }
            });
        }
    });
    assert_eq!((arena.blocks(), arena.bytes()), (0, 0));
}
