//! An arena of a program whose blocks have one label in a recording:
//!
//! ```console
//! $ heapledger record -o run.hl -- target/debug/examples/arenas
//! $ heapledger top --by arena --at end run.hl
//! ```

use std::alloc::Layout;

use heapledger_annotate::Arena;

fn main() {
    let images = Arena::new("images").expect("there is memory");
    let layout = |size, alignment| Layout::from_size_align(size, alignment).expect("a small layout");
    let blocks: Vec<_> = (1..=4).map(|number| images.allocate(layout(number * 100, 8)).expect("memory")).collect();
    images.allocate_zeroed(layout(50, 64)).expect("memory");
    // SAFETY: the blocks are from this arena and of these layouts; neither is used any more.
    unsafe {
        images.reallocate(blocks[0], layout(100, 8), 1000).expect("memory");
        images.deallocate(blocks[3], layout(400, 8));
    }
    println!("{{\"images\": [{}, {}]}}", images.blocks(), images.bytes());
    // Its blocks live to the end of the program, and so does the arena.
    std::mem::forget(images);
}
