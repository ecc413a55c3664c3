//! Capture: from the caller's registers to a stack id.
//!
//! A [`Walker`] remembers the thread's previous stack, outermost frame first. For each frame it has the registers and
//! the *link* to the caller: where the return address and the saved frame pointer were found. A new walk steps from the
//! inside; when it reaches registers that equal those of a remembered frame, and the words of all links from there
//! outwards are unchanged, then the same rules would read the same words: the rest of the stack is the remembered one.
//! Nothing is assumed, so the result is exact.

use core::mem::MaybeUninit;
use core::ptr;

use heapledger_core::{NodeKind, StackId};

use crate::arch::{Registers, Step, step};
use crate::bounds::{OwnStack, Stack};
use crate::rules::{self, Context};
use crate::tree::{self, Place};
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
    /// Address of the word with the return address; 0 when the link cannot be checked.
    return_slot: u64,
    /// Address of a word that holds the caller's rbp: the saved one, or our own copy where it was not saved.
    rbp_slot: u64,
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
        let (stack, is_own) = self.own.stack_at(registers.sp, first_top);
        if !is_own {
            self.length = 0;
        }
        let id = self.walk(registers, stack, sink).or_else(|| {
            self.length = 0;
            self.walk(registers, stack, sink)
        });
        if !is_own {
            // The frames of another stack cannot be checked later: the stack may be gone.
            self.length = 0;
        }
        id.unwrap_or(StackId::ROOT)
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
    fn walk(&mut self, mut registers: Registers, mut stack: Stack, sink: &mut dyn Sink) -> Option<StackId> {
        let mut candidates = self.length;
        let mut fresh = 0;
        let kept = loop {
            // Outwards the stack pointer grows: skip remembered frames that lie further in.
            while candidates > 0 && self.frame(candidates - 1).registers.sp < registers.sp {
                candidates -= 1;
            }
            if candidates > 0 && self.frame(candidates - 1).registers == registers {
                match self.broken_link(candidates - 1) {
                    None => break candidates,
                    Some(broken) => {
                        // Frames up to the broken link are as remembered, but for what lies outside of them.
                        while candidates > broken {
                            candidates -= 1;
                            if fresh == FRAMES_MAX {
                                return Some(self.truncate(0, fresh, sink));
                            }
                            let frame = *self.frame(candidates);
                            self.set_fresh(fresh, frame);
                            fresh += 1;
                        }
                        fresh -= 1;
                        registers = self.fresh_frame(fresh).registers;
                    }
                }
            }
            if fresh == FRAMES_MAX {
                return Some(self.truncate(0, fresh, sink));
            }
            let rule = match rules::cached(registers.lookup) {
                Some(rule) => Some(rule),
                None => self.compute(registers.lookup, sink),
            };
            let (next, link) = match rule.map(|rule| step(registers, rule, &mut stack)) {
                Some(Step::Caller { registers, link }) => (Some(registers), link),
                Some(Step::End) => (None, None),
                Some(Step::Lost) | None => {
                    self.defects.lost += 1;
                    (None, None)
                }
            };
            let (return_slot, rbp_slot) = link.map_or((0, 0), |link| (link.cfa - 8, link.rbp_slot));
            self.set_fresh(fresh, Frame { registers, return_slot, rbp_slot, place: Place::ROOT });
            fresh += 1;
            match next {
                Some(next) => registers = next,
                None => break 0,
            }
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
        Some(self.append(kept, fresh, sink))
    }

    /// The outermost-first index of the frame nearest to `from` whose link is not as remembered, if any. Link 0 leads
    /// nowhere.
    #[inline(always)]
    fn broken_link(&self, from: usize) -> Option<usize> {
        let mut difference = 0;
        for index in 1..=from {
            difference |= self.link_difference(index);
        }
        if difference == 0 { None } else { (1..=from).rev().find(|&index| self.link_difference(index) != 0) }
    }

    /// 0 when the words that led from a frame to its caller are unchanged.
    #[inline(always)]
    fn link_difference(&self, index: usize) -> u64 {
        let (frame, caller) = (self.frame(index), self.frame(index - 1));
        if frame.return_slot == 0 {
            return 1;
        }
        // SAFETY: both words lie on this thread's own stack above its stack pointer: `return_slot` is below the caller's
        // frame and above this frame's sp, which the walk has reached from the inside, and both were covered by the
        // verified bounds when the link was made (a thread's own stack does not shrink). Or `rbp_slot` points to our own copy.
        let (return_address, rbp) = unsafe { (read(frame.return_slot), read(frame.rbp_slot)) };
        (return_address.wrapping_sub(1) ^ caller.registers.lookup) | (rbp ^ caller.registers.rbp)
    }

    /// Remembers the fresh frames inside of the first `kept`, and gives each its node.
    #[inline(always)]
    fn append(&mut self, kept: usize, fresh: usize, sink: &mut dyn Sink) -> StackId {
        let mut place = if kept == 0 { self.root } else { self.frame(kept - 1).place };
        let mut at = kept;
        for index in (0..fresh).rev() {
            let mut frame = *self.fresh_frame(index);
            place = tree::child(place, NodeKind::Frame, frame.registers.lookup, sink);
            frame.place = place;
            self.set_frame(at, frame);
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
            let mut frame = *self.frame(kept - remembered + index);
            place = tree::child(place, NodeKind::Frame, frame.registers.lookup, sink);
            frame.place = place;
            self.set_frame(index, frame);
        }
        if remembered == 0 {
            // `append` takes the place of the outer frame from the frames before it: intern here.
            for index in (0..fresh).rev() {
                let mut frame = *self.fresh_frame(index);
                place = tree::child(place, NodeKind::Frame, frame.registers.lookup, sink);
                frame.place = place;
                self.set_frame(fresh - 1 - index, frame);
            }
            self.length = fresh;
            return place.id;
        }
        self.append(remembered, fresh, sink)
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
    fn compute(&mut self, lookup: u64, sink: &mut dyn Sink) -> Option<crate::arch::Rule> {
        if !self.has_context {
            self.context.write(Context::new_in());
            self.has_context = true;
        }
        // SAFETY: written just above, or in an earlier call; zeroing a walker also zeroes `has_context`.
        let context = unsafe { self.context.assume_init_mut() };
        rules::compute(lookup, context, sink)
    }

    #[inline(always)]
    fn frame(&self, index: usize) -> &Frame {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: callers pass indices below `length` (or below `at` while appending), all of which have been written;
        // and all bit patterns are valid `Frame`s.
        unsafe { &*self.frames.as_ptr().add(index).cast::<Frame>() }
    }

    #[inline(always)]
    fn set_frame(&mut self, index: usize, mut frame: Frame) {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: callers have checked that `kept + fresh` fits.
        unsafe {
            let frames = self.frames.as_mut_ptr().cast::<Frame>();
            if frame.return_slot != 0 && (frame.rbp_slot == 0 || self.is_own_copy(frame.rbp_slot)) && index > 0 {
                frame.rbp_slot = ptr::from_ref(&(*frames.add(index - 1)).registers.rbp).expose_provenance() as u64;
            }
            frames.add(index).write(frame);
        }
    }

    /// Whether a slot is one of our own copies, not a word of the stack.
    #[inline(always)]
    fn is_own_copy(&self, slot: u64) -> bool {
        let start = self.frames.as_ptr().addr() as u64;
        slot.wrapping_sub(start) < size_of_val(&self.frames) as u64
    }

    #[inline(always)]
    fn fresh_frame(&self, index: usize) -> &Frame {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: callers pass indices below the number of fresh frames of this walk, all of which have been written.
        unsafe { &*self.fresh.as_ptr().add(index).cast::<Frame>() }
    }

    #[inline(always)]
    fn set_fresh(&mut self, index: usize, frame: Frame) {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: the walk has checked that `index` is below `FRAMES_MAX`.
        unsafe { self.fresh.as_mut_ptr().add(index).cast::<Frame>().write(frame) };
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
