//! Capture: from the caller's registers to a stack id.
//!
//! A [`Walker`] remembers the thread's previous stack, outermost frame first: for each frame the
//! return address that leads into it, and the word that held that address. If all these words are
//! unchanged from the outermost frame up to some frame, a walk that comes to that frame would read
//! them again: the rest of the stack is the remembered one. So a new walk steps from the inside
//! until it meets such a frame, and only the frames before are new.
//!
//! Most rules use rsp alone, and read nothing but return addresses. If a frame is left by its rbp,
//! the words from which rbp was restored have to be unchanged too: these few are kept separately,
//! as `Check`s. rbp does not matter if nothing uses it before it is restored. Nothing is assumed,
//! so the result is exact.

use core::hint::select_unpredictable;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::{NodeKind, StackId};

use crate::arch::{FrameRegisters, Rule, Saved, StepResult, step_out};
use crate::bounds::OwnStack;
use crate::nodes::NodeRef;
use crate::tree::{self, View};
use crate::{PAGE, Sink, bounds, eh_frame, modules, rules};

/// The number of frames remembered, and the maximum length of a stack.
pub const FRAMES_MAX: usize = 1024;
/// The number of innermost frames kept if a stack is deeper. Less than [`FRAMES_MAX`], so that a
/// recursion that goes even deeper is cut again only every few hundred calls.
pub const FRAMES_KEPT: usize = 768;

/// The number of frames below which a cut stack is walked again completely.
pub const FRAMES_MIN: usize = 256;

/// The number of bytes of memory that walkers take in this process.
static BYTES: AtomicU64 = AtomicU64::new(0);
/// The number of frames whose memory is counted in one step.
const FRAMES_COUNTED: usize = 128;

/// Returns the number of bytes of memory that the walkers of this process take: the parts of their
/// arrays that have been used.
pub fn bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// Resets the count in a forked child, which finds all walkers zeroed.
pub fn start_child() {
    BYTES.store(0, Ordering::Relaxed);
}

/// A remembered frame, identified by the return address that leads into it and the slot that held
/// it: the word below its stack pointer.
///
/// The two are not adjacent as in [`FrameRegisters`]: a pair that is copied in one piece right
/// after it was written in two would have to wait for both stores to reach the cache.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Frame {
    slot: u64,
    node: NodeRef,
    return_address: u64,
}

/// A new frame, with the rule by which the walk left it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Step {
    from: FrameRegisters,
    rule: u64,
}

/// The rbp of a remembered frame; `is_needed` is true if stepping out of it, or of an outer frame
/// that has the same rbp, uses it. If it is not needed, rbp may hold anything: compilers use it for
/// data.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Base {
    rbp: u64,
    is_needed: bool,
}

/// A word, other than a return address, on which the step into a remembered frame depends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Check {
    /// The index of that frame.
    frame: usize,
    address: u64,
    value: u64,
}

/// Counters of stacks that could not be captured whole.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct IncompleteStacks {
    /// Stacks of which only the innermost frames were kept.
    pub truncated: u64,
    /// Stacks that ended at a frame without a usable rule.
    pub lost: u64,
}

impl IncompleteStacks {
    /// Returns the number of such stacks.
    #[inline(always)]
    pub fn count(&self) -> u64 {
        self.truncated.wrapping_add(self.lost)
    }
}

/// A thread's memory of its previous stack, and its scratch space. Zeroed memory is a valid walker;
/// it is large, and most of it is touched by deep stacks only.
#[derive(Debug)]
#[repr(C)]
pub struct Walker {
    own: OwnStack,
    /// The number of remembered frames: they have the indices from 1 to this.
    length: usize,
    /// The last index of the frames for which rbp may be needed.
    bases_length: usize,
    checks_length: usize,
    /// The number of frames whose memory has been counted; then the number of those whose bases
    /// have.
    frames_counted: usize,
    bases_counted: usize,
    /// The module epoch of the remembered frames, plus one; 0 for none.
    epoch: u32,
    /// True if outer frames of the remembered stack were cut off.
    is_truncated: bool,
    /// The stacks that could not be captured whole so far.
    pub incomplete: IncompleteStacks,
    /// The remembered frames, from index 1. Index 0 stands for everything beyond the outermost
    /// frame: its slot is above any stack pointer, and its place is the root of this epoch's
    /// stacks.
    frames: [Frame; FRAMES_MAX + 1],
    bases: [Base; FRAMES_MAX + 1],
    /// Ordered by frame, the outermost first.
    checks: [Check; 2 * FRAMES_MAX],
    /// The steps of the present walk, innermost first.
    steps: [Step; FRAMES_MAX],
}

impl Walker {
    /// Returns the stack that starts with this frame.
    ///
    /// # Safety
    ///
    /// `frame` is a live frame of the calling thread: its return address is where the thread will
    /// continue. The walker is used by one thread at a time.
    #[inline(always)]
    pub unsafe fn capture(&mut self, frame: FrameRegisters, sink: &mut dyn Sink) -> StackId {
        self.walk::<true>(frame.slot, frame.return_address, frame.rbp, sink)
    }

    /// Resets the walker for another thread that takes it over, after its thread has ended.
    pub fn start_thread(&mut self) {
        self.own = OwnStack::default();
        self.forget();
    }

    /// Forgets the remembered stack, because a walk was interrupted and will not be continued.
    pub fn forget(&mut self) {
        (self.length, self.bases_length, self.checks_length) = (0, 0, 0);
    }

    /// Forgets everything that depends on announcements, because the latest stack could not be
    /// announced.
    pub fn forget_announced(&mut self) {
        self.forget();
        self.epoch = 0;
    }

    /// True if both addresses are on the thread's own stack, as far as it has been verified.
    pub fn is_own_stack(&self, one: u64, other: u64) -> bool {
        self.own.contains(one) && self.own.contains(other)
    }

    /// Returns the stack from this position on. A *fast* walk does not handle rare cases, so that
    /// it has few variables: if it meets one, it starts a walk that does.
    ///
    /// One long function, because it is the loop on the hottest path: its variables are in
    /// registers.
    #[inline(never)]
    fn walk<const FAST: bool>(
        &mut self,
        // Scalars, so that they are passed in registers.
        mut slot: u64,
        mut return_address: u64,
        mut rbp: u64,
        sink: &mut dyn Sink,
    ) -> StackId {
        let start = FrameRegisters { slot, return_address, rbp };
        let Some(cache) = rules::cache() else { return StackId::ROOT };
        if self.epoch != modules::epoch().wrapping_add(1) {
            self.start_epoch(sink);
        }
        let (mut stack, mut is_own) = self.own.stack_at(slot.wrapping_add(8));
        if !is_own {
            if FAST {
                return self.walk_slow(start, sink);
            }
            self.forget();
        }
        let mut candidate = self.intact(slot);
        let mut candidate_slot = self.frame(candidate).slot;
        let mut new = 0;
        // The number of the new frames that are not to be remembered.
        let mut not_remembered = 0;
        let mut uses_rbp = false;
        // True if a new frame is left by its frame pointer, without proof.
        let mut is_unproven = false;
        let kept = 'frames: loop {
            // The stack pointer grows outwards: skip remembered frames that lie further in.
            while candidate_slot < slot {
                candidate -= 1;
                candidate_slot = self.frame(candidate).slot;
            }
            if candidate_slot == slot
                && self.frame(candidate).return_address == return_address
                && self.base_fits(candidate, rbp)
            {
                break candidate;
            }
            if new == FRAMES_MAX {
                break FRAMES_MAX;
            }
            let mut bits = cache.bits(return_address);
            let rule = Rule::from_bits(bits as u32);
            self.set_step(new, Step { from: FrameRegisters { slot, return_address, rbp }, rule: bits });
            new += 1;
            slot = 'caller: {
                if bits < Rule::BY_RSP_END {
                    let above = slot.wrapping_add(rule.distance());
                    if stack.is_known_readable(above) {
                        break 'caller above;
                    }
                } else if bits < Rule::BY_RBP_END {
                    uses_rbp = true;
                    let above = rbp.wrapping_add_signed(rule.offset_from_rbp()).wrapping_sub(8);
                    // A wrong rbp may point anywhere.
                    let is_sound = above > slot && above & 7 == 0;
                    if is_sound && stack.is_known_readable(above) && stack.is_above_start(above - rule.saved()) {
                        break 'caller above;
                    }
                }
                if FAST {
                    return self.walk_slow(start, sink);
                }
                if bits >= 1 << Rule::BITS {
                    match self.compute(return_address, sink) {
                        Some(rule) => bits = u64::from(rule.bits()),
                        None => {
                            new -= 1;
                            break 'frames 0;
                        }
                    }
                    self.set_step(new - 1, Step { from: FrameRegisters { slot, return_address, rbp }, rule: bits });
                }
                uses_rbp = true;
                is_unproven |= Rule::from_bits(bits as u32).is_unproven();
                match step_out(FrameRegisters { slot, return_address, rbp }, Rule::from_bits(bits as u32), &mut stack) {
                    StepResult::Caller(caller) => FrameRegisters { slot, return_address, rbp } = caller,
                    StepResult::Interrupted(frame) => {
                        FrameRegisters { slot, return_address, rbp } = frame;
                        // The interrupted frame is not remembered either, because no word of the
                        // stack leads there.
                        not_remembered = new + 1;
                        is_own &= stack.starts_at(start.slot.wrapping_add(8));
                    }
                    StepResult::End => break 'frames 0,
                    StepResult::Lost => {
                        if bits == u64::from(Rule::NOT_CODE.bits()) && self.is_unproven_step(new.wrapping_sub(2)) {
                            // The frame pointer of the frame before was none: nothing is known
                            // beyond that frame.
                            self.incomplete.lost += 1;
                            new -= 1;
                            self.forget_words(new - 1);
                            break 'frames 0;
                        }
                        // At the beginning of a thread's stack no frame has a caller: this is the
                        // dynamic linker's start.
                        self.incomplete.lost += u64::from(slot.wrapping_add(8) != bounds::first_top());
                        // With a wrong rbp the rule names words anywhere, which `intact` must not
                        // read.
                        let rule = u64::from(Rule::from_bits(bits as u32).without_words().bits());
                        self.set_step(new - 1, Step { from: FrameRegisters { slot, return_address, rbp }, rule });
                        break 'frames 0;
                    }
                }
                continue 'frames;
            };
            // SAFETY: covered: words of the stack above the start of the walk. Rules by rsp name
            // words of their own frame.
            let saved = unsafe { stack.read(slot.wrapping_sub(rule.saved())) };
            rbp = select_unpredictable(rule.saved() == 0, rbp, saved);
            // SAFETY: `slot` is covered too: `is_known_readable` returned true for it.
            return_address = unsafe { stack.read(slot) };
        };
        let is_too_deep = kept + new > self.frames_counted && !self.count_frames(kept + new);
        if is_too_deep || (self.is_truncated && kept > 0 && kept + new < FRAMES_MIN) {
            return self.walk_again(start, kept, new, sink);
        }
        self.is_truncated &= kept > 0;
        if uses_rbp || self.needs_base(kept) {
            self.note_bases(kept, new, rbp);
        } else {
            self.bases_length = self.bases_length.min(kept);
            self.drop_checks(kept);
        }
        let id = if !FAST && is_unproven {
            self.append::<true>(self.frame(kept).node, kept, new, sink)
        } else {
            self.append::<false>(self.frame(kept).node, kept, new, sink)
        };
        if !FAST && !is_own {
            // The frames of another stack cannot be checked later: the stack may be gone.
            self.forget();
        } else if !FAST && not_remembered > 0 {
            self.length = self.length.min((kept + new).saturating_sub(not_remembered));
            self.bases_length = self.bases_length.min(self.length);
        }
        id
    }

    #[cold]
    #[inline(never)]
    fn walk_slow(&mut self, start: FrameRegisters, sink: &mut dyn Sink) -> StackId {
        self.walk::<false>(start.slot, start.return_address, start.rbp, sink)
    }

    /// Walks a stack that has more frames than we can remember, or that was cut and of which too
    /// few frames are left.
    #[cold]
    #[inline(never)]
    fn walk_again(&mut self, start: FrameRegisters, kept: usize, new: usize, sink: &mut dyn Sink) -> StackId {
        self.forget();
        if kept > 0 && new < FRAMES_MAX {
            return self.walk_slow(start, sink);
        }
        // Keep the innermost frames, under a node that marks the cut.
        self.incomplete.truncated += 1;
        self.is_truncated = true;
        let node = tree::child(self.frame(0).node, NodeKind::Truncated, 1, sink);
        self.note_bases(0, FRAMES_KEPT, 0);
        self.append::<true>(node, 0, FRAMES_KEPT, sink)
    }

    /// True if the step with this index, if there is one, was by a frame pointer, without proof.
    fn is_unproven_step(&self, index: usize) -> bool {
        self.steps.get(index).is_some_and(|step| Rule::from_bits(step.rule as u32).is_unproven())
    }

    /// Makes a step one that has failed: the words that it has read mean nothing.
    fn forget_words(&mut self, index: usize) {
        let Step { from, rule } = *self.step(index);
        let rule = u64::from(Rule::from_bits(rule as u32).without_words().bits());
        self.set_step(index, Step { from, rule });
    }

    /// Returns the index of the innermost remembered frame that is above or at this slot and to
    /// which the stack still leads from the outside: all words between are unchanged. The word of a
    /// frame at the slot itself is not checked here, because the walk compares it.
    #[inline(always)]
    fn intact(&self, slot: u64) -> usize {
        let mut innermost = self.length;
        while self.frame(innermost).slot < slot {
            innermost -= 1;
        }
        let last = innermost - usize::from(self.frame(innermost).slot == slot);
        let mut intact = 'intact: {
            let mut next = 1;
            // Four at a time: in deep stacks most frames are unchanged.
            while next + 3 <= last {
                if !self.is_unchanged(next) {
                    break 'intact next - 1;
                }
                if !self.is_unchanged(next + 1) {
                    break 'intact next;
                }
                if !self.is_unchanged(next + 2) {
                    break 'intact next + 1;
                }
                if !self.is_unchanged(next + 3) {
                    break 'intact next + 2;
                }
                next += 4;
            }
            while next <= last {
                if !self.is_unchanged(next) {
                    break 'intact next - 1;
                }
                next += 1;
            }
            innermost
        };
        for index in 0..self.checks_length {
            let Check { frame, address, value } = *self.check(index);
            if frame >= intact {
                break;
            }
            // SAFETY: `read` requires a mapped word. A step that succeeded has read it on this
            // thread's own stack, which stays mapped; of one that failed no word is noted.
            if unsafe { read(address) } != value {
                intact = frame;
            }
        }
        intact
    }

    /// True if the word that leads into a remembered frame is unchanged.
    #[inline(always)]
    fn is_unchanged(&self, index: usize) -> bool {
        let &Frame { slot, return_address, .. } = self.frame(index);
        // SAFETY: the word was covered by the verified bounds of this thread's own stack when it
        // was remembered, and a thread's own stack stays mapped. Its content may be anything.
        unsafe { read(slot) == return_address }
    }

    #[inline(always)]
    fn needs_base(&self, index: usize) -> bool {
        index <= self.bases_length && self.base(index).is_needed
    }

    #[inline(always)]
    fn base_fits(&self, index: usize, rbp: u64) -> bool {
        !self.needs_base(index) || self.base(index).rbp == rbp
    }

    /// Removes the checks of the steps into frames from this index on, because new frames lead
    /// there now.
    #[inline(always)]
    fn drop_checks(&mut self, from: usize) {
        while self.checks_length > 0 && self.check(self.checks_length - 1).frame >= from {
            self.checks_length -= 1;
        }
    }

    /// Records the use of rbp by the new frames inside of the first `kept`; `rbp` is the last kept
    /// frame's.
    #[inline(never)]
    fn note_bases(&mut self, kept: usize, new: usize, rbp: u64) {
        if let Some(bases) = self.bases.get_mut(self.bases_length + 1..=kept) {
            bases.fill(Base { rbp: 0, is_needed: false });
        }
        self.drop_checks(kept);
        let mut is_needed = kept > 0 && self.base(kept).is_needed;
        let (mut slot, mut rbp) = (self.frame(kept).slot, rbp);
        for index in (0..new).rev() {
            let caller = kept + new - 1 - index;
            let Step { from, rule } = *self.step(index);
            let uses = Rule::from_bits(rule as u32).uses(from.rbp);
            if let Some(address) = uses.cfa_at {
                self.add_check(Check { frame: caller, address, value: slot.wrapping_add(8) });
            }
            let saved_at = match uses.saved {
                Saved::Nowhere => None,
                Saved::BelowReturnAddress(distance) => Some(slot.wrapping_sub(distance)),
                Saved::At(address) => Some(address),
            };
            if let Some(address) = saved_at {
                if is_needed {
                    self.add_check(Check { frame: caller, address, value: rbp });
                }
                is_needed = false;
            }
            is_needed |= uses.rbp;
            (slot, rbp) = (from.slot, from.rbp);
            if let Some(base) = self.bases.get_mut(caller + 1) {
                *base = Base { rbp, is_needed };
            }
        }
        self.bases_length = kept + new;
        if self.bases_length > self.bases_counted {
            // Checks take a page or two in addition, whatever the depth.
            let first = if self.bases_counted == 0 { 2 * PAGE } else { 0 };
            let counted = self.bases_length.next_multiple_of(FRAMES_COUNTED);
            let bases = (counted - self.bases_counted) * size_of::<Base>();
            BYTES.fetch_add(first + bases as u64, Ordering::Relaxed);
            self.bases_counted = counted;
        }
    }

    /// Counts the memory for stacks of this depth. False if the depth exceeds the limit.
    #[cold]
    #[inline(never)]
    fn count_frames(&mut self, depth: usize) -> bool {
        if depth > FRAMES_MAX {
            return false;
        }
        let counted = depth.next_multiple_of(FRAMES_COUNTED);
        let bytes = (counted - self.frames_counted) * (size_of::<Frame>() + size_of::<Step>());
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
        self.frames_counted = counted;
        true
    }

    fn add_check(&mut self, check: Check) {
        // There is room for two checks for each frame.
        if let Some(to) = self.checks.get_mut(self.checks_length) {
            *to = check;
            self.checks_length += 1;
        }
    }

    /// Remembers the new frames inside of the first `kept`, under this place, and gives each its
    /// node. With `MARKS`, the nodes say which frames were left without proof.
    #[inline(always)]
    fn append<const MARKS: bool>(
        &mut self,
        mut node: NodeRef,
        kept: usize,
        new: usize,
        sink: &mut dyn Sink,
    ) -> StackId {
        let Some(mut tree) = View::now() else { return StackId::ROOT };
        let length = kept + new;
        let mut hash = node.hash();
        for step in (0..new).rev() {
            let Step { from: FrameRegisters { slot, return_address, .. }, rule } = *self.step(step);
            let is_unproven = MARKS && Rule::from_bits(rule as u32).is_unproven();
            let kind = if is_unproven { NodeKind::UnprovenFrame } else { NodeKind::Frame };
            (node, hash) = tree.child(node, hash, kind, return_address.wrapping_sub(1), sink);
            self.set_frame(length - step, Frame { slot, return_address, node });
        }
        self.length = length;
        if tree.is_full() {
            self.fold(kept, node);
        }
        node.id()
    }

    /// Handles a tree that did not take all new frames: those without a node of their own are not
    /// remembered, so that each stack that loses them is reported.
    #[cold]
    #[inline(never)]
    fn fold(&mut self, kept: usize, node: NodeRef) {
        while self.length > kept && self.frame(self.length - 1).node == node {
            self.length -= 1;
        }
        self.bases_length = self.bases_length.min(self.length);
    }

    #[cold]
    #[inline(never)]
    fn start_epoch(&mut self, sink: &mut dyn Sink) {
        let epoch = modules::epoch();
        self.forget();
        let root = tree::root(epoch, sink);
        if let Some(beyond) = self.frames.first_mut() {
            *beyond = Frame { slot: u64::MAX, return_address: 0, node: root };
        }
        self.epoch = epoch.wrapping_add(1);
    }

    /// Returns the rule of a return address that is not in the cache; `None` if it is not a valid
    /// address: 0 marks the end of a stack.
    #[cold]
    #[inline(never)]
    fn compute(&mut self, return_address: u64, sink: &mut dyn Sink) -> Option<Rule> {
        /// The end of the addresses that programs can have.
        const USER_END: u64 = 1 << 47;
        if return_address == 0 || return_address >= USER_END {
            self.incomplete.lost += u64::from(return_address != 0);
            return None;
        }
        Some(eh_frame::compute(return_address, sink).unwrap_or(Rule::UNSUPPORTED))
    }

    #[inline(always)]
    fn frame(&self, index: usize) -> &Frame {
        debug_assert!(index <= FRAMES_MAX);
        // SAFETY: callers pass indices up to `length`, which is at most `FRAMES_MAX`.
        unsafe { self.frames.get_unchecked(index) }
    }

    #[inline(always)]
    fn set_frame(&mut self, index: usize, frame: Frame) {
        debug_assert!(index <= FRAMES_MAX);
        // SAFETY: the walk has checked that it has at most `FRAMES_MAX` frames.
        unsafe { *self.frames.get_unchecked_mut(index) = frame };
    }

    #[inline(always)]
    fn base(&self, index: usize) -> &Base {
        debug_assert!(index <= FRAMES_MAX);
        // SAFETY: callers pass indices up to `bases_length`, which is at most `FRAMES_MAX`.
        unsafe { self.bases.get_unchecked(index) }
    }

    #[inline(always)]
    fn check(&self, index: usize) -> &Check {
        debug_assert!(index < self.checks_length);
        // SAFETY: callers pass indices below `checks_length`, which is at most the length of the
        // array.
        unsafe { self.checks.get_unchecked(index) }
    }

    #[inline(always)]
    fn step(&self, index: usize) -> &Step {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: callers pass indices below the number of steps of a walk, which is at most
        // `FRAMES_MAX`.
        unsafe { self.steps.get_unchecked(index) }
    }

    #[inline(always)]
    fn set_step(&mut self, index: usize, step: Step) {
        debug_assert!(index < FRAMES_MAX);
        // SAFETY: the walk has checked that `index` is below `FRAMES_MAX`.
        unsafe { *self.steps.get_unchecked_mut(index) = step };
    }
}

/// Reads a word of the stack.
///
/// # Safety
///
/// The address is readable and a multiple of 8.
#[inline(always)]
unsafe fn read(address: u64) -> u64 {
    // SAFETY: `read_volatile` requires a readable, aligned address; this function's `# Safety`
    // requires the same of `address`.
    unsafe { ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
}
