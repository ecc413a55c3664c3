//! The bounds of the current stack in memory, so that a wrong rule can never read elsewhere.
//!
//! The stack that a thread was started with is identified by its top: the first thread's is given
//! by the C library at start, any other thread's is the thread control block, which glibc puts
//! there. The pages from a stack pointer up to the top are checked once, and remembered. Any other
//! stack (signal stack, fiber) is checked page by page on every walk.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::{arch, sandbox, sys};

use crate::PAGE;

/// The maximum number of pages that are checked to find a thread's own stack: 256 MiB.
const OWN_PAGES_MAX: u64 = 1 << 16;
/// The maximum number of pages of a foreign stack that one walk reads: 1 MiB.
const FOREIGN_PAGES_MAX: u64 = 256;

/// The top of the first thread's stack.
static FIRST_TOP: AtomicU64 = AtomicU64::new(0);

/// Sets the end of the first thread's stack, as the C library has it at start.
pub fn set_first_top(address: u64) {
    FIRST_TOP.store(address, Ordering::Relaxed);
}

/// Returns the end of the first thread's stack.
pub fn first_top() -> u64 {
    FIRST_TOP.load(Ordering::Relaxed)
}

/// The verified part of a thread's own stack. Zeroed memory is valid: nothing is verified yet.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct OwnStack {
    /// The lowest verified address.
    low: u64,
    /// The end of the highest word.
    high: u64,
}

impl OwnStack {
    /// True if an address is in the verified part.
    #[inline(always)]
    pub fn contains(&self, address: u64) -> bool {
        // One comparison: below `low` the difference wraps to something large.
        address.wrapping_sub(self.low) < self.high.wrapping_sub(self.low)
    }

    /// Tries to extend the verified range to `sp`, checking every page between. True if it
    /// succeeded.
    #[cold]
    #[inline(never)]
    pub fn grow_to(&mut self, sp: u64) -> bool {
        /// The distance that the kernel keeps free below the first thread's stack
        /// (`stack_guard_gap`, 256 pages).
        const GAP: u64 = 256 * PAGE;
        if sandbox::is_entered() {
            // The kernel cannot be asked. The stack pointer is on mapped memory, which can only be
            // the stack itself.
            let is_first = self.high != 0 && self.high == first_top();
            let is_near = is_first && sp < self.low && self.low - sp < GAP;
            if is_near {
                self.low = sp & !(PAGE - 1);
            }
            return is_near;
        }
        if self.high != 0 && sp < self.low {
            if is_contiguous(sp, self.low) {
                self.low = sp & !(PAGE - 1);
                return true;
            }
            return false;
        }
        let first_top = first_top();
        let own_top = arch::thread_pointer() as u64 & !7;
        let (near, far) = if own_top < first_top { (own_top, first_top) } else { (first_top, own_top) };
        for top in [near, far] {
            if top > sp && is_contiguous(sp, top) {
                *self = OwnStack { low: sp & !(PAGE - 1), high: top };
                return true;
            }
        }
        false
    }

    /// Returns the memory that a walk from `sp` may read, and true if that is the thread's own
    /// stack.
    #[inline(always)]
    pub fn stack_at(&mut self, sp: u64) -> (Stack, bool) {
        if self.contains(sp) || self.grow_to(sp) {
            (Stack { low: sp, high: self.high, pages_left: 0, is_unproven: false }, true)
        } else {
            let mut stack = Stack { low: sp, high: sp, pages_left: 0, is_unproven: false };
            stack.enter(sp);
            (stack, false)
        }
    }
}

fn is_contiguous(from: u64, to: u64) -> bool {
    let (first, last) = (from / PAGE, (to - 1) / PAGE);
    last - first < OWN_PAGES_MAX && (first..=last).all(|page| sys::is_readable((page * PAGE) as usize))
}

/// The memory that one walk may read.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    low: u64,
    high: u64,
    /// The number of pages that may still be added above: 0 on the thread's own stack.
    pages_left: u64,
    /// True after a step without proof: what is beyond `high` may not be this stack any more.
    is_unproven: bool,
}

impl Stack {
    /// True if the word at an aligned address above the stack pointer is known to be readable,
    /// without a check.
    #[inline(always)]
    pub fn is_known_readable(&self, address: u64) -> bool {
        address < self.high
    }

    /// True if this is the stack on which the walk has started.
    pub fn starts_at(&self, sp: u64) -> bool {
        self.low == sp
    }

    /// True if an address is not below the stack pointer.
    #[inline(always)]
    pub fn is_above_start(&self, address: u64) -> bool {
        address >= self.low
    }

    /// True if the word at an aligned address may be read; checks further pages if necessary. Only
    /// before a step without proof.
    #[inline(always)]
    fn covers(&mut self, address: u64) -> bool {
        self.has(address) || self.extend_to(address)
    }

    /// True if the word at an aligned address is in the pages that have been checked.
    #[inline(always)]
    fn has(&self, address: u64) -> bool {
        address >= self.low && address.wrapping_add(8) <= self.high && address < u64::MAX - 8
    }

    /// Returns a word, if its address is a multiple of 8 and it may be read; checks further pages
    /// if necessary.
    pub fn word(&mut self, address: u64) -> Option<u64> {
        if address & 7 != 0 {
            return None;
        }
        if self.is_unproven && !self.has(address) {
            return self.word_of_any(address);
        }
        self.covers(address).then(|| {
            // SAFETY: `covers` has returned true for the word, and its address is a multiple of 8.
            unsafe { self.read(address) }
        })
    }

    /// Notes that the next step is not proven. Words in pages that were not checked before may then
    /// be of memory that another thread unmaps, so the kernel reads them.
    pub fn distrust(&mut self) {
        self.is_unproven = true;
    }

    /// Reads a word that may not be on this stack.
    #[cold]
    fn word_of_any(&self, address: u64) -> Option<u64> {
        let beyond = address.saturating_sub(self.high);
        if address < self.low || address >= u64::MAX - PAGE || beyond >= self.pages_left * PAGE {
            return None;
        }
        let mut word = [0];
        let read = sys::read_own_pieces(&[[address, 8]], &mut word);
        (read == 8).then_some(word[0])
    }

    /// Reads a word.
    ///
    /// # Safety
    ///
    /// [`Stack::is_known_readable`] has returned true in this walk for the address or for one above
    /// it, or `covers` for the address. It is not below the start of the walk, and a
    /// multiple of 8.
    #[inline(always)]
    pub unsafe fn read(&self, address: u64) -> u64 {
        // SAFETY: by the caller's contract the address was checked: it is readable memory of the
        // current stack, above the stack pointer, where only this thread writes: a proven step led
        // to its page. Volatile, because it belongs to frames that the compiler does not know.
        unsafe { core::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
    }

    /// Continues at another stack pointer, after a signal frame.
    pub fn enter(&mut self, sp: u64) {
        if sp >= self.low && sp < self.high {
            return;
        }
        *self = Stack { low: sp, high: sp & !(PAGE - 1), pages_left: FOREIGN_PAGES_MAX, ..*self };
    }

    #[cold]
    #[inline(never)]
    fn extend_to(&mut self, address: u64) -> bool {
        if address < self.low || address >= u64::MAX - PAGE {
            return false;
        }
        while address + 8 > self.high {
            if self.pages_left == 0 || !sys::is_readable(self.high as usize) {
                return false;
            }
            self.pages_left -= 1;
            self.high += PAGE;
        }
        true
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
