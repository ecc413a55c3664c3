//! An account of the blocks of an allocator of the program's own, by scope and type: an
//! `AllocationRegister`. Prints the account, as a dump has it.

use heapledger::context;
use heapledger::dump::{AllocationContext, AllocationRegister, Enumerate};

fn main() {
    let register = AllocationRegister::new();
    // The blocks are pages of a device: what is entered need not be memory of this process.
    for page in 0..100_u64 {
        let _scope = if page % 4 == 0 { context!("layout") } else { context!("paint") };
        let context = AllocationContext { type_name: Some("Page"), ..AllocationContext::current() };
        register.insert(0x10_0000 + page * 4096, 4096, &context);
    }
    (0..100).step_by(2).for_each(|page| _ = register.remove(0x10_0000 + page * 4096));

    let (blocks, bytes) = register.held();
    println!("{} pages of {} bytes in all", blocks.0, bytes.0);
    let inside = register.block_at(0x10_0000 + 4096 + 7).expect("the second page is there");
    println!("{:#x} is in a page of `{}`", 0x10_0000 + 4096 + 7, register.context_of(&inside).scopes);
    println!("the account needs {} bytes", register.cost().bytes_mapped);
}
