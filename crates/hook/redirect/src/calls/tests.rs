use super::*;

/// The kinds of a thunk have the layout that its function assumes.
#[test]
fn the_kinds_of_a_thunk_have_the_layout_that_is_assumed() {
    for kind in EntryKind::ALL {
        let (layout, thunk) = (kind.layout(), Thunk::of(kind));
        assert_ne!(thunk, Thunk::Preserving, "{kind:?}");
        if matches!(thunk, Thunk::Malloc | Thunk::New) {
            assert_eq!((layout.effect, layout.api, layout.size), (Effect::Allocate, Api::Malloc, Some(0)), "{kind:?}");
            assert!(layout.count.is_none(), "{kind:?}");
            assert_eq!(layout.throws, thunk == Thunk::New, "{kind:?}");
        }
        if thunk == Thunk::New {
            assert!(layout.alignment.is_none() && kind.nothrow().is_some(), "{kind:?}");
        }
        if matches!(thunk, Thunk::Calloc | Thunk::Realloc | Thunk::Aligned) {
            let (effect, api, block) = match thunk {
                Thunk::Calloc => (Effect::Allocate, Api::Calloc, None),
                Thunk::Realloc => (Effect::Reallocate, Api::Realloc, Some(0)),
                _ => (Effect::Allocate, Api::AlignedAlloc, None),
            };
            assert_eq!((layout.effect, layout.api, layout.block), (effect, api, block), "{kind:?}");
            assert_eq!(layout.count, (thunk == Thunk::Calloc).then_some(0), "{kind:?}");
            assert_eq!(layout.size, Some(u8::from(thunk != Thunk::Aligned)), "{kind:?}");
            assert!(thunk != Thunk::Aligned || layout.alignment == Some(1), "{kind:?}");
            assert!(!layout.throws && !layout.frees_on_failure, "{kind:?}");
        }
        assert_eq!(thunk == Thunk::Free, layout.effect == Effect::Free && layout.block == Some(0), "{kind:?}");
        // Other kinds with a sibling have their nothrow argument third.
        if kind.nothrow().is_some() && thunk != Thunk::New {
            assert_eq!((layout.effect, layout.count), (Effect::Allocate, None), "{kind:?}");
            assert_eq!((layout.size, layout.alignment), (Some(0), Some(1)), "{kind:?}");
        }
    }
}

/// A signal handler on another stack has taken the mark away while the allocator was at work.
#[test]
fn a_call_is_marked_again_when_the_allocator_returns() {
    extern "C" fn forgets() -> u64 {
        arch::set_outermost(0, 0);
        7
    }
    let original = (forgets as *const ()).expose_provenance() as u64;
    let site = Site { pass: 0, original, nothrow: 0, usable: 0, kind: EntryKind::Malloc.number(), reserved: [0; 7] };
    let call = Call { site: &site, mark: 0x1000, caller: Caller { slot: 0, rbp: 0 } };
    // SAFETY: it is a C function, and takes no arguments.
    assert_eq!(unsafe { call.original(original, &[0; 6]) }, 7);
    assert_eq!((arch::outermost(), arch::site()), (0x1000, ptr::from_ref(&site).addr() as u64));
    arch::set_outermost(0, 0);
}
