//! The objects that the dynamic linker has mapped since it last began to.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::{LinkMap, Objects, RDebug, Symbols};

/// The dynamic linker's list of the program's objects, for debuggers.
#[derive(Debug)]
pub struct LinkerEvents {
    debug: AtomicPtr<RDebug>,
    /// The last object of the list when the linker had last mapped or unmapped any. New ones come
    /// behind it. (Some versions of glibc add the first new one before they say that they begin.)
    last: AtomicPtr<LinkMap>,
}

/// An object that has just been mapped: none of its code has run, and it has not been relocated.
#[derive(Clone, Copy, Debug)]
pub struct MappedObject<'kept> {
    /// The path by which it was loaded.
    pub path: &'kept CStr,
    /// The distance of its addresses from those of its file.
    pub bias: u64,
    /// An address inside of it: that of its dynamic section.
    pub address: u64,
}

impl LinkerEvents {
    /// Returns the state before [`LinkerEvents::find`].
    pub const fn new() -> LinkerEvents {
        LinkerEvents { debug: AtomicPtr::new(ptr::null_mut()), last: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Finds the dynamic linker's list. Returns the address of the function that the linker calls
    /// when the list changes (`r_brk`), which is to call [`LinkerEvents::mapped`]; 0 if there is
    /// none.
    pub fn find(&self, objects: &Objects<'_>) -> u64 {
        // The program may have a copy of the symbol of its own, which does not change.
        let debug = objects.linker().and_then(Symbols::of).and_then(|symbols| symbols.find(c"_r_debug")).unwrap_or(0);
        let debug = ptr::with_exposed_provenance_mut::<RDebug>(debug);
        self.debug.store(debug, Ordering::Relaxed);
        // SAFETY: `as_ref` requires null or a live structure: the dynamic linker's own, which it
        // fills in before any object's code runs. It is changed by threads that load objects, which
        // by the contract of `objects` none does now.
        let Some(debug) = (unsafe { debug.as_ref() }) else { return 0 };
        self.note_last(objects, debug.map);
        debug.breakpoint
    }

    fn note_last(&self, objects: &Objects<'_>, first: *const LinkMap) {
        let last = objects.iter_from(first).last().map_or(ptr::null(), ptr::from_ref);
        self.last.store(last.cast_mut(), Ordering::Relaxed);
    }

    /// Calls `visit` with each object that has been mapped since the last call, in the order of the
    /// list, when the linker says that all are mapped. At its other calls, nothing.
    ///
    /// # Safety
    ///
    /// The dynamic linker calls `r_brk` in this thread, with its lock of loading held, and no call
    /// has been left out since [`LinkerEvents::find`].
    pub unsafe fn mapped(&self, mut visit: impl FnMut(MappedObject<'_>)) {
        const RT_CONSISTENT: i32 = 0;
        let debug = self.debug.load(Ordering::Relaxed).cast_const();
        if debug.is_null() {
            return;
        }
        // SAFETY: the dynamic linker's own structure. This thread holds the lock under which it is
        // changed, or is the first one.
        let (state, first) = unsafe { ((&raw const (*debug).state).read_volatile(), (*debug).map) };
        if state != RT_CONSISTENT {
            return;
        }
        // SAFETY: `at_start` requires that nobody loads or unloads an object meanwhile: this thread
        // holds the lock of loading, by this function's `# Safety`.
        let objects = unsafe { Objects::at_start() };
        let last = self.last.load(Ordering::Relaxed).cast_const();
        // If the last one has just been unmapped, nothing has been mapped.
        let new = objects.iter_from(first).skip_while(|object| !ptr::eq(*object, last)).skip(1);
        for object in new.filter(|object| !object.name.is_null()) {
            visit(MappedObject {
                // SAFETY: `l_name` is a NUL-terminated string that lives as long as the entry; it
                // was just found not to be null.
                path: unsafe { CStr::from_ptr(object.name) },
                bias: object.bias,
                address: object.dynamic.addr() as u64,
            });
        }
        self.note_last(&objects, first);
    }

    /// True if an object with this distance of its addresses from those of its file is mapped, and
    /// `is_it` says so, given the path by which it was loaded.
    ///
    /// # Safety
    ///
    /// See [`LinkerEvents::mapped`].
    pub unsafe fn has_object(&self, bias: u64, mut is_it: impl FnMut(&CStr) -> bool) -> bool {
        let debug = self.debug.load(Ordering::Relaxed).cast_const();
        // SAFETY: `as_ref` requires null or a live structure: the dynamic linker's own. This thread
        // holds the lock under which it is changed.
        let Some(debug) = (unsafe { debug.as_ref() }) else { return false };
        // SAFETY: `at_start` requires that nobody loads or unloads an object meanwhile: this thread
        // holds the lock of loading, by this function's `# Safety`.
        let objects = unsafe { Objects::at_start() };
        let mut there = objects.iter_from(debug.map).filter(|object| object.bias == bias && !object.name.is_null());
        // SAFETY: `l_name` is a NUL-terminated string that lives as long as the entry; it was just
        // found not to be null.
        there.any(|object| is_it(unsafe { CStr::from_ptr(object.name) }))
    }
}

impl Default for LinkerEvents {
    fn default() -> LinkerEvents {
        LinkerEvents::new()
    }
}
