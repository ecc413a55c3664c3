use super::*;

fn live(bytes: u64) -> Live {
    Live { bytes: Bytes(bytes), blocks: Blocks(1) }
}

fn points(timeline: Timeline) -> Vec<(u64, u64)> {
    timeline.finish().iter().map(|sample| (sample.time.0, sample.live.bytes.0)).collect()
}

#[test]
fn each_interval_keeps_its_largest() {
    let mut timeline = Timeline::new();
    for (time, bytes) in [(0, 5), (10, 9), (20, 3), (INTERVAL_FIRST + 1, 2), (INTERVAL_FIRST + 2, 1)] {
        timeline.add(Time(time), live(bytes));
    }
    assert_eq!(points(timeline), [(10, 9), (INTERVAL_FIRST, 3), (INTERVAL_FIRST + 2, 1)]);
}

#[test]
fn what_is_live_in_a_pause_is_kept() {
    let mut timeline = Timeline::new();
    let later = 10 * INTERVAL_FIRST;
    for (time, bytes) in [(0, 5), (10, 9), (20, 3), (later + 5, 4)] {
        timeline.add(Time(time), live(bytes));
    }
    assert_eq!(points(timeline), [(10, 9), (20, 3), (later + 5, 4)]);
}

#[test]
fn a_long_session_stays_bounded_and_keeps_the_peak() {
    let mut timeline = Timeline::new();
    for step in 0..100_000_u64 {
        let bytes = if step == 31_337 { 1_000_000 } else { step % 1_000 };
        timeline.add(Time(step * 700_000), live(bytes));
    }
    let samples = timeline.finish();
    assert!((INTERVALS_MAX / 4..=2 * INTERVALS_MAX).contains(&samples.len()), "{}", samples.len());
    assert!(samples.is_sorted_by_key(|sample| sample.time));
    assert!(samples.contains(&Sample { time: Time(31_337 * 700_000), live: live(1_000_000) }));
}

#[test]
fn longer_intervals_do_not_overlap() {
    for steps in INTERVALS_MAX as u64 - 3..INTERVALS_MAX as u64 + 6 {
        for odd in 0..2 {
            let mut timeline = Timeline::new();
            let bytes = |step: u64| 1_001 - step % 2;
            for step in odd..steps {
                timeline.add(Time(step * INTERVAL_FIRST + 7), live(bytes(step)));
            }
            let samples = timeline.finish();
            assert!(samples.is_sorted_by_key(|sample| sample.time), "{steps} {odd}");
            assert_eq!(samples.last().map(|sample| sample.live), Some(live(bytes(steps - 1))));
        }
    }
}

#[test]
fn who_is_heard_late_does_not_turn_time_back() {
    let mut timeline = Timeline::new();
    for (time, bytes) in [(10 * INTERVAL_FIRST, 5), (3, 9), (10 * INTERVAL_FIRST + 1, 2)] {
        timeline.add(Time(time), live(bytes));
    }
    assert_eq!(points(timeline), [(10 * INTERVAL_FIRST, 9), (10 * INTERVAL_FIRST + 1, 2)]);
}

#[test]
fn nothing_happened() {
    assert!(Timeline::new().finish().is_empty());
}
