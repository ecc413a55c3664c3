extern crate std;

use super::*;

#[test]
fn the_functions_are_those_of_the_standard_library() {
    let mut random = Random::new(7);
    for _ in 0..10_000 {
        let unit = random.unit();
        assert!(unit > 0.0 && unit <= 1.0);
        assert!((ln(unit) - unit.ln()).abs() <= 1e-13 * unit.ln().abs().max(1.0), "ln {unit}");
        let x = unit * 45.0;
        assert!((expm1_negative(x) - (-x).exp_m1()).abs() <= 1e-12 * x.min(1.0), "expm1 {x}");
        let small = unit * 1e-6;
        assert!((expm1_negative(small) / (-small).exp_m1() - 1.0).abs() <= 1e-12, "expm1 {small}");
    }
    assert_eq!((ln(1.0), expm1_negative(0.0)), (0.0, 0.0));
}

/// Blocks of several sizes, sampled: the weights of the samples add up to the number of blocks.
/// The seed is fixed, so the test either always passes or never does; the bound is five
/// standard deviations.
#[test]
fn estimates_are_unbiased() {
    const MEAN: u64 = 4096;
    for size in [1_u64, 24, 500, 4_000, 20_000] {
        let blocks = if cfg!(miri) { 2_000 } else { 400_000 };
        let mut process = Poisson::new(size);
        let (mut until, mut sampled) = (process.distance(MEAN), 0_u64);
        for _ in 0..blocks {
            if until > size {
                until -= size;
                continue;
            }
            until = process.distance(MEAN);
            sampled += 1;
        }
        let p = probability(size, MEAN);
        let (blocks, n) = (f64::from(blocks), sampled as f64);
        // The standard deviation of a binomial variable, scaled by the weight of each sample.
        let deviation = (blocks * (1.0 - p) / p).sqrt();
        assert!((n / p - blocks).abs() <= 5.0 * deviation + 1.0, "{size}: {} of {blocks}", n / p);
    }
}

#[test]
fn rates_are_powers_of_two() {
    assert_eq!(Rate::nearest(Bytes(0)).mean(), Some(Bytes(2)));
    assert_eq!(Rate::nearest(Bytes(524_288)).logarithm(), 19);
    assert_eq!(Rate::nearest(Bytes(524_288 + 262_144)).logarithm(), 19);
    assert_eq!(Rate::nearest(Bytes(524_288 + 262_145)).logarithm(), 20);
    assert_eq!(Rate::nearest(Bytes(u64::MAX)), Rate::MAX);
    assert_eq!((Rate::EXACT.mean(), Rate::EXACT.weight(Bytes(7), Serial(3))), (None, 1));
}

/// Weights are whole numbers whose mean is the exact weight: over all blocks, and over every
/// second or third one.
#[test]
fn weights_are_rounded_without_bias() {
    let rate = Rate::nearest(Bytes(4096));
    for size in [0_u64, 1, 24, 1000, 3000, 8000, 100_000] {
        let weight = 1.0 / probability(size, 4096);
        for step in [1_u64, 2, 3] {
            let count = 1000;
            let sum: u64 = (0..count).map(|at| rate.weight(Bytes(size), Serial(at * step))).sum();
            assert!((sum as f64 - weight * count as f64).abs() < 8.0, "{size} {step}: {sum}");
        }
    }
}

/// Checks against figures of the detector itself.
#[test]
fn trials_are_the_detectors() {
    let mut random = Random::from_state(Bernoulli::SEED);
    let words = [0x0631_b7e9_bf8e_426d, 0x10b8_3775_7a2b_360b, 0xf325_b600_2298_6e48];
    assert_eq!(core::array::from_fn(|_| random.word()), words);
    let mut trials = Bernoulli::new(Random::from_state(Bernoulli::SEED), 0.003);
    let hits = [16, 128, 1024].map(|count| (0..10_000).filter(|_| trials.trial(count)).count());
    assert_eq!(hits, [511, 3136, 9531]);
    let mut always = Bernoulli::new(Random::new(1), 1.0);
    assert!((0..100).all(|_| always.trial(1) && always.is_chosen(0)));
    assert_eq!(probability_of_stack(1, 1.0), 1.0);
}

/// Blocks of several sizes, one after the other in changing order: each size is chosen as often
/// as it should be, also after a block that was chosen. The bound is five standard deviations;
/// the seed is fixed.
#[test]
fn blocks_are_chosen_with_the_probability_that_is_said() {
    let blocks = if cfg!(miri) { 2_000 } else { 600_000 };
    let sizes = [8_u64, 16, 1000, 24, 5000, 100];
    let (mut trials, mut order) = (Bernoulli::new(Random::new(5), 0.003), Random::new(6));
    let (mut seen, mut chosen) = ([0_u64; 6], [0_u64; 6]);
    for _ in 0..blocks {
        let at = (order.word() >> 32) as usize % sizes.len();
        seen[at] += 1;
        chosen[at] += u64::from(trials.is_chosen(sizes[at]));
    }
    for (at, size) in sizes.into_iter().enumerate() {
        let (p, seen) = (probability_of_stack(size, 0.003), seen[at] as f64);
        assert!((p - (1.0 - 0.997_f64.powf(size as f64))).abs() < 1e-12);
        let deviation = (seen * p * (1.0 - p)).sqrt();
        assert!((chosen[at] as f64 - seen * p).abs() <= 5.0 * deviation + 1.0, "{size}: {} of {seen}", chosen[at]);
    }
}

#[test]
fn seeds_make_different_sequences() {
    let first: [u64; 4] = core::array::from_fn(|seed| Random::new(seed as u64).word());
    assert!(first.iter().enumerate().all(|(at, value)| !first[..at].contains(value)), "{first:?}");
}
