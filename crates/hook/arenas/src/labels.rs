//! The labels of arenas: interned, since observers may refer to one for as long as the process
//! lives.

use core::cell::UnsafeCell;
use core::ffi::c_char;

use heapledger_core::context::Name;
use heapledger_core::lock::Lock;

use crate::forks;

/// The bytes of a label that are kept.
pub(crate) const LABEL_BYTES_MAX: usize = 127;
/// The number of different labels that a process can have.
const LABELS_MAX: usize = 1024;

/// An interned label: its text with a terminator, and the name made of it.
pub(crate) struct Label {
    text: [u8; LABEL_BYTES_MAX + 1],
    name: Option<Name>,
}

impl Label {
    /// Returns the text, with a terminator.
    pub(crate) const fn text(&self) -> *const c_char {
        self.text.as_ptr().cast()
    }

    /// Returns the text as a name.
    pub(crate) fn name(&'static self) -> &'static Name {
        static NONE: Name = Name::new("");
        self.name.as_ref().unwrap_or(&NONE)
    }
}

/// The labels, by the hash of their text. One that was written is never written again.
struct Labels(UnsafeCell<[Label; LABELS_MAX]>);

// SAFETY: `Sync` demands that shared use makes no data race. Labels are written under `LOCK`, each
// once, before the first reference to it is made; after that they are only read.
unsafe impl Sync for Labels {}

static LABELS: Labels =
    Labels(UnsafeCell::new([const { Label { text: [0; LABEL_BYTES_MAX + 1], name: None } }; LABELS_MAX]));
static LOCK: Lock = Lock::new();

/// The label of an arena that was given none.
static UNLABELLED: Label = fixed("(no label)");
/// The label of arenas beyond the limit of different ones.
static OTHER: Label = fixed("(other arenas)");

const fn fixed(text: &'static str) -> Label {
    let mut copy = [0; LABEL_BYTES_MAX + 1];
    let mut at = 0;
    while at < text.len() {
        copy[at] = text.as_bytes()[at];
        at += 1;
    }
    Label { text: copy, name: Some(Name::new(text)) }
}

/// Returns the label with this text, of which the first 127 bytes are kept. Takes a lock.
pub(crate) fn intern(text: &[u8]) -> &'static Label {
    let text = text.get(..LABEL_BYTES_MAX).unwrap_or(text);
    if text.is_empty() {
        return &UNLABELLED;
    }
    // FNV-1a.
    let hash = text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let _reopened = forks::reopen();
    let _guard = LOCK.lock();
    for probe in 0..LABELS_MAX {
        let index = (hash as usize).wrapping_add(probe) % LABELS_MAX;
        // SAFETY: `index` is within the array, which is static.
        let slot = unsafe { LABELS.0.get().cast::<Label>().add(index) };
        // SAFETY: under the lock nobody writes to the slot while this reference lives.
        let found = unsafe { &*slot };
        if found.name.is_none() {
            // SAFETY: under the lock, and a slot without a name has not been given out, so there is
            // no other reference to it; `found` is not used any more. The name refers to the text
            // beside it, which is static and from now on never written.
            unsafe {
                let label = &mut *slot;
                label.text.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
                let name = Name { text: label.text.as_ptr(), length: text.len() as u32, ..Name::new("") };
                label.name = Some(name);
                return &*slot;
            }
        }
        if found.name.as_ref().is_some_and(|name| name.bytes() == text) {
            return found;
        }
    }
    &OTHER
}

/// Holds the lock, so that a forked child gets whole labels.
pub(crate) fn before_fork() {
    core::mem::forget(LOCK.lock());
}

/// Releases the lock, in the parent and in the child.
///
/// # Safety
///
/// The calling thread called [`before_fork`], or is its copy in the child.
pub(crate) unsafe fn after_fork() {
    // SAFETY: `Lock::unlock` asks that this thread, or the one that it is a copy of, took the lock
    // and forgot the guard. `before_fork` did.
    unsafe { LOCK.unlock() };
}
