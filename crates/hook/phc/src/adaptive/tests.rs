use std::boxed::Box;

use heapledger_core::sample::Random;

use super::*;

/// Simulates runs of a program that allocates at one stack all the time, and at another once in
/// `rarity` allocations. Returns the runs out of `runs` in which a block of the rare stack was
/// sampled.
fn runs_that_find(is_adaptive: bool, runs: u64, allocations: u64, rarity: u64) -> u64 {
    const NORMAL: u64 = 1024;
    let mut found = 0;
    for run in 0..runs {
        let mut random = Random::new(run + 1);
        let counters = Box::new([const { AtomicU16::new(0) }; COUNTERS]);
        let mut draw = |mean: u64| random.below(2 * mean) + 1;
        let mut at = draw(NORMAL);
        let mut is_found = false;
        while at <= allocations {
            let stack = if at % rarity == 0 { 2 } else { 1 };
            let is_sampled = !is_adaptive || accepts_among(&counters, stack, draw(1 << 40));
            is_found |= is_sampled && stack == 2;
            at += draw(if is_sampled { NORMAL } else { NORMAL / countdown::RETRY_SHARE });
        }
        found += u64::from(is_found);
    }
    found
}

#[test]
fn a_rare_stack_is_found_in_a_fifth_of_the_runs() {
    // About one run in forty samples the rare stack without adaption.
    let plain = runs_that_find(false, 400, 1 << 20, 40_009);
    let adaptive = runs_that_find(true, 400, 1 << 20, 40_009);
    assert!(plain > 0 && adaptive >= 5 * plain, "{plain} {adaptive}");
}

#[test]
fn a_stack_that_was_sampled_often_is_sampled_seldom() {
    let counters = Box::new([const { AtomicU16::new(0) }; COUNTERS]);
    let mut random = Random::new(7);
    assert!(accepts_among(&counters, 5, random.word()));
    let accepted = (0..20_000).filter(|_| accepts_among(&counters, 5, random.word())).count();
    // The square root of twice the number of candidates is 200.
    assert!((120..300).contains(&accepted), "{accepted}");
}
