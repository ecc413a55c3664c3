//! The small register that loom can try.

use super::*;

impl SharedRegister {
    pub(crate) fn new() -> SharedRegister {
        SharedRegister {
            shards: core::array::from_fn(|_| Locked::new(Shard::new())),
            wide: Locked::new(Wide::new()),
            pools: Pools::new(),
            budget: Budget::new(),
        }
    }

    /// Returns the number of blocks, for the thread that called [`SharedRegister::before_fork`].
    pub(crate) fn held_len(&self) -> usize {
        // SAFETY: the locks are held, and the references gone when this returns.
        self.shards.iter().map(|shard| unsafe { shard.held() }.register.len()).sum()
    }
}
