//! The list behind the hook table: entries in a fixed number of slots, in order, walked without a
//! lock.
//!
//! An entry keeps its slot, and its position in the order, for ever. So links always lead to a
//! later position: a call that is in an entry which is removed just then, or removed and installed
//! again, goes on to later entries, and meets none twice. `model` tests this.
//!
//! The unsafe code here rests on two rules:
//!
//! - **Locked**: `state` and every `position` are accessed only while the list's lock is held, by
//!   code of this module. Its private functions that do so say that the lock must be held; all
//!   their callers hold the guard, or say the same.
//! - **Written once**: a `value` is written once, under the lock, before the first link to its slot
//!   is stored with Release. It is read under the lock, or through a link that was loaded with
//!   Acquire.

mod sync;

use core::mem::MaybeUninit;
use core::ptr;

use super::HookError;
use sync::{AtomicBool, AtomicPtr, Cell, Lock, Ordering};

/// A list of at most `N` different entries.
pub(super) struct List<T: Copy + 'static, const N: usize> {
    /// The first entry that is linked.
    first: AtomicPtr<Slot<T>>,
    slots: [Slot<T>; N],
    state: Cell<State>,
    /// Held while the list is changed, and while `state` or a `position` is read.
    lock: Lock,
}

/// An entry.
pub(super) struct Slot<T: Copy + 'static> {
    /// The next entry that is linked; kept up to date even if this entry is not linked itself.
    next: AtomicPtr<Slot<T>>,
    value: Cell<MaybeUninit<T>>,
    /// True while the entry is installed. An entry that is not may still be linked, to handle its
    /// own blocks.
    is_active: AtomicBool,
    position: Cell<Position>,
}

#[derive(Clone, Copy)]
struct State {
    /// The number of slots in use.
    used: usize,
    /// True while nothing is to be found from the beginning of the list.
    is_held: bool,
}

#[derive(Clone, Copy)]
struct Position {
    /// The address that identifies the entry.
    identity: *const (),
    order: i32,
    is_linked: bool,
}

// SAFETY: all fields but the cells are `Sync`. `state` and `position` are accessed by one thread at
// a time, by the rule "locked". No `value` is written while others may read it, by the rule
// "written once"; a `T` is sent to other threads and shared with them, as `Send` and `Sync` allow.
unsafe impl<T: Copy + Send + Sync, const N: usize> Sync for List<T, N> {}
// SAFETY: slots exist in a `List` only, whose rules apply to them: `position` is accessed under its
// lock, by "locked", and `value` is not written while others may read it, by "written once".
unsafe impl<T: Copy + Send + Sync> Sync for Slot<T> {}

impl<T: Copy + 'static, const N: usize> List<T, N> {
    /// Adds an entry. `prepare` is called with the number of its slot before it can be found;
    /// `on_change` is called before the lock is released, with true if anything can be found now.
    pub(super) fn install(
        &'static self,
        identity: *const (),
        order: i32,
        value: T,
        prepare: impl FnOnce(usize),
        on_change: impl FnOnce(bool),
    ) -> Result<(), HookError> {
        let _guard = self.lock.lock();
        let index = match self.find(identity) {
            Some(index) => index,
            None => self.allocate_slot(identity, order, value)?,
        };
        let slot = &self.slots[index];
        if slot.is_active.load(Ordering::Relaxed) {
            return Err(HookError::AlreadyInstalled);
        }
        prepare(index);
        slot.is_active.store(true, Ordering::Release);
        self.link(index, true);
        on_change(self.first().is_some());
        Ok(())
    }

    /// Removes an entry. If `stays_linked` returns true for it, it stays linked but is not active.
    pub(super) fn remove(
        &'static self,
        identity: *const (),
        stays_linked: impl FnOnce(&T) -> bool,
        on_change: impl FnOnce(bool),
    ) -> Result<(), HookError> {
        let _guard = self.lock.lock();
        let index = self.find(identity).ok_or(HookError::NotInstalled)?;
        let slot = &self.slots[index];
        if !slot.is_active.load(Ordering::Relaxed) {
            return Err(HookError::NotInstalled);
        }
        slot.is_active.store(false, Ordering::Release);
        if !stays_linked(slot.value()) {
            self.link(index, false);
            on_change(self.first().is_some());
        }
        Ok(())
    }

    /// Hides all entries from walks that begin from now on, until [`List::release`].
    pub(super) fn hold(&'static self) {
        let _guard = self.lock.lock();
        self.set_state(State { is_held: true, ..self.state() });
        self.first.store(ptr::null_mut(), Ordering::Release);
    }

    /// Ends [`List::hold`].
    pub(super) fn release(&'static self, on_change: impl FnOnce(bool)) {
        let _guard = self.lock.lock();
        self.set_state(State { is_held: false, ..self.state() });
        self.first.store(self.next_linked(None), Ordering::Release);
        on_change(self.first().is_some());
    }

    /// Returns the first entry.
    #[inline(always)]
    pub(super) fn first(&'static self) -> Option<&'static Slot<T>> {
        // SAFETY: `first` is null, or the address of one of `slots`, which `next_linked` has taken
        // from this static list. Slots change in their atomics and cells only.
        unsafe { self.first.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the entry after the one in the slot with this number; the first entry if there is no
    /// such slot.
    pub(super) fn after(&'static self, index: usize) -> Option<&'static Slot<T>> {
        match self.slots.get(index) {
            Some(slot) => slot.next(),
            None => self.first(),
        }
    }

    /// Returns the slot of an entry that was installed before. The lock must be held.
    fn find(&self, identity: *const ()) -> Option<usize> {
        (0..self.state().used).find(|&index| ptr::eq(self.position(index).identity, identity))
    }

    /// Gives a new entry a slot. The lock must be held.
    fn allocate_slot(&self, identity: *const (), order: i32, value: T) -> Result<usize, HookError> {
        let index = self.state().used;
        let slot = self.slots.get(index).ok_or(HookError::Full)?;
        // SAFETY: `Cell::set` demands that nobody reads or writes the cells meanwhile. The caller
        // holds the lock (rule "locked"), and others reach a slot's value through links only: to
        // this slot, which was not in use, there is none.
        unsafe {
            slot.value.set(MaybeUninit::new(value));
            slot.position.set(Position { identity, order, is_linked: false });
        }
        self.set_state(State { used: index + 1, ..self.state() });
        Ok(index)
    }

    /// Links a slot, or removes the links to it. The lock must be held.
    ///
    /// The slot's own link is stored first, so that the slot leads on before anything leads to it.
    /// The others may follow in any order: each leads to a later position at every moment.
    fn link(&self, index: usize, is_linked: bool) {
        // SAFETY: `Cell::set` demands that nobody reads or writes the cell meanwhile. The caller
        // holds the lock (rule "locked"), and `position` has returned a copy.
        unsafe { self.slots[index].position.set(Position { is_linked, ..self.position(index) }) };
        let State { used, is_held } = self.state();
        for from in core::iter::once(index).chain((0..used).filter(|&from| from != index)) {
            self.slots[from].next.store(self.next_linked(Some(from)), Ordering::Release);
        }
        if !is_held {
            self.first.store(self.next_linked(None), Ordering::Release);
        }
    }

    /// Returns the linked slot with the next position after that of a slot, or the first of all.
    /// The lock must be held.
    fn next_linked(&self, from: Option<usize>) -> *mut Slot<T> {
        let key = |index: usize| (self.position(index).order, index);
        let next = (0..self.state().used)
            .filter(|&index| self.position(index).is_linked)
            .filter(|&index| from.is_none_or(|from| key(index) > key(from)))
            .min_by_key(|&index| key(index));
        next.map_or(ptr::null_mut(), |index| ptr::from_ref(&self.slots[index]).cast_mut())
    }

    /// Reads the state. The lock must be held.
    fn state(&self) -> State {
        // SAFETY: `Cell::get` demands that nobody writes while its reference is in use: until the
        // state has been copied. The caller holds the lock, without which nobody writes ("locked").
        unsafe { *self.state.get() }
    }

    /// Writes the state. The lock must be held.
    fn set_state(&self, state: State) {
        // SAFETY: `Cell::set` demands that nobody reads or writes the cell meanwhile. The caller
        // holds the lock, without which nobody does ("locked"); `state` returns copies.
        unsafe { self.state.set(state) };
    }

    /// Reads the position of a slot. The lock must be held.
    fn position(&self, index: usize) -> Position {
        // SAFETY: `Cell::get` demands that nobody writes while its reference is in use: until the
        // position has been copied. The caller holds the lock, without which nobody writes
        // ("locked").
        unsafe { *self.slots[index].position.get() }
    }
}

impl<T: Copy + 'static> Slot<T> {
    /// Returns the installed value.
    #[inline(always)]
    pub(super) fn value(&'static self) -> &'static T {
        // SAFETY: the value must be initialised, and not written while the reference is in use.
        // Slots are handed out through links only, and `remove` finds only slots in use: the value
        // was written before, and is not written again, by the rule "written once".
        unsafe { self.value.get().assume_init_ref() }
    }

    /// Returns the entry after this one.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&'static Slot<T>> {
        // SAFETY: `next` is null, or the address of a slot of the same list, which `next_linked`
        // has taken from the static list. Slots change in their atomics and cells only.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// True if it is installed, and not only linked to handle its own blocks.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }
}

#[cfg(not(all(test, loom)))]
impl<T: Copy + 'static, const N: usize> List<T, N> {
    /// Returns an empty list.
    pub(super) const fn new() -> List<T, N> {
        let slots = [const { Slot::new() }; N];
        let state = Cell::new(State { used: 0, is_held: false });
        List { first: AtomicPtr::new(ptr::null_mut()), slots, state, lock: Lock::new() }
    }
}

#[cfg(not(all(test, loom)))]
impl<T: Copy + 'static> Slot<T> {
    const fn new() -> Slot<T> {
        Slot {
            next: AtomicPtr::new(ptr::null_mut()),
            value: Cell::new(MaybeUninit::uninit()),
            is_active: AtomicBool::new(false),
            position: Cell::new(Position { identity: ptr::null(), order: 0, is_linked: false }),
        }
    }
}

/// Loom's types have no constant constructors.
#[cfg(all(test, loom))]
impl<T: Copy + 'static, const N: usize> List<T, N> {
    pub(super) fn new() -> List<T, N> {
        let slot = |_| Slot {
            next: AtomicPtr::new(ptr::null_mut()),
            value: Cell::new(MaybeUninit::uninit()),
            is_active: AtomicBool::new(false),
            position: Cell::new(Position { identity: ptr::null(), order: 0, is_linked: false }),
        };
        let state = Cell::new(State { used: 0, is_held: false });
        List { first: AtomicPtr::new(ptr::null_mut()), slots: core::array::from_fn(slot), state, lock: Lock::new() }
    }
}
