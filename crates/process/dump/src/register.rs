//! A register of an allocator's live blocks, from which a dump's heap is made.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use heapledger_annotate::Context;
use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_ledger::{Enumerate, LiveBlock, SharedRegister};
use heapledger_profile_formats::Amount;
use heapledger_profile_formats::chrome::Heap;
use heapledger_reporters::internal::untracked;

use crate::overhead::Cost;

/// The key by which blocks are grouped: the scopes in which a block was allocated, and its type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllocationContext {
    /// The scopes.
    pub scopes: Context,
    /// The type; `None` if it is not known.
    pub type_name: Option<&'static str>,
}

impl AllocationContext {
    /// Returns the scopes that the calling thread is in, with a type that is not known yet.
    pub fn current() -> AllocationContext {
        AllocationContext { scopes: Context::current(), type_name: None }
    }
}

/// The live blocks of an allocator of the program's own, by address, each with its size and
/// context. The register is in memory mapped from the kernel; any thread may use it at any time.
///
/// It cannot be used for `malloc` itself, since the first allocation in a new context allocates;
/// the [ledger](heapledger_query::Ledger) keeps account of that. An allocator that can walk over
/// its own blocks needs no register: see [`heap_of`].
///
/// ```
/// use heapledger_dump::{AllocationContext, AllocationRegister};
///
/// let register = AllocationRegister::new();
/// let context = AllocationContext { type_name: Some("Page"), ..AllocationContext::current() };
/// register.insert(0x1000, 4096, &context);
/// register.insert(0x2000, 100, &AllocationContext::current());
/// assert!(register.remove(0x2000) && !register.remove(0x2000));
/// assert_eq!(register.iter().collect::<Vec<_>>(), [(0x1000, 4096, context)]);
/// assert_eq!(register.heap().total().bytes, 4096);
/// ```
#[derive(Default)]
pub struct AllocationRegister {
    /// Blocks, with the number of the context in place of the stack.
    blocks: SharedRegister,
    contexts: Mutex<Contexts>,
    dropped: AtomicU64,
}

/// The contexts, each once. They are kept: there are as many as locations in the program that
/// allocate.
#[derive(Default)]
struct Contexts {
    all: Vec<AllocationContext>,
    numbers: HashMap<AllocationContext, u32>,
}

impl AllocationRegister {
    /// Returns an empty register, which has mapped nothing.
    pub fn new() -> AllocationRegister {
        AllocationRegister::default()
    }

    /// Adds a block, in place of a previous one at its address. Call it when the block may be used.
    /// Addresses have 47 bits. If there is no memory, the block is
    /// [dropped](AllocationRegister::dropped).
    pub fn insert(&self, address: u64, size: u64, context: &AllocationContext) {
        let block = LiveBlock { stack: self.number(context), ..LiveBlock::at(address, Bytes(size)) };
        if self.blocks.insert(&block).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a block, and returns whether it was there. Call it before another thread can be
    /// given the block.
    pub fn remove(&self, address: u64) -> bool {
        self.blocks.remove(LiveBlock::at(address, Bytes(0)).key).is_some()
    }

    /// Returns the number of blocks that were dropped because there was no memory.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns address, size and context of each block, in no useful order. Blocks that come or go
    /// meanwhile may be included or not.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, AllocationContext)> {
        self.blocks.blocks().map(|block| (block.key.address(), block.size.0, self.context_of(&block)))
    }

    /// Returns the context of a block that [`Enumerate`] has found here.
    pub fn context_of(&self, block: &LiveBlock) -> AllocationContext {
        self.contexts().all.get(block.stack.0 as usize).cloned().unwrap_or_default()
    }

    /// Groups the blocks for a dump.
    pub fn heap(&self) -> Heap {
        heap_of(self, |block| self.context_of(block))
    }

    /// Returns what the register costs, for [`ProviderOverhead`](crate::ProviderOverhead).
    pub fn cost(&self) -> Cost {
        let contexts = self.contexts();
        // The memory of the standard library's map: an entry, and a control byte for each.
        let per_number = size_of::<(AllocationContext, u32)>() + 1;
        let bytes = contexts.all.capacity() * size_of::<AllocationContext>() + contexts.numbers.capacity() * per_number;
        let bytes_mapped = self.blocks.bytes_mapped().0;
        Cost { count: 1, bytes_allocated: bytes as u64, bytes_mapped, bytes_resident: 0 }
    }

    fn contexts(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self, context: &AllocationContext) -> StackId {
        untracked::scope(|| {
            let Contexts { all, numbers } = &mut *self.contexts();
            if let Some(&number) = numbers.get(context) {
                return StackId(number);
            }
            // Number 0 is the empty context, which also stands in for contexts beyond the largest
            // number.
            if all.is_empty() {
                all.push(AllocationContext::default());
                numbers.insert(AllocationContext::default(), 0);
            }
            if *context == AllocationContext::default() || all.len() > StackId::MAX.0 as usize {
                return StackId(0);
            }
            let number = all.len() as u32;
            all.push(context.clone());
            numbers.insert(context.clone(), number);
            StackId(number)
        })
    }
}

impl Enumerate for AllocationRegister {
    fn visit(&self, visit: &mut dyn FnMut(&LiveBlock) -> ControlFlow<()>) {
        self.blocks.visit(visit);
    }

    fn block_at(&self, address: u64) -> Option<LiveBlock> {
        self.blocks.block_at(address)
    }

    fn held(&self) -> (Blocks, Bytes) {
        self.blocks.held()
    }
}

impl std::fmt::Debug for AllocationRegister {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AllocationRegister").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

/// Groups enumerated blocks for a dump, by the context that `context_of` returns for each.
pub fn heap_of(blocks: &dyn Enumerate, mut context_of: impl FnMut(&LiveBlock) -> AllocationContext) -> Heap {
    let mut groups: HashMap<AllocationContext, Amount> = HashMap::new();
    blocks.visit(&mut |block| {
        let context = context_of(block);
        let amount = untracked::scope(|| groups.entry(context).or_default());
        amount.blocks += 1;
        amount.bytes = amount.bytes.saturating_add(block.size.0);
        ControlFlow::Continue(())
    });
    untracked::scope(|| {
        let mut heap = Heap::default();
        for (context, amount) in groups {
            heap.add(context.scopes.scopes(), context.type_name, amount);
        }
        heap
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(type_name: &'static str) -> AllocationContext {
        AllocationContext { type_name: Some(type_name), ..AllocationContext::default() }
    }

    #[test]
    fn the_last_insertion_counts_and_a_removal_once() {
        let register = AllocationRegister::new();
        register.insert(0x10, 1, &typed("A"));
        register.insert(0x10, 2, &typed("B"));
        register.insert(0, 0, &AllocationContext::default());
        assert!(!register.remove(0x20) && register.remove(0) && !register.remove(0));
        assert_eq!(register.iter().collect::<Vec<_>>(), [(0x10, 2, typed("B"))]);
        assert_eq!(register.held(), (Blocks(1), Bytes(2)));
        assert!(register.cost().bytes_mapped > 0 && register.cost().bytes_allocated > 0);
    }

    #[test]
    fn any_thread_may_use_it() {
        let register = AllocationRegister::new();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let register = &register;
                scope.spawn(move || {
                    let context = typed(["A", "B", "C", "D"][thread as usize]);
                    for block in 0..10_000 {
                        register.insert(thread << 32 | block << 4, 16, &context);
                    }
                    assert!((0..10_000).step_by(2).all(|block| register.remove(thread << 32 | block << 4)));
                });
            }
        });
        assert_eq!((register.held(), register.dropped()), ((Blocks(20_000), Bytes(320_000)), 0));
        assert_eq!(register.heap().total(), Amount { blocks: 20_000, bytes: 320_000 });
        assert!(register.iter().all(|(address, _, context)| {
            context.type_name == Some(["A", "B", "C", "D"][(address >> 32) as usize])
        }));
    }

    #[test]
    fn what_enumerates_its_blocks_needs_no_register() {
        struct Three;
        impl Enumerate for Three {
            fn visit(&self, visit: &mut dyn FnMut(&LiveBlock) -> ControlFlow<()>) {
                let _ = (1..4_u64).try_for_each(|at| visit(&LiveBlock::at(at << 4, Bytes(at))));
            }
        }
        let heap = heap_of(&Three, |block| typed(if block.size.0 > 2 { "large" } else { "small" }));
        assert_eq!(heap.total(), Amount { blocks: 3, bytes: 6 });
    }
}
