extern crate std;

use std::collections::HashSet;
use std::string::String;
use std::vec::Vec;

use super::*;

static HERE: Place = Place::new("src/cache.rs", 118, "");
static LABELLED: Place = Place::new("src/cache.rs", 0, "big\none");
static NOWHERE: Place = Place::new("", 7, "label");

fn text(name: &'static str, place: *const Place) -> String {
    // SAFETY: `intern` asks for a static name of this length, and for null or a static place.
    // The type says so of `name`; all callers pass null or the address of a static above.
    let stamp = unsafe { intern(name.as_ptr(), name.len() as u32, place) };
    String::from_utf8(stamp.text().collect()).unwrap()
}

/// One test, because there is one table.
#[test]
fn pairs_are_told_apart_up_to_a_number() {
    assert_eq!(text("Token", &raw const HERE), "Token\nsrc/cache.rs:118");
    assert_eq!(text("a\nb", &raw const LABELLED), "a b\nsrc/cache.rs:0\nbig one");
    assert_eq!(text("T", &raw const NOWHERE), "T\n\nlabel");
    assert_eq!(text("T", ptr::null()), "T");
    let known = count();
    assert_eq!((text("T", ptr::null()), count()), (String::from("T"), known));

    // Threads that meet the same pairs at once: each pair gets one number, the same in all
    // threads.
    static NAMES: &str = const { str_of_zeroes() };
    let pairs = if cfg!(miri) { 100 } else { 5000 };
    let numbers: Vec<Vec<u16>> = std::thread::scope(|scope| {
        let meet = move || {
            // SAFETY: `intern` asks for a static name of this length. `NAMES` is static, and
            // its length of 5000 bytes is the largest that is passed. There is no place.
            (1..=pairs).map(|length| unsafe { intern(NAMES.as_ptr(), length, ptr::null()) }.number()).collect()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(meet)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(numbers.iter().all(|these| *these == numbers[0]) || numbers[0].contains(&(STAMPS_MAX + 1)));
    for these in &numbers {
        let own: Vec<u16> = these.iter().copied().filter(|&number| number <= STAMPS_MAX).collect();
        assert_eq!(own.iter().collect::<HashSet<_>>().len(), own.len());
        for (length, &number) in (1..).zip(these).filter(|(_, number)| **number <= STAMPS_MAX) {
            assert_eq!(get(number).unwrap().type_name().len(), (length as usize).min(TYPE_MAX));
        }
    }
    if !cfg!(miri) {
        assert_eq!(count(), STAMPS_MAX);
        assert_eq!(text("one more", ptr::null()), "(other)");
        assert_eq!(get(STAMPS_MAX + 1).unwrap().type_name(), b"(other)");
    }
    assert_eq!(text("Token", &raw const HERE), "Token\nsrc/cache.rs:118");
    assert!(get(0).is_none());
}

const fn str_of_zeroes() -> &'static str {
    const BYTES: [u8; 5000] = [b'0'; 5000];
    match core::str::from_utf8(&BYTES) {
        Ok(text) => text,
        Err(_) => "",
    }
}

/// Checks the layout that `heapledger.h` declares.
#[test]
fn layout() {
    use core::mem::offset_of;
    assert_eq!((size_of::<Place>(), offset_of!(Place, line), offset_of!(Place, label)), (32, 12, 16));
    assert_eq!(offset_of!(Place, label_length), 24);
}
