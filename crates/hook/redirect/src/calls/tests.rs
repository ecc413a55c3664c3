use super::*;

/// The kinds that `call` handles without their layouts have the layouts that it assumes.
#[test]
fn fast_kinds_have_the_layout_that_is_assumed() {
    for kind in [EntryKind::Malloc, EntryKind::NewNothrow, EntryKind::NewArrayNothrow, EntryKind::Mallocx] {
        let layout = kind.layout();
        assert_eq!((layout.effect, layout.api, layout.size), (Effect::Allocate, Api::Malloc, Some(0)), "{kind:?}");
        assert!(layout.count.is_none() && !layout.throws, "{kind:?}");
    }
    for kind in [EntryKind::New, EntryKind::NewArray] {
        let layout = kind.layout();
        assert_eq!((layout.effect, layout.api, layout.size), (Effect::Allocate, Api::Malloc, Some(0)), "{kind:?}");
        assert!(layout.throws && layout.alignment.is_none(), "{kind:?}");
    }
    for kind in EntryKind::ALL {
        let layout = kind.layout();
        let is_fast = matches!(
            kind,
            EntryKind::Free
                | EntryKind::Dallocx
                | EntryKind::Sdallocx
                | EntryKind::FreeSized
                | EntryKind::FreeAlignedSized
                | EntryKind::Delete
                | EntryKind::DeleteSized
                | EntryKind::DeleteAligned
                | EntryKind::DeleteSizedAligned
                | EntryKind::RustDealloc
        );
        assert_eq!(is_fast, layout.effect == Effect::Free && layout.block == Some(0), "{kind:?}");
        // Those that throw and are not handled there have their nothrow argument third.
        if layout.throws && layout.alignment.is_some() {
            assert_eq!((layout.size, layout.alignment), (Some(0), Some(1)), "{kind:?}");
        }
    }
}
