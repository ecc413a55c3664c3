use super::*;

#[test]
fn messages_round_trip() {
    let request = Request {
        version: 1,
        kind: RequestKind::Fork as u32,
        token: *b"0123456789abcdef0123456789abcdef",
        image: 7,
        thread: 8,
        fork: 9,
        node_base: 10,
        capacity: 11,
        allocator: 3,
        allocator_version: 13,
        thunk: 13,
        entries_missed: 14,
        modules: [15; MODULES_MAX],
    };
    assert_eq!(Request::from_bytes(request.to_bytes()), request);
    let answer = Answer { refused: 0, image: 1, common_length: 2, ring_length: 3 };
    assert_eq!(Answer::from_bytes(answer.to_bytes()), answer);
}

#[test]
fn a_page_that_ends_records_nothing_at_any_rate() {
    let page = SessionPage::none();
    page.mode.store(mode::DROPS, Ordering::Relaxed);
    page.state.store(state::RECORDING, Ordering::Relaxed);
    page.rate.store(19, Ordering::Relaxed);
    page.end();
    assert!(page.is_over());
    assert_eq!((page.mode(), page.rate()), (mode::DROPS | mode::OVER | mode::PAUSED | mode::IDLE, 0));
}

#[test]
fn waits_at_exits() {
    let page = SessionPage::none();
    assert_eq!(page.exit_wait(u64::MAX), 0);
    let waits = |setting| {
        page.exit_wait.store(setting, Ordering::Relaxed);
        [0, 100_000_000, 2_000_000_000, 10_000_000_000, u64::MAX].map(|age| page.exit_wait(age) / 1_000_000)
    };
    assert_eq!(waits(EXIT_WAIT_SHARE), [0, 0, 40, 200, 1000]);
    assert_eq!(waits(3000), [3000; 5]);
}
