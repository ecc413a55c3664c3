use std::collections::HashMap;
use std::format;

use super::*;

/// Arenas come and go in an order that a generator draws; a map says which are there.
#[test]
fn agrees_with_a_map() {
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
    for id in [UNUSED, DISPOSED] {
        assert!(insert(id, b"no", 0).is_none() && find(id).is_none());
    }
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
