use super::*;

#[test]
fn beats_are_made_for_a_collector_that_could_run() {
    let page = crate::session::page(0, Default::default(), None).unwrap();
    let mut beats = Beats::default();
    let mut beats_at = |is_runnable, seconds| {
        let before = page.heartbeat();
        beats.poll(&page, is_runnable, Duration::from_secs(seconds));
        page.heartbeat() != before
    };
    assert!(beats_at(true, 1) && beats_at(true, 2));
    assert!(!beats_at(false, 2));
    assert!(beats_at(true, 20) && !beats_at(true, 21));
    page.beat();
    // Its own beat is enough, and it may take as much again.
    assert!(!beats_at(true, 30) && beats_at(true, 50) && !beats_at(true, 51));
}
