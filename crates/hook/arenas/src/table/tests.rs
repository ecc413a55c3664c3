use std::collections::HashMap;
use std::format;

use super::*;

/// Held by tests that count the entries of the table.
static ALONE: Lock = Lock::new();

/// Arenas come and go in an order that a generator draws; a map says which are there.
#[test]
fn agrees_with_a_map() {
    let _alone = ALONE.lock();
    let mut random = heapledger_core::sample::Random::new(11);
    let mut model = HashMap::new();
    for step in 0..20_000_u32 {
        let word = random.word();
        // Few numbers, so that they come again after they were disposed of.
        let id = (word % 5000) << 20 | 7;
        if word >> 63 == 0 {
            let label = format!("label {}", word % 40);
            let is_new = insert(id, label.as_bytes(), step).is_some();
            assert_eq!(is_new, model.len() < FULL && !model.contains_key(&id), "{step}");
            if is_new {
                model.insert(id, (label, step));
            }
        } else if model.remove(&id).is_some() {
            remove(id);
        }
        let found = find(id).and_then(Entry::arena);
        assert_eq!(found.map(|arena| arena.flags), model.get(&id).map(|(_, flags)| *flags), "{step}");
        if let (Some(arena), Some((label, _))) = (found, model.get(&id)) {
            // The other test may have used up the labels.
            assert!([label.as_bytes(), b"(other arenas)"].contains(&arena.name.bytes()), "{step}");
        }
    }
    assert!(model.len() > 1000 && is_any());
    model.into_keys().for_each(remove);
    assert!(!is_any());
    for id in [UNUSED, DISPOSED] {
        assert!(insert(id, b"no", 0).is_none() && find(id).is_none());
    }
}

/// Entries become unused again: searches stay short however many arenas come and go.
#[test]
fn disposed_entries_become_unused() {
    let _alone = ALONE.lock();
    for round in 0..3 * ARENAS_MAX as u64 {
        let id = (round + 1) << 30 | 9;
        assert!(insert(id, b"short", 0).is_some());
        remove(id);
    }
    let used = |state: u64| ENTRIES.iter().filter(|entry| entry.id.load(Ordering::Relaxed) == state).count();
    assert_eq!((used(DISPOSED), used(UNUSED)), (0, ARENAS_MAX));
    // One between two others is needed by searches, until the last of them has gone.
    let start = |id: u64| (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % ARENAS_MAX;
    let mut same = (1_u64..).map(|id| id << 4 | 5).filter(|&id| start(id) == ARENAS_MAX - 2);
    let ids = [same.next().unwrap(), same.next().unwrap(), same.next().unwrap()];
    let positions = ids.map(|id| insert(id, b"short", 0).unwrap().index() as usize);
    assert_eq!(positions, [ARENAS_MAX - 2, ARENAS_MAX - 1, 0]);
    remove(ids[1]);
    assert!(used(DISPOSED) == 1 && find(ids[2]).is_some());
    remove(ids[2]);
    assert!(used(DISPOSED) == 0 && find(ids[0]).is_some());
    remove(ids[0]);
    assert_eq!(used(UNUSED), ARENAS_MAX);
}

#[test]
fn labels_are_cut_off_and_interned() {
    let long = [b'x'; 300];
    let label = intern(&long);
    assert_eq!(label.name().bytes(), &long[..127]);
    assert!(ptr::eq(label, intern(&long[..127])));
    assert_eq!(intern(b"").name().bytes(), b"(no label)");
    // SAFETY: a text with a terminator.
    let text = unsafe { core::ffi::CStr::from_ptr(intern(b"short").text()) };
    assert_eq!(text, c"short");
    for number in 0..2000 {
        let text = format!("many {number}");
        let name = intern(text.as_bytes()).name().bytes();
        assert!(name == text.as_bytes() || name == b"(other arenas)");
    }
    assert_eq!(intern(b"many 1999").name().bytes(), b"(other arenas)");
    assert_eq!(intern(&long).name().bytes(), &long[..127]);
}
