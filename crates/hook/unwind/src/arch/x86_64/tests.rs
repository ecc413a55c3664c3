use super::*;

#[test]
fn rules_pack() {
    for (offset, saved) in [(8, 0), (16, 2), (-8, 2), (65_535 * 8, 1024), (-(1 << 16) * 8, 0)] {
        let rule = Rule::new(Kind::Rbp, offset, saved);
        assert_eq!(rule.kind(), Kind::Rbp as u32);
        assert_eq!((rule.offset_from_rbp(), rule.saved()), (offset, saved.saturating_sub(1) * 8));
        assert!(u64::from(rule.bits()) < Rule::BY_RBP_END && u64::from(rule.bits()) >= Rule::BY_RSP_END);
    }
    for (offset, saved) in [(8, 0), (16, 2), (8 * ((1 << 17) - 1), 1024)] {
        let rule = Rule::new(Kind::Rsp, offset, saved);
        assert_eq!((rule.distance(), rule.saved()), (offset as u64, saved.saturating_sub(1) * 8));
        assert!(u64::from(rule.bits()) < Rule::BY_RSP_END);
        assert_eq!(rule.without_words(), Rule::END);
    }
    let deref = Rule::new(Kind::Deref, -8, 1 + 1);
    assert!(matches!(deref.uses(64), Uses { rbp: true, cfa_at: Some(56), saved: Saved::At(64) }));
    let failed = deref.without_words().uses(64);
    assert!(matches!(failed, Uses { rbp: true, cfa_at: None, saved: Saved::Nowhere }));
    // Not whole words; outside of the frame; too far; the slot of the return address.
    for (offset, saved) in [(12, 0), (0, 0), (-8, 0), (16, 3), (1 << 20, 0), (1 << 16, 1025), (16, 1)] {
        assert_eq!(Rule::new(Kind::Rsp, offset, saved), Rule::UNSUPPORTED);
    }
}
