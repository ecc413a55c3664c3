//! The list behind the hook table: entries of a fixed number of slots, in order, walked without a lock.
//!
//! An entry keeps its slot, and its place in the order, for ever. So links always lead to a later place: whoever stands on
//! an entry that is removed just now, or removed and installed again, goes on to those behind it, and meets none twice.
//! An entry is written once, before the first link to it. `model` tries this.

mod sync;

use core::mem::MaybeUninit;
use core::ptr;

use super::Error;
use sync::{AtomicBool, AtomicPtr, Cell, Lock, Ordering};

/// A list of at most `N` different entries.
pub(super) struct List<T: Copy + 'static, const N: usize> {
    /// The first entry that is linked.
    first: AtomicPtr<Slot<T>>,
    slots: [Slot<T>; N],
    state: Cell<State>,
    /// Held by whoever changes the list, or looks at `state` or at a `place`.
    lock: Lock,
}

/// An entry.
pub(super) struct Slot<T: Copy + 'static> {
    /// The next entry that is linked; kept up to date where this one no longer is.
    next: AtomicPtr<Slot<T>>,
    value: Cell<MaybeUninit<T>>,
    /// Whether it is installed. One that is not may still be linked, for what it serves on.
    is_active: AtomicBool,
    place: Cell<Place>,
}

#[derive(Clone, Copy)]
struct State {
    /// Slots that have been given.
    taken: usize,
    /// Whether nothing is to be found from the beginning of the list.
    is_held: bool,
}

#[derive(Clone, Copy)]
struct Place {
    /// The address by which the entry is known.
    identity: *const (),
    order: i32,
    is_linked: bool,
}

// SAFETY: `state` and `place` are used under the lock. A `value` is written under it, before the first link to its slot
// is stored with Release, and only read under it, or after a link has been loaded with Acquire.
unsafe impl<T: Copy + Send + Sync, const N: usize> Sync for List<T, N> {}
// SAFETY: as above.
unsafe impl<T: Copy + Send + Sync> Sync for Slot<T> {}

impl<T: Copy + 'static, const N: usize> List<T, N> {
    /// Adds an entry. `lead` is called before it can be found, with the number of its slot; `then` before the lock is
    /// given back, with whether anything can be found now.
    pub(super) fn install(
        &'static self,
        identity: *const (),
        order: i32,
        value: T,
        lead: impl FnOnce(usize),
        then: impl FnOnce(bool),
    ) -> Result<(), Error> {
        let _guard = self.lock.lock();
        let index = match self.find(identity) {
            Some(index) => index,
            None => self.take(identity, order, value)?,
        };
        let slot = &self.slots[index];
        if slot.is_active.load(Ordering::Relaxed) {
            return Err(Error::AlreadyInstalled);
        }
        lead(index);
        slot.is_active.store(true, Ordering::Release);
        self.link(index, true);
        then(self.first().is_some());
        Ok(())
    }

    /// Removes an entry. One of which `serves_on` says so stays linked, not active.
    pub(super) fn remove(
        &'static self,
        identity: *const (),
        serves_on: impl FnOnce(&T) -> bool,
        then: impl FnOnce(bool),
    ) -> Result<(), Error> {
        let _guard = self.lock.lock();
        let index = self.find(identity).ok_or(Error::NotInstalled)?;
        let slot = &self.slots[index];
        if !slot.is_active.load(Ordering::Relaxed) {
            return Err(Error::NotInstalled);
        }
        slot.is_active.store(false, Ordering::Release);
        if !serves_on(slot.value()) {
            self.link(index, false);
            then(self.first().is_some());
        }
        Ok(())
    }

    /// From now on nothing is found from the beginning of the list.
    pub(super) fn hold(&'static self) {
        let _guard = self.lock.lock();
        self.set_state(State { is_held: true, ..self.state() });
        self.first.store(ptr::null_mut(), Ordering::Release);
    }

    /// Ends what [`List::hold`] began.
    pub(super) fn release(&'static self, then: impl FnOnce(bool)) {
        let _guard = self.lock.lock();
        self.set_state(State { is_held: false, ..self.state() });
        self.first.store(self.next_linked(None), Ordering::Release);
        then(self.first().is_some());
    }

    /// The first entry.
    #[inline(always)]
    pub(super) fn first(&'static self) -> Option<&'static Slot<T>> {
        // SAFETY: null, or a slot of this list, which is static.
        unsafe { self.first.load(Ordering::Acquire).as_ref() }
    }

    /// The entry behind that in the slot with this number; the first one where there is no such slot.
    pub(super) fn after(&'static self, index: usize) -> Option<&'static Slot<T>> {
        match self.slots.get(index) {
            Some(slot) => slot.next(),
            None => self.first(),
        }
    }

    /// The slot of an entry that was installed before. Under the lock.
    fn find(&self, identity: *const ()) -> Option<usize> {
        (0..self.state().taken).find(|&index| ptr::eq(self.place(index).identity, identity))
    }

    /// Gives a new entry a slot. Under the lock.
    fn take(&self, identity: *const (), order: i32, value: T) -> Result<usize, Error> {
        let index = self.state().taken;
        let slot = self.slots.get(index).ok_or(Error::Full)?;
        // SAFETY: under the lock; there is no link to a slot that was not taken.
        unsafe {
            slot.value.set(MaybeUninit::new(value));
            slot.place.set(Place { identity, order, is_linked: false });
        }
        self.set_state(State { taken: index + 1, ..self.state() });
        Ok(index)
    }

    /// Links a slot, or takes the links to it away. Under the lock.
    ///
    /// Its own link comes first: so it leads on before anything leads to it. The others in any order: each leads to a later
    /// place at every moment.
    fn link(&self, index: usize, is_linked: bool) {
        // SAFETY: under the lock.
        unsafe { self.slots[index].place.set(Place { is_linked, ..self.place(index) }) };
        let State { taken, is_held } = self.state();
        for from in core::iter::once(index).chain((0..taken).filter(|&from| from != index)) {
            self.slots[from].next.store(self.next_linked(Some(from)), Ordering::Release);
        }
        if !is_held {
            self.first.store(self.next_linked(None), Ordering::Release);
        }
    }

    /// The linked slot with the smallest place behind that of a slot, or of all. Under the lock.
    fn next_linked(&self, from: Option<usize>) -> *mut Slot<T> {
        let key = |index: usize| (self.place(index).order, index);
        let next = (0..self.state().taken)
            .filter(|&index| self.place(index).is_linked)
            .filter(|&index| from.is_none_or(|from| key(index) > key(from)))
            .min_by_key(|&index| key(index));
        next.map_or(ptr::null_mut(), |index| ptr::from_ref(&self.slots[index]).cast_mut())
    }

    /// Under the lock.
    fn state(&self) -> State {
        // SAFETY: under the lock.
        unsafe { *self.state.get() }
    }

    /// Under the lock.
    fn set_state(&self, state: State) {
        // SAFETY: under the lock.
        unsafe { self.state.set(state) };
    }

    /// Under the lock.
    fn place(&self, index: usize) -> Place {
        // SAFETY: under the lock.
        unsafe { *self.slots[index].place.get() }
    }
}

impl<T: Copy + 'static> Slot<T> {
    /// What was installed.
    #[inline(always)]
    pub(super) fn value(&'static self) -> &'static T {
        // SAFETY: slots are handed out through links only, and `remove` has found one that was taken: the value was written
        // before (see `List`), and never since.
        unsafe { self.value.get().assume_init_ref() }
    }

    /// The entry behind this one.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&'static Slot<T>> {
        // SAFETY: null, or a slot of the same list, which is static.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// Whether it is installed, and not only serving on.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }
}

#[cfg(not(all(test, loom)))]
impl<T: Copy + 'static, const N: usize> List<T, N> {
    /// An empty list.
    pub(super) const fn new() -> List<T, N> {
        let slots = [const { Slot::new() }; N];
        let state = Cell::new(State { taken: 0, is_held: false });
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
            place: Cell::new(Place { identity: ptr::null(), order: 0, is_linked: false }),
        }
    }
}

/// Loom's parts are not made in constants.
#[cfg(all(test, loom))]
impl<T: Copy + 'static, const N: usize> List<T, N> {
    pub(super) fn new() -> List<T, N> {
        let slot = |_| Slot {
            next: AtomicPtr::new(ptr::null_mut()),
            value: Cell::new(MaybeUninit::uninit()),
            is_active: AtomicBool::new(false),
            place: Cell::new(Place { identity: ptr::null(), order: 0, is_linked: false }),
        };
        let state = Cell::new(State { taken: 0, is_held: false });
        List { first: AtomicPtr::new(ptr::null_mut()), slots: core::array::from_fn(slot), state, lock: Lock::new() }
    }
}
