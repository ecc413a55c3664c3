use super::*;

#[test]
fn each_poll_adds_a_bounded_time_without_heartbeat() {
    let mut watchdog = Watchdog::new(7);
    assert_eq!(watchdog.poll_after(7, 20_000_000), 20_000_000);
    assert_eq!(watchdog.poll_after(7, 5_000), 20_005_000);
    // An hour in which the thread was stopped too.
    assert_eq!(watchdog.poll_after(7, 3_600_000_000_000), 20_005_000 + POLL_NANOSECONDS_MAX);
    assert_eq!(watchdog.poll_after(8, 20_000_000), 0);
    assert_eq!(watchdog.poll_after(8, 1), 1);
}
