use super::*;

/// With 1,000 sites, to ask 10,000 times within 10,000 allocations must not visit 10 million.
#[test]
fn sites_are_counted_in_proportion_to_allocations() {
    let (unproven, counts) = (Unproven::default(), Cell::new(0));
    let ask = |allocations: u64| {
        unproven.get(allocations, || {
            counts.set(counts.get() + 1);
            (allocations / 2, 1000)
        })
    };
    for allocations in 0..10_000 {
        let known = ask(allocations);
        assert!(known <= allocations / 2 && known + 1000 >= allocations / 2);
    }
    assert_eq!(counts.get(), 10);
    // The last figures are exact.
    unproven.outdate();
    assert_eq!(ask(9_999), 4_999);
}
