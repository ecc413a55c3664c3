//! Checks the list against every interleaving of its threads that loom tries:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p heapledger-core --release --lib hooks::model --target-dir target/loom
//! ```
//!
//! An entry is two words that must agree, so that a half-written entry is noticed here or by loom
//! itself.

extern crate std;

use std::boxed::Box;
use std::vec::Vec;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::HookError;
use super::list::List;

type Entries = List<(u32, u32), 3>;

fn list() -> &'static Entries {
    // Loom runs this once for each interleaving; the list must live as long as the `'static` slots
    // do.
    Box::leak(Box::new(List::new()))
}

/// Returns the address that identifies an entry; its order is its number.
fn identity(number: u32) -> *const () {
    core::ptr::without_provenance(8 * number as usize)
}

fn install(list: &'static Entries, number: u32) -> Result<(), HookError> {
    list.install(identity(number), number as i32, (number, !number), |_| {}, |_| {})
}

fn remove(list: &'static Entries, number: u32) -> Result<(), HookError> {
    list.remove(identity(number), |_| false, |_| {})
}

/// Returns the entries that a call meets.
fn walk(list: &'static Entries) -> Vec<u32> {
    let mut met = Vec::new();
    let mut at = list.first();
    while let Some(slot) = at {
        let (number, check) = *slot.value();
        assert_eq!(check, !number, "half written");
        met.push(number);
        at = slot.next();
    }
    assert!(met.is_sorted_by(|a, b| a < b), "{met:?}: out of order, or twice");
    met
}

#[test]
fn a_call_sees_a_new_entry_whole_or_not_at_all_and_the_others_always() {
    loom::model(|| {
        let list = list();
        install(list, 1).unwrap();
        install(list, 3).unwrap();
        let changer = thread::spawn(move || install(list, 2).unwrap());
        let met = walk(list);
        assert!(met == [1, 3] || met == [1, 2, 3], "{met:?}");
        changer.join().unwrap();
        assert_eq!(walk(list), [1, 2, 3]);
    });
}

#[test]
fn once_a_removal_has_returned_no_call_that_begins_enters() {
    loom::model(|| {
        let list = list();
        for number in 1..=3 {
            install(list, number).unwrap();
        }
        let is_removed = &*Box::leak(Box::new(AtomicBool::new(false)));
        let changer = thread::spawn(move || {
            remove(list, 2).unwrap();
            is_removed.store(true, Ordering::Release);
        });
        let was_removed = is_removed.load(Ordering::Acquire);
        let met = walk(list);
        assert!(met == [1, 3] || (met == [1, 2, 3] && !was_removed), "{met:?}, removed: {was_removed}");
        changer.join().unwrap();
        assert_eq!(walk(list), [1, 3]);
    });
}

#[test]
fn a_call_in_a_removed_and_reinstalled_entry_goes_on() {
    loom::model(|| {
        let list = list();
        for number in 1..=3 {
            install(list, number).unwrap();
        }
        let changer = thread::spawn(move || {
            remove(list, 1).unwrap();
            remove(list, 2).unwrap();
            install(list, 1).unwrap();
        });
        let met = walk(list);
        // The third stays all the time; the others may be met once each.
        assert_eq!(met.last(), Some(&3), "{met:?}");
        changer.join().unwrap();
        assert_eq!(walk(list), [1, 3]);
    });
}

#[test]
fn one_of_two_equal_installations_succeeds() {
    loom::model(|| {
        let list = list();
        let other = thread::spawn(move || install(list, 1));
        let ours = install(list, 1);
        let theirs = other.join().unwrap();
        assert_ne!(ours.is_ok(), theirs.is_ok());
        assert_eq!(ours.and(theirs), Err(HookError::AlreadyInstalled));
        assert_eq!(walk(list), [1]);
    });
}

#[test]
fn no_concurrent_change_is_lost() {
    loom::model(|| {
        let list = list();
        install(list, 2).unwrap();
        let other = thread::spawn(move || remove(list, 2).unwrap());
        install(list, 1).unwrap();
        install(list, 3).unwrap();
        other.join().unwrap();
        assert_eq!(walk(list), [1, 3]);
        assert_eq!(install(list, 4), Err(HookError::Full));
    });
}

#[test]
fn held_entries_are_not_visited() {
    loom::model(|| {
        let list = list();
        list.hold();
        let caller = thread::spawn(move || {
            let met = walk(list);
            assert!(met.is_empty() || met == [1, 2], "{met:?}");
        });
        install(list, 2).unwrap();
        install(list, 1).unwrap();
        assert!(list.first().is_none());
        list.release(|_| {});
        caller.join().unwrap();
        assert_eq!(walk(list), [1, 2]);
    });
}
