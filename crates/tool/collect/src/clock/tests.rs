use super::*;

fn at(stamp: u64, nanoseconds: u64) -> Reading {
    Reading { stamp, nanoseconds }
}

#[test]
fn a_steady_counter_is_followed_exactly() {
    let mut clock = Clock::new(at(1_000, 50), at(1_000 + 160_000, 50 + 1_000_000));
    assert_eq!(clock.time(1_000), 0);
    assert!(clock.time(1_000 + 16_000_000).abs_diff(100_000_000) <= 1);
    for second in 1..100 {
        clock.correct(at(1_000 + second * 160_000_000, 50 + second * 1_000_000_000));
        assert!(clock.time(1_000 + second * 160_000_000).abs_diff(second * 1_000_000_000) <= 100);
    }
    assert!(clock.duration(16 * 160).abs_diff(1_000) <= 1);
    assert_eq!(clock.units(1_000), 160);
}

#[test]
fn a_bad_first_measurement_is_corrected_by_slewing() {
    // The second reading is off by 10 %.
    let mut clock = Clock::new(at(0, 0), at(160_000, 1_100_000));
    let (mut before, mut now) = (0, 2_000_000);
    for _ in 0..200 {
        let reading = at(now * 160 / 1_000, now);
        let at_once = clock.time(reading.stamp);
        clock.correct(reading);
        assert_eq!(clock.time(reading.stamp), at_once);
        assert!(at_once >= before);
        before = at_once;
        now = clock.next_correction;
    }
    assert!(clock.time(now * 160 / 1_000).abs_diff(now) < 1_000, "{} {now}", clock.time(now * 160 / 1_000));
}

#[test]
fn real_clocks_agree() {
    let first = Reading::now();
    std::thread::sleep(std::time::Duration::from_millis(2));
    let clock = Clock::new(first, Reading::now());
    std::thread::sleep(std::time::Duration::from_millis(20));
    let now = Reading::now();
    let (ours, theirs) = (clock.time(now.stamp), now.nanoseconds - first.nanoseconds);
    assert!(ours.abs_diff(theirs) < theirs / 50, "{ours} {theirs}");
}

#[test]
fn nonsense_stays_in_bounds() {
    let clock = Clock::new(at(u64::MAX, 0), at(0, 1));
    assert_eq!(clock.time(0), 0_u64.saturating_sub(1));
    let clock = Clock::new(at(0, 0), at(u64::MAX, 1));
    assert!(clock.time(u64::MAX) > 0);
}
