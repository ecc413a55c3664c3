use super::*;

const RATE: u32 = 12;

#[test]
fn blocks_are_unsampled_until_the_next_sample_point() {
    assert!(!count_unsampled(1, RATE), "nothing is drawn yet");
    assert_eq!(draw(10, RATE, |_| 1000), None);
    assert_eq!(bytes_until_sample(), 990);
    assert!(count_unsampled(989, RATE));
    assert!(!count_unsampled(1, RATE) && bytes_until_sample() == 1, "there is a point in the next byte");
    assert_eq!(draw(1, RATE, |mean| mean / 2), Some(Rate::from_logarithm(RATE.into())));
    assert_eq!(bytes_until_sample(), 2048);
}

#[test]
fn unusual_sizes_are_not_counted() {
    draw(1, RATE, |_| 1000);
    for size in [0, 1000, 4096, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX] {
        assert!(!count_unsampled(size, RATE), "{size}");
        assert_eq!(bytes_until_sample(), 999, "{size}");
    }
    // A block of 0 bytes counts as one byte; a block that is too large has a sample point in
    // it.
    assert_eq!((draw(0, RATE, |_| 7), bytes_until_sample()), (None, 998));
    assert!(draw(u64::MAX, RATE, |_| 7).is_some());
}

#[test]
fn another_rate_applies_from_the_next_block_on() {
    draw(1, RATE, |_| 1000);
    assert!(!count_unsampled(1, RATE + 1) && !count_unsampled(1, 0) && !count_unsampled(1, 0x200));
    assert_eq!((draw(1, RATE + 1, |_| 2000), bytes_until_sample()), (None, 2000));
    assert!(!count_unsampled(1, RATE) && count_unsampled(1, RATE + 1));
    // A sample point that was drawn before still holds.
    assert_eq!((draw(1999, RATE, |_| 500), bytes_until_sample()), (Some(Rate::from_logarithm(RATE as u64 + 1)), 500));
    assert_eq!((draw(5, 0, |_| 1), draw(5, 0, |_| 1)), (None, Some(Rate::EXACT)));
    assert!(!count_unsampled(1, 0) && !count_unsampled(1, RATE + 1));
}

#[test]
fn a_thread_rereads_the_rate_regularly() {
    let (least, most) = (*REREAD_AFTER.start(), *REREAD_AFTER.end());
    let (far, mut allocated) = (50 * most, 10);
    assert_eq!(draw(10, RATE, |_| far), None);
    assert_eq!(arch::countdown().until_reread as u64, least);
    for _ in 0..20 {
        let until_reread = arch::countdown().until_reread as u64;
        assert!((least..=most).contains(&until_reread));
        assert!(count_unsampled(until_reread as usize - 1, RATE) && !count_unsampled(1, RATE));
        assert_eq!(draw(1, RATE, |_| 0), None);
        allocated += until_reread;
        assert_eq!(bytes_until_sample(), far - allocated);
    }
    assert!(arch::countdown().stride > least, "it rereads often, and so more rarely");
    // A block that is larger than the stride is as likely to be sampled as any other.
    let size = most + 89;
    assert!(!count_unsampled(size as usize, RATE));
    assert_eq!((draw(size, RATE, |_| 7), bytes_until_sample()), (None, far - allocated - size));
    assert_eq!(
        (draw(bytes_until_sample(), RATE, |_| 7), bytes_until_sample()),
        (Some(Rate::from_logarithm(RATE.into())), 7)
    );
}

#[test]
fn threads_count_for_themselves() {
    extern crate std;
    draw(1, RATE, |_| 1000);
    std::thread::spawn(|| assert!(bytes_until_sample() == 0 && !count_unsampled(1, RATE))).join().unwrap();
    assert_eq!(bytes_until_sample(), 999);
}

/// Blocks that pass and blocks that are drawn for, combined as entry points and hooks do: the
/// number of samples is as expected. The seed is fixed; the bound is five standard deviations.
#[test]
fn fast_path_and_draws_make_one_process() {
    for size in [0_usize, 24, 500, 20_000] {
        let mut sampler = Poisson::new(size as u64);
        let sampled = (0..200_000).filter(|_| {
            !count_unsampled(size, RATE) && draw(size as u64, RATE, |mean| sampler.distance(mean)).is_some()
        });
        let (sampled, p) = (sampled.count() as f64, crate::sample::probability(size as u64, 1 << RATE));
        let expected = 200_000.0 * p;
        assert!((sampled - expected).abs() <= 5.0 * (expected * (1.0 - p)).sqrt() + 1.0, "{size}: {sampled}");
    }
}
