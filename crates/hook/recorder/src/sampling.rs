//! The state that sampling keeps for a thread.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{Ordering, compiler_fence};

use heapledger_core::arch;
use heapledger_core::sample::Poisson;

/// The sampling state of a thread, beside its [countdown](heapledger_core::countdown). Zeroes are
/// valid: nothing is drawn yet.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Sampling {
    is_seeded: bool,
    sampler: MaybeUninit<Poisson>,
    /// The bytes until the next sample after the thread's latest event. Another value now means
    /// that there were allocations in between.
    pub(crate) until_sample_at_event: u64,
    /// The block of the reallocation that has begun, if it is in the sample.
    pub(crate) reallocated: u64,
}

impl Sampling {
    /// Returns the thread's source of distances.
    pub(crate) fn sampler(&mut self) -> &mut Poisson {
        if !self.is_seeded {
            // The seeds of threads differ by the addresses of their blocks, those of runs by the
            // time.
            let address = ptr::from_mut(self) as u64;
            self.sampler.write(Poisson::new(arch::ticks() ^ address << 20));
            // A signal handler may leave this function by `siglongjmp`: the sampler comes first.
            compiler_fence(Ordering::Release);
            self.is_seeded = true;
        }
        // SAFETY: `assume_init_mut` requires an initialised sampler. It was written just now, or
        // before `is_seeded` was set.
        unsafe { self.sampler.assume_init_mut() }
    }
}
