use super::*;

/// A single test, because the process has one table.
#[test]
fn addresses_come_and_go() {
    let key = |number: u64| 0x7f00_0000_0000 + number * 48;
    for number in 0..20_000 {
        assert!(!take(key(number)) && !may_contain(key(number)));
        add(key(number));
        add(key(number));
        assert!(may_contain(key(number)));
    }
    // A bucket has one or two: none is full.
    assert!(!take(key(20_000)) && !take(key(1) + 8));
    for number in (0..20_000).step_by(2) {
        assert!(take(key(number)) && !take(key(number)));
    }
    assert!((0..20_000).all(|number| may_contain(key(number)) == (number % 2 == 1)));
    // Some of many find no slot, but none that was entered is ever taken for one that was not.
    let more = 400_000;
    (20_000..more).for_each(|number| add(key(number)));
    assert!((20_000..more).all(|number| take(key(number))));
}
