use std::vec::Vec;

use super::*;

/// The steps of a stall: delays in milliseconds, and attempts.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Delay(u32),
    Attempt,
}

/// Runs a stall in which the attempt with this number succeeds, by a clock that only counts.
fn stall(specs: StallSpecs, success: usize) -> (Option<usize>, Vec<Step>) {
    let steps = std::cell::RefCell::new(Vec::new());
    let mut attempt = 0;
    let found = specs.stall_and_retry(
        |delay| steps.borrow_mut().push(Step::Delay(delay)),
        || {
            steps.borrow_mut().push(Step::Attempt);
            attempt += 1;
            (attempt == success).then_some(attempt)
        },
    );
    (found, steps.into_inner())
}

#[test]
fn each_attempt_follows_its_delay_until_one_succeeds() {
    let specs = StallSpecs { attempts_max: 3, delay_milliseconds: 7 };
    let each = || [Step::Delay(7), Step::Attempt];
    let times = |count| (0..count).flat_map(|_| each()).collect::<Vec<_>>();
    assert_eq!(stall(specs, 1), (Some(1), times(1)));
    assert_eq!(stall(specs, 2), (Some(2), times(2)));
    assert_eq!(stall(specs, 3), (Some(3), times(3)));
    assert_eq!(stall(specs, 4), (None, times(3)));
}

#[test]
fn the_defaults_wait_half_a_second_and_a_quarter() {
    for (specs, milliseconds) in [(StallSpecs::MAIN, 500), (StallSpecs::CHILD, 250), (StallSpecs::NONE, 0)] {
        let mut waited = 0;
        let found: Option<()> = specs.stall_and_retry(|delay| waited += delay, || None);
        assert_eq!((found, waited), (None, milliseconds));
    }
}
