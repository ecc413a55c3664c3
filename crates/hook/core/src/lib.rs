//! The foundation of Heapledger: everything here may run inside `malloc`.
//!
//! No dependencies, no `std`, no allocation, no panics on any path a hook can reach.
//!
//! - [`ids`]: typed ids and amounts, so that a size is never mistaken for a count.
//! - [`api`]: the allocator calls that Heapledger distinguishes, with the numbers used on disk.
//! - [`allocator`]: the allocators whose usable sizes are known.
//! - [`context`]: the stack of named scopes that a thread is in.
//! - [`bridge`]: how a program finds its observer.
//! - [`hooks`]: the hook table, through which the malloc family is watched or replaced.
//! - [`sys`]: raw system calls; they never touch `errno` and never enter libc.
//! - [`lock`]: a futex lock.
//! - [`sample`]: random numbers, and the choice of sampled bytes. [`countdown`]: the bytes until a
//!   thread's next sample point. [`filter`]: a counting Bloom filter over the addresses of sampled
//!   blocks.
//! - [`fatal`]: ends a program that misuses the allocator.
//! - [`print`]: writes text to a descriptor, without allocation.
//! - [`pool`]: user pools.
//! - [`size_classes`]: the sizes of the blocks of Heapledger's allocator.
//! - [`stamp`]: the types that a program declares for its blocks.
//! - [`totals`]: the totals that a ledger keeps.
//! - [`program`]: the kind of a program file, judged by its first bytes.
#![no_std]

pub mod allocator;
pub mod api;
pub mod arch;
pub mod block_sampler;
pub mod bridge;
pub mod context;
pub mod countdown;
pub mod crash_record;
pub mod digits;
pub mod fatal;
pub mod filter;
pub mod hooks;
pub mod ids;
pub mod lock;
pub mod pool;
pub mod print;
pub mod program;
pub mod sample;
pub mod sandbox;
pub mod size_classes;
pub mod stamp;
pub mod sys;
pub mod thread_key;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
pub mod thread_slots;
pub mod totals;

pub use api::Api;
pub use ids::{Blocks, Bytes, GENERATED_CODE, NodeKind, Serial, StackId, ThreadId, TypeId};
