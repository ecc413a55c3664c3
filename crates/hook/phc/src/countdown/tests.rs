use super::*;

/// Counts one allocation as the replacement's functions do. True if it is to be sampled.
fn counts_down() -> bool {
    let left = word::<LEFT>() as isize - 1;
    set_word::<LEFT>(left as usize);
    left < 0 && is_sampled()
}

/// Held by a test that uses the delay, which is one for the process.
static DELAYS: heapledger_core::lock::Lock = heapledger_core::lock::Lock::new();

#[test]
fn samples_come_at_the_rate_that_is_asked_for() {
    let _guard = DELAYS.lock();
    let options = |first, normal| PhcOptions { delay_first: first, delay_normal: normal, ..PhcOptions::default() };
    set_state(PhcState::Enabled);
    let samples = |allocations: u64| (0..allocations).filter(|_| counts_down()).count() as u64;

    set_delays(&options(1, 1));
    assert_eq!(samples(1000), 1000, "a delay of 1 samples everything");

    disable_thread();
    disable_thread();
    assert_eq!(samples(1000), 0);
    enable_thread();
    assert_eq!(samples(1000), 0, "disabling nests");
    enable_thread();
    // The thread looks again after at most 64 allocations.
    assert!(samples(1000) >= 936);

    set_delays(&options(1, 512));
    let many = samples(512 * 4000);
    assert!((3700..4300).contains(&many), "{many} samples instead of 4000");

    // The first sample is not before its own delay, which is drawn from 1 to twice its mean.
    let firsts: u64 = (0..100)
        .map(|_| {
            set_delays(&options(4096, 512));
            set_word::<STATE>(0);
            set_word::<LEFT>(0);
            (1..).find(|_| counts_down()).unwrap_or(0)
        })
        .sum();
    assert!((3000..5200).contains(&(firsts / 100)), "{firsts}");

    set_state(PhcState::OnlyFree);
    let _ = samples(600);
    assert_eq!(samples(10_000), 0);

    assert!((0..1000).all(|_| {
        let delay = reuse_delay();
        (128 << 10..=256 << 10).contains(&delay) || delay == (128 << 10) + 1
    }));
}

/// Allocations that are counted at once are sampled at the same rate.
#[test]
fn stretches_for_refills_have_the_rate_that_is_asked_for() {
    let _guard = DELAYS.lock();
    set_state(PhcState::Enabled);
    set_delays(&PhcOptions { delay_first: 1, delay_normal: 16 << 10, ..PhcOptions::default() });
    let (mut allocations, mut samples) = (0, 0);
    while allocations < (16 << 10) * 4000 {
        let Counted { allocations: before, ends_with_sample } = count();
        assert!(before <= 4096);
        allocations += u64::from(before + ends_with_sample);
        samples += ends_with_sample;
    }
    assert!((3700..4300).contains(&samples), "{samples} samples instead of 4000");

    set_delays(&PhcOptions { delay_first: 1, delay_normal: 1, ..PhcOptions::default() });
    assert!((0..1000).all(|_| count() == Counted { allocations: 0, ends_with_sample: 1 }));
    disable_thread();
    assert_eq!(count().ends_with_sample, 0);
    enable_thread();
    set_state(PhcState::OnlyFree);
    assert_eq!(count().ends_with_sample, 0);
}

#[test]
fn delays_are_rounded_up_to_powers_of_two_within_bounds() {
    for (delay, expected) in [(0, 2), (1, 2), (2, 2), (3, 4), (16 << 10, 16 << 10), (u64::MAX, 1 << 31)] {
        assert_eq!(rounded(delay), expected);
    }
    assert!((0..1000).all(|_| (1..=8).contains(&draw(4))));
}
