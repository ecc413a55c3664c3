//! The arenas of the process, by their ids.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::sample::Random;

use super::{MAIN, Settings, SharedArena};
use crate::arch::{thread_pointer, ticks};
use crate::base;
use crate::fatal;
use crate::locked::Locked;

/// The number of lists of arenas, a power of two.
const BUCKETS: usize = 64;

/// The links of an arena's description.
#[derive(Debug)]
pub(crate) struct Links {
    /// The next one of all descriptions. Written once, before the description is in the list.
    all: Cell<Option<&'static SharedArena>>,
    /// The next one in a bucket, or of the unused ones. Accessed under the registry's lock.
    next: Cell<Option<&'static SharedArena>>,
}

impl Links {
    pub(crate) const fn new() -> Links {
        Links { all: Cell::new(None), next: Cell::new(None) }
    }
}

/// The arenas of the process.
#[derive(Debug)]
pub(crate) struct Registry {
    buckets: [Option<&'static SharedArena>; BUCKETS],
    /// Descriptions that no arena has.
    unused: Option<&'static SharedArena>,
    random: Option<Random>,
}

/// The arenas but the main one. Locked first.
pub(crate) static REGISTRY: Locked<Registry> =
    Locked::new(Registry { buckets: [None; BUCKETS], unused: None, random: None });

/// The first of all descriptions, which are never freed.
static ALL: AtomicPtr<SharedArena> = AtomicPtr::new(ptr::null_mut());

impl Registry {
    fn bucket(&mut self, id: u64) -> &mut Option<&'static SharedArena> {
        &mut self.buckets[id as usize % BUCKETS]
    }

    fn find(&mut self, id: u64) -> Option<&'static SharedArena> {
        let mut next = *self.bucket(id);
        while let Some(arena) = next.filter(|arena| arena.id() != id) {
            next = arena.links.next.get();
        }
        next
    }

    fn remove(&mut self, id: u64) -> Option<&'static SharedArena> {
        let arena = self.find(id)?;
        let behind = arena.links.next.take();
        let first = self.bucket(id);
        match *first {
            Some(other) if !ptr::eq(other, arena) => {
                let mut before = other;
                while let Some(next) = before.links.next.get().filter(|next| !ptr::eq(*next, arena)) {
                    before = next;
                }
                before.links.next.set(behind);
            }
            _ => *first = behind,
        }
        Some(arena)
    }

    /// Returns an id that no arena has.
    fn new_id(&mut self) -> u64 {
        loop {
            let random = self.random.get_or_insert_with(|| {
                // The addresses are random themselves, as the system places mappings.
                let places = (&raw const REGISTRY).addr() as u64 ^ (thread_pointer() as u64).rotate_left(32);
                Random::new(ticks() ^ places)
            });
            let id = random.word();
            if id != 0 && id != MAIN.id() && self.find(id).is_none() {
                return id;
            }
        }
    }

    fn description(&mut self) -> Option<&'static SharedArena> {
        if let Some(arena) = self.unused {
            self.unused = arena.links.next.take();
            return Some(arena);
        }
        let memory = ptr::NonNull::new(base::allocate(size_of::<SharedArena>()))?.cast::<SharedArena>();
        // SAFETY: `write` and `as_ref` demand memory of that size, aligned, that nobody else uses:
        // that of the base allocator is aligned to 64, and never freed.
        let arena: &'static SharedArena = unsafe {
            memory.write(SharedArena::new());
            memory.as_ref()
        };
        // SAFETY: `as_ref` demands null or a valid description: only such are stored below.
        arena.links.all.set(unsafe { ALL.load(Ordering::Relaxed).as_ref() });
        // Release: a thread that visits all sees the description's content.
        ALL.store(memory.as_ptr(), Ordering::Release);
        Some(arena)
    }
}

/// Creates an arena. `None` if there is no memory.
pub(crate) fn create(settings: &Settings) -> Option<&'static SharedArena> {
    REGISTRY.with(|registry| {
        let arena = registry.description()?;
        let id = registry.new_id();
        // SAFETY: `begin` demands a description that no arena has, and this lock.
        unsafe { arena.begin(id, settings) };
        let first = registry.bucket(id);
        arena.links.next.set(first.replace(arena));
        Some(arena)
    })
}

/// Returns the arena with an id.
pub(crate) fn find(id: u64) -> Option<&'static SharedArena> {
    match id {
        0 => None,
        _ if id == MAIN.id() => Some(&MAIN),
        _ => REGISTRY.with(|registry| registry.find(id)),
    }
}

/// Returns an arena that a condition holds for, but not the main one.
pub(crate) fn find_where(is_it: &dyn Fn(&SharedArena) -> bool) -> Option<&'static SharedArena> {
    REGISTRY.with(|registry| {
        registry.buckets.iter().find_map(|&first| {
            let mut next = first;
            while let Some(arena) = next.filter(|arena| !is_it(arena)) {
                next = arena.links.next.get();
            }
            next
        })
    })
}

/// Takes an arena out of the registry.
pub(crate) fn remove(id: u64) -> Option<&'static SharedArena> {
    REGISTRY.with(|registry| registry.remove(id))
}

/// Makes the description of an arena that has ended available to another one.
pub(crate) fn reuse(arena: &'static SharedArena) {
    REGISTRY.with(|registry| arena.links.next.set(registry.unused.replace(arena)));
}

#[cold]
pub(crate) fn abort_unknown(id: u64) -> ! {
    fatal::abort_with(format_args!("no arena has the id {id:#x}, or it was disposed of"))
}

/// Returns the id of the main arena.
pub(crate) fn main_id() -> u64 {
    match MAIN.id() {
        0 => REGISTRY.with(|registry| {
            if MAIN.id() == 0 {
                MAIN.set_main_id(registry.new_id());
            }
            MAIN.id()
        }),
        id => id,
    }
}

/// Calls a function with all arenas, the main one first. Some may have been disposed of.
pub(crate) fn for_each(mut visit: impl FnMut(&'static SharedArena)) {
    visit(&MAIN);
    // SAFETY: `as_ref` demands null or a valid description: `description` stores those.
    let mut next = unsafe { ALL.load(Ordering::Acquire).as_ref() };
    while let Some(arena) = next {
        visit(arena);
        next = arena.links.all.get();
    }
}
