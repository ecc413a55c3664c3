//! Capture: from the caller's registers to a stack id.
//!
//! A [`Walker`] remembers the thread's previous stack, outermost frame first. For each frame it has the registers and
//! the *link* to the caller: where the return address and the saved frame pointer were found. A new walk steps from the
//! inside; when it reaches registers that equal those of a remembered frame, and the words of all links from there
//! outwards are unchanged, then the same rules would read the same words: the rest of the stack is the remembered one.
//! rbp only has to be equal where it is used before it is restored. Nothing is assumed, so the result is exact.

use core::mem::MaybeUninit;
use core::ptr;

use heapledger_core::{NodeKind, StackId};

use crate::arch::{Registers, Rule, SLOT_LOST, SLOT_UNCHANGED, SLOT_UNKNOWN, step};
use crate::bounds::{OwnStack, Stack};
use crate::rules::{self, Context};
use crate::tree::{self, Place, View};
use crate::{Sink, modules};

/// Frames remembered, and the most a stack can have.
pub const FRAMES_MAX: usize = 1024;
/// Innermost frames kept when a stack is deeper: less than [`FRAMES_MAX`], so that a recursion that goes deeper still
/// is cut anew only every few hundred calls.
pub const FRAMES_KEPT: usize = 768;

/// When a cut stack has fewer frames than this left, it is walked anew.
pub const FRAMES_FEWEST: usize = 256;

/// A remembered frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Frame {
    registers: Registers,
    /// Where the caller's rbp is to be found: a word of the stack, or, when it was not saved, our own copy (in `fresh`:
    /// [`SLOT_UNCHANGED`]). [`SLOT_UNKNOWN`] when the link to the caller cannot be checked.
    rbp_slot: u64,
    /// In `fresh`: 1 when stepping out of this frame uses its rbp. Remembered: 1 when stepping out of it, or of an
    /// outer frame that has the same rbp, does. Where it is 0, rbp may hold anything: compilers use it for data.
    needs_rbp: u64,
    place: Place,
}

/// Counters of what could not be captured whole.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Defects {
    /// Stacks of which only the innermost frames were kept.
    pub truncated: u64,
    /// Stacks that ended at a frame without a usable rule.
    pub lost: u64,
}

impl Defects {
    /// How many there were.
    #[inline(always)]
    pub fn count(&self) -> u64 {
        self.truncated.wrapping_add(self.lost)
    }
}

/// A thread's memory of its previous stack, and its scratch space. Zeroed memory is a valid walker; it is large, and
/// most of it is touched by deep stacks only.
#[derive(Debug)]
#[repr(C)]
pub struct Walker {
    own: OwnStack,
    /// Remembered frames.
    length: usize,
    /// The module epoch they belong to, plus one: 0 is none.
    epoch: u32,
    /// Whether a context has been made in `context`.
    has_context: bool,
    /// Whether outer frames of the remembered stack were cut off.
    is_cut: bool,
    /// The root of this epoch's stacks.
    root: Place,
    /// What went wrong so far.
    pub defects: Defects,
    frames: [MaybeUninit<Frame>; FRAMES_MAX],
    /// New frames, innermost first.
    fresh: [MaybeUninit<Frame>; FRAMES_MAX],
    context: MaybeUninit<Context>,
}

impl Walker {
    /// The stack that starts with the frame of these registers. `first_top` is the top of the first thread's stack.
    ///
    /// # Safety
    ///
    /// `registers` are those of a live frame of the calling thread: `lookup + 1` the address it will continue at, `sp`
    /// and `rbp` its registers then. The walker is used by one thread at a time.
    #[inline(always)]
    pub unsafe fn capture(&mut self, registers: Registers, first_top: u64, sink: &mut dyn Sink) -> StackId {
        if self.epoch != modules::epoch().wrapping_add(1) {
            self.start_epoch(sink);
        }
        self.walk(&registers, first_top, sink).unwrap_or_else(|| {
            self.length = 0;
            self.walk(&registers, first_top, sink).unwrap_or(StackId::ROOT)
        })
    }

    /// The walker's thread has ended, and another takes it over.
    pub fn start_thread(&mut self) {
        self.own = OwnStack::default();
        self.length = 0;
    }

    /// Forgets the remembered stack: a walk was interrupted for good.
    pub fn forget(&mut self) {
        self.length = 0;
    }

    /// Whether two addresses are both on the thread's own stack, as far as it has been verified.
    pub fn is_own_stack(&self, one: u64, other: u64) -> bool {
        self.own.contains(one) && self.own.contains(other)
    }

    /// `None` when too little is left of a remembered stack that was cut.
    #[inline(never)]
    fn walk(&mut self, start: &Registers, first_top: u64, sink: &mut dyn Sink) -> Option<StackId> {
        let Some(cache) = rules::cache() else { return Some(StackId::ROOT) };
        // Scalars, so that they stay in registers.
        let (mut lookup, mut sp, mut rbp) = (start.lookup, start.sp, start.rbp);
        let (mut stack, is_own) = self.own.stack_at(sp, first_top);
        if !is_own {
            self.length = 0;
        }
        let mut candidates = self.intact(sp, &stack);
        let mut candidate_sp = self.candidate_sp(candidates);
        let mut fresh = 0;
        let kept = loop {
            // Outwards the stack pointer grows: skip remembered frames that lie further in.
            while candidate_sp < sp {
                candidates -= 1;
                candidate_sp = self.candidate_sp(candidates);
            }
            if candidate_sp == sp {
                let candidate = self.frame(candidates - 1);
                if candidate.registers.lookup == lookup && (candidate.registers.rbp == rbp || candidate.needs_rbp == 0)
                {
                    break candidates;
                }
            }
            if fresh == FRAMES_MAX {
                return Some(self.truncate(0, fresh, sink));
            }
            let rule = match cache.get(lookup) {
                Some(rule) => rule,
                None => self.compute(lookup, sink),
            };
            let found = step(lookup, sp, rbp, rule, &mut stack);
            self.set_fresh(fresh, lookup, sp, rbp, found.rbp_slot, found.uses_rbp);
            fresh += 1;
            if !found.is_caller() {
                // Where a thread's stack begins, whatever there is has no caller: the dynamic linker's start.
                self.defects.lost += u64::from(found.rbp_slot == SLOT_LOST && sp != first_top);
                break 0;
            }
            (lookup, sp, rbp) = (found.caller.lookup, found.caller.sp, found.caller.rbp);
        };
        if kept + fresh > FRAMES_MAX {
            return Some(self.truncate(kept, fresh, sink));
        }
        if self.is_cut {
            if kept == 0 {
                self.is_cut = false;
            } else if kept + fresh < FRAMES_FEWEST {
                return None;
            }
        }
        let place = if kept == 0 { self.root } else { self.frame(kept - 1).place };
        let id = self.append(place, kept, fresh, sink);
        if !is_own {
            // The frames of another stack cannot be checked later: the stack may be gone.
            self.length = 0;
        }
        Some(id)
    }

    /// How many remembered frames, from the outermost, are still what a walk would find once it reached them: their
    /// links are intact. Frames below the stack pointer are not asked for.
    #[inline(always)]
    fn intact(&self, sp: u64, stack: &Stack) -> usize {
        if self.length == 0 {
            return 0;
        }
        let mut count = 1;
        while count < self.length {
            let slot = self.frame(count).rbp_slot;
            let is_intact = if slot == SLOT_UNKNOWN {
                self.leads_there(count, *stack)
            } else {
                // The word below the caller's sp is read: it has to be above ours.
                self.frame(count - 1).registers.sp > sp && self.link_difference(count) == 0
            };
            if !is_intact {
                break;
            }
            count += 1;
        }
        count
    }

    /// The stack pointer of the innermost of so many candidates; beyond all stacks when there are none.
    #[inline(always)]
    fn candidate_sp(&self, candidates: usize) -> u64 {
        if candidates == 0 { u64::MAX } else { self.frame(candidates - 1).registers.sp }
    }

    /// Checks a link that is not made of two words by stepping once more.
    #[cold]
    #[inline(never)]
    fn leads_there(&self, index: usize, mut stack: Stack) -> bool {
        let (frame, caller) = (self.frame(index).registers, self.frame(index - 1).registers);
        let Some(rule) = rules::cache().and_then(|cache| cache.get(frame.lookup)) else { return false };
        let found = step(frame.lookup, frame.sp, frame.rbp, rule, &mut stack);
        // The frame may have been taken over with another rbp than it has now.
        found.is_caller() && !(found.uses_rbp && self.frame(index).needs_rbp == 0) && found.caller == caller
    }

    /// 0 when the words that led from a frame to its caller are unchanged. Not for unknown links.
    #[inline(always)]
    fn link_difference(&self, index: usize) -> u64 {
        let (frame, caller) = (self.frame(index), self.frame(index - 1));
        // SAFETY: both words were covered by the verified bounds of this thread's own stack when the link was made, and a
        // thread's own stack stays mapped. What they hold may be anything. Or `rbp_slot` points to our own copy.
        let (return_address, rbp) = unsafe { (read(caller.registers.sp - 8), read(frame.rbp_slot)) };
        // What the caller does not need of its rbp may change.
        let rbp_difference = (rbp ^ caller.registers.rbp) & caller.needs_rbp.wrapping_neg();
        (return_address.wrapping_sub(1) ^ caller.registers.lookup) | rbp_difference
    }

    /// Remembers the fresh frames inside of the first `kept`, whose innermost has this place, and gives each its node.
    #[inline(always)]
    fn append(&mut self, mut place: Place, kept: usize, fresh: usize, sink: &mut dyn Sink) -> StackId {
        let mut at = kept;
        let mut needs_rbp = if kept == 0 { 0 } else { self.frame(kept - 1).needs_rbp };
        let mut tree = View::now();
        for index in (0..fresh).rev() {
            let Frame { registers: Registers { lookup, sp, rbp }, rbp_slot, needs_rbp: uses_rbp, .. } =
                *self.fresh_frame(index);
            place = tree.child(place, NodeKind::Frame, lookup, sink);
            // The caller's rbp is this frame's only where it was not saved.
            needs_rbp = uses_rbp | if rbp_slot == SLOT_UNCHANGED { needs_rbp } else { 0 };
            self.set_frame(at, lookup, sp, rbp, rbp_slot, needs_rbp, place);
            at += 1;
        }
        self.length = at;
        place.id
    }

    /// The stack is deeper than we follow: keep its innermost frames, under a node that says so.
    #[cold]
    #[inline(never)]
    fn truncate(&mut self, kept: usize, fresh: usize, sink: &mut dyn Sink) -> StackId {
        self.defects.truncated += 1;
        self.is_cut = true;
        let fresh = fresh.min(FRAMES_KEPT);
        let remembered = kept.min(FRAMES_KEPT - fresh);
        let mut place = tree::child(self.root, NodeKind::Truncated, 1, sink);
        for index in 0..remembered {
            let Frame { registers: Registers { lookup, sp, rbp }, rbp_slot, needs_rbp, .. } =
                self.frame_to_move(kept - remembered + index);
            place = tree::child(place, NodeKind::Frame, lookup, sink);
            self.set_frame(index, lookup, sp, rbp, rbp_slot, needs_rbp, place);
        }
        self.append(place, remembered, fresh, sink)
    }

    #[cold]
    #[inline(never)]
    fn start_epoch(&mut self, sink: &mut dyn Sink) {
        let epoch = modules::epoch();
        self.length = 0;
        self.root =
            if epoch == 0 { Place::ROOT } else { tree::child(Place::ROOT, NodeKind::Epoch, u64::from(epoch), sink) };
        self.epoch = epoch.wrapping_add(1);
    }

    #[cold]
    #[inline(never)]
    fn compute(&mut self, lookup: u64, sink: &mut dyn Sink) -> Rule {
        if !self.has_context {
            self.context.write(Context::new_in());
            self.has_context = true;
        }
        // SAFETY: written just above, or in an earlier call; zeroing a walker also zeroes `has_context`.
        let context = unsafe { self.context.assume_init_mut() };
        rules::compute(lookup, context, sink).unwrap_or(Rule::UNSUPPORTED)
    }

    #[inline(always)]
    fn frame(&self, index: usize) -> &Frame {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: callers pass indices below `length` (or below `at` while appending), all of which have been written;
        // and all bit patterns are valid `Frame`s.
        unsafe { &*self.frames.as_ptr().add(index).cast::<Frame>() }
    }

    /// Writes a frame of `fresh` to its place among the remembered ones. Field by field: a copy in larger pieces would
    /// have to wait for the smaller stores it reads.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "scalars, so that they stay in registers")]
    fn set_frame(&mut self, index: usize, lookup: u64, sp: u64, rbp: u64, rbp_slot: u64, needs_rbp: u64, place: Place) {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: callers have checked that all frames fit; every field of the frame is written.
        unsafe {
            let to = self.frames.as_mut_ptr().add(index).cast::<Frame>();
            (*to).registers.lookup = lookup;
            (*to).registers.sp = sp;
            (*to).registers.rbp = rbp;
            let own_copy = (&raw mut (*to).registers.rbp).expose_provenance() as u64;
            (*to).rbp_slot = if rbp_slot == SLOT_UNCHANGED { own_copy } else { rbp_slot };
            (*to).needs_rbp = needs_rbp;
            (*to).place = place;
        }
    }

    /// A remembered frame as it would be in `fresh`: our own copy is not one of its new place.
    #[inline(always)]
    fn frame_to_move(&self, index: usize) -> Frame {
        let mut frame = *self.frame(index);
        if frame.rbp_slot == ptr::from_ref(&self.frame(index).registers.rbp).addr() as u64 {
            frame.rbp_slot = SLOT_UNCHANGED;
        }
        frame
    }

    #[inline(always)]
    fn fresh_frame(&self, index: usize) -> &Frame {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: callers pass indices below the number of fresh frames of this walk, all of which have been written.
        unsafe { &*self.fresh.as_ptr().add(index).cast::<Frame>() }
    }

    #[inline(always)]
    fn set_fresh(&mut self, index: usize, lookup: u64, sp: u64, rbp: u64, rbp_slot: u64, uses_rbp: bool) {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: the walk has checked that `index` is below `FRAMES_MAX`. `place` is not written: any bits are a `Place`,
        // and the memory was zeroed when it was mapped.
        unsafe {
            let to = self.fresh.as_mut_ptr().add(index).cast::<Frame>();
            (*to).registers.lookup = lookup;
            (*to).registers.sp = sp;
            (*to).registers.rbp = rbp;
            (*to).rbp_slot = rbp_slot;
            (*to).needs_rbp = u64::from(uses_rbp);
        }
    }
}

/// Reads a word of the stack.
///
/// # Safety
///
/// The address is readable and a multiple of 8.
#[inline(always)]
unsafe fn read(address: u64) -> u64 {
    // SAFETY: the caller's contract.
    unsafe { ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
}
