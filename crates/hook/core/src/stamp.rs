//! Stamps: the types that a program declares for its blocks, and where it declares them.
//!
//! A [`Place`] has C layout: `heapledger.h` declares the same structure. A stamp is a type's name
//! and a place; each such pair that has been met has a number, by which observers keep it. The
//! table of the pairs is fixed and static: entering a pair allocates nothing, waits for nobody, and
//! may be done at any moment, in signal handlers too.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, Ordering};

/// The number of pairs of type and place that are told apart; all further ones are `(other)`.
pub const STAMPS_MAX: u16 = 4094;
/// The number of bytes of a type's name that are reported.
pub const TYPE_MAX: usize = 2048;
/// The number of bytes of a file's name that are reported.
pub const FILE_MAX: usize = 1024;
/// The number of bytes of a label that are reported.
pub const LABEL_MAX: usize = 256;

/// A place in the source at which blocks are stamped: static.
///
/// # Contract of the fields
///
/// `file` is null or points to `file_length` bytes, and `label` is null or points to `label_length`
/// bytes. All these are static and do not change.
#[derive(Debug)]
#[repr(C)]
pub struct Place {
    /// The file's name: UTF-8, without terminator. Null if not known.
    pub file: *const u8,
    /// The length of the file's name in bytes.
    pub file_length: u32,
    /// The line, from 1; 0 if not known.
    pub line: u32,
    /// A label that the program gives the block. Null for none.
    pub label: *const u8,
    /// The length of the label in bytes.
    pub label_length: u32,
}

// SAFETY: everything that it points to is static and does not change.
unsafe impl Sync for Place {}
// SAFETY: a place owns nothing. It is numbers, and addresses of bytes that are static and do not
// change, by the contract of the fields.
unsafe impl Send for Place {}

impl Place {
    /// Returns a place, without a label if `label` is empty.
    pub const fn new(file: &'static str, line: u32, label: &'static str) -> Place {
        Place {
            file: file.as_ptr(),
            file_length: file.len() as u32,
            line,
            label: label.as_ptr(),
            label_length: label.len() as u32,
        }
    }

    /// Returns the first [`FILE_MAX`] bytes of the file's name.
    pub fn file(&self) -> &'static [u8] {
        // SAFETY: `bytes` asks for null or a static text of this length: the contract of the fields
        // says so of this one.
        unsafe { bytes(self.file, self.file_length, FILE_MAX) }
    }

    /// Returns the first [`LABEL_MAX`] bytes of the label.
    pub fn label(&self) -> &'static [u8] {
        // SAFETY: `bytes` asks for null or a static text of this length: the contract of the fields
        // says so of this one.
        unsafe { bytes(self.label, self.label_length, LABEL_MAX) }
    }
}

/// Returns at most the first `length_max` bytes of a text, none if it is null.
///
/// # Safety
///
/// `text` is null or points to `length` bytes that are static and do not change.
unsafe fn bytes(text: *const u8, length: u32, length_max: usize) -> &'static [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: the text is not null, and has `length` static bytes by this function's `# Safety`.
    // They do not change. The slice is no longer than that.
    unsafe { core::slice::from_raw_parts(text, (length as usize).min(length_max)) }
}

/// The name of a type and the place where the program declares blocks to be of it.
#[derive(Debug)]
pub struct Stamp {
    type_name: AtomicPtr<u8>,
    place: AtomicPtr<Place>,
    type_length: AtomicU32,
    number: AtomicU16,
    is_announced: AtomicBool,
}

/// The stamp of all pairs beyond [`STAMPS_MAX`].
static OTHER: Stamp = Stamp::of(STAMPS_MAX + 1, OTHER_NAME.as_ptr().cast_mut(), OTHER_NAME.len() as u32);
const OTHER_NAME: &str = "(other)";
/// The stamps that have been met, by number from 1.
static STAMPS: [Stamp; STAMPS_MAX as usize + 1] = [const { Stamp::of(0, ptr::null_mut(), 0) }; STAMPS_MAX as usize + 1];
static COUNT: AtomicU16 = AtomicU16::new(0);
/// The numbers of stamps by hash; 0 is a free slot. Never more than half full.
static INDEX: [AtomicU16; INDEX_LENGTH] = [const { AtomicU16::new(0) }; INDEX_LENGTH];
const INDEX_LENGTH: usize = (STAMPS_MAX as usize + 2) * 2;

/// Returns the stamp of a type and a place, which may be null if not known. Some twenty
/// instructions once the pair has been met.
///
/// # Safety
///
/// `type_name` points to `length` bytes, UTF-8 if the program keeps to it, and `place` is null or
/// points to a [`Place`]. Both are static and do not change.
#[inline]
pub unsafe fn intern(type_name: *const u8, length: u32, place: *const Place) -> &'static Stamp {
    let mut mine: Option<&'static Stamp> = None;
    let first = hash(type_name, place);
    for step in 0..INDEX_LENGTH {
        let Some(slot) = INDEX.get((first + step) % INDEX_LENGTH) else { break };
        let mut number = slot.load(Ordering::Acquire);
        if number == 0 {
            let Some(new) = mine.or_else(|| add(type_name, length, place)) else { break };
            mine = Some(new);
            match slot.compare_exchange(0, new.number(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return new,
                // Another thread has filled the slot by now, perhaps with the same pair; then our
                // number stays unused.
                Err(other) => number = other,
            }
        }
        if let Some(known) = get(number)
            && known.is(type_name, length, place)
        {
            return known;
        }
    }
    &OTHER
}

/// Returns the stamp with this number.
#[inline]
pub fn get(number: u16) -> Option<&'static Stamp> {
    match number {
        0 => None,
        1..=STAMPS_MAX => STAMPS.get(usize::from(number)),
        _ => Some(&OTHER),
    }
}

/// Returns the largest number that has been given out.
pub fn count() -> u16 {
    COUNT.load(Ordering::Acquire).min(STAMPS_MAX)
}

/// Forgets which stamps have been [announced](Stamp::mark_announced), for another reader. Takes a
/// step for each stamp that has been met.
pub fn forget_announced() {
    let met = STAMPS.iter().take(usize::from(count()) + 1);
    met.chain(core::iter::once(&OTHER)).for_each(|stamp| stamp.is_announced.store(false, Ordering::Release));
}

#[cold]
fn add(type_name: *const u8, length: u32, place: *const Place) -> Option<&'static Stamp> {
    if COUNT.load(Ordering::Relaxed) >= STAMPS_MAX {
        return None;
    }
    let number = COUNT.fetch_add(1, Ordering::AcqRel).checked_add(1).filter(|&number| number <= STAMPS_MAX)?;
    let stamp = STAMPS.get(usize::from(number))?;
    stamp.type_name.store(type_name.cast_mut(), Ordering::Relaxed);
    stamp.type_length.store(length, Ordering::Relaxed);
    stamp.place.store(place.cast_mut(), Ordering::Relaxed);
    stamp.number.store(number, Ordering::Release);
    Some(stamp)
}

#[inline(always)]
fn hash(type_name: *const u8, place: *const Place) -> usize {
    let words = (type_name.addr() as u64).rotate_left(32) ^ place.addr() as u64;
    (words.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % INDEX_LENGTH
}

impl Stamp {
    const fn of(number: u16, type_name: *mut u8, length: u32) -> Stamp {
        Stamp {
            type_name: AtomicPtr::new(type_name),
            place: AtomicPtr::new(ptr::null_mut()),
            type_length: AtomicU32::new(length),
            number: AtomicU16::new(number),
            is_announced: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    fn is(&self, type_name: *const u8, length: u32, place: *const Place) -> bool {
        ptr::eq(self.type_name.load(Ordering::Relaxed), type_name)
            && self.type_length.load(Ordering::Relaxed) == length
            && ptr::eq(self.place.load(Ordering::Relaxed), place)
    }

    /// Returns the stamp's number, from 1 to one more than [`STAMPS_MAX`].
    #[inline(always)]
    pub fn number(&self) -> u16 {
        self.number.load(Ordering::Acquire)
    }

    /// Returns the first [`TYPE_MAX`] bytes of the type's name.
    pub fn type_name(&self) -> &'static [u8] {
        // SAFETY: static text of this length, by the contract of `intern`, which stored it; or null
        // if nothing has been entered here yet.
        unsafe { bytes(self.type_name.load(Ordering::Relaxed), self.type_length.load(Ordering::Relaxed), TYPE_MAX) }
    }

    /// Returns the place where blocks are stamped so, if that is known.
    pub fn place(&self) -> Option<&'static Place> {
        // SAFETY: `as_ref` asks for null or a pointer to a live value that does not change. The
        // stamp was made with null, or has been given a place by `intern`, whose `# Safety` says
        // that it is static and does not change.
        unsafe { self.place.load(Ordering::Relaxed).as_ref() }
    }

    /// True if [`mark_announced`](Stamp::mark_announced) was called; all that its caller did before
    /// is visible.
    #[inline(always)]
    pub fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::Acquire)
    }

    /// Declares that the stamp has been reported.
    pub fn mark_announced(&self) {
        self.is_announced.store(true, Ordering::Release);
    }

    /// Returns the stamp's text as recordings have it: a line for the type; a line for file, `:`
    /// and line number, empty if they are not known; and the label. Empty lines at the end are left
    /// out.
    pub fn text(&self) -> impl Iterator<Item = u8> {
        let (file, line, label) = self.place().map_or((&[][..], 0, &[][..]), |at| (at.file(), at.line, at.label()));
        let (digits, length) = if file.is_empty() { ([0; 11], 0) } else { decimal(line) };
        let plain = |bytes: &'static [u8]| bytes.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte });
        let is_empty = (file.is_empty(), label.is_empty());
        let first = (is_empty != (true, true)).then_some(b'\n');
        let second = (!is_empty.1).then_some(b'\n');
        let place = first.into_iter().chain(plain(file)).chain(digits.into_iter().skip(digits.len() - length));
        plain(self.type_name()).chain(place).chain(second).chain(plain(label))
    }
}

/// Formats `:` and a number at the end of the array, and returns the number of characters.
fn decimal(mut number: u32) -> ([u8; 11], usize) {
    let (mut digits, mut length) = ([b':'; 11], 0);
    for place in digits.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
        length += 1;
        if number == 0 {
            break;
        }
    }
    (digits, length + 1)
}

#[cfg(test)]
mod tests;
