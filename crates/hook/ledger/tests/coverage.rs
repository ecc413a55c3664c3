//! Counts how many error bars hold the truth: samples of blocks whose sizes are equal, uneven, very
//! uneven and without a bound.
//!
//! `cargo test -p heapledger-ledger --test coverage -- --nocapture` prints the table of
//! docs/sampling.md.

use heapledger_core::sample::{Poisson, Random, Rate};
use heapledger_core::{Blocks, Bytes, Serial};
use heapledger_ledger::{Variance, bar_of_blocks, bar_of_bytes};

const MEAN: u64 = 64 << 10;
const RUNS: u64 = 2_000;

/// Returns a number above 0 and below 1.
fn unit(random: &mut Random) -> f64 {
    ((random.word() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

/// Returns a normally distributed number, by Box and Muller.
fn normal(random: &mut Random) -> f64 {
    (-2.0 * unit(random).ln()).sqrt() * (core::f64::consts::TAU * unit(random)).cos()
}

type Draw = fn(&mut Random) -> f64;

const DISTRIBUTIONS: [(&str, Draw); 4] = [
    ("all of 64 bytes", |_| 64.0),
    ("uniform, 1 to 256 bytes", |random| 1.0 + 255.0 * unit(random)),
    ("lognormal, median 100 bytes, σ 1.5", |random| 100.0 * (1.5 * normal(random)).exp()),
    ("Pareto, from 16 bytes, α 1.1", |random| (16.0 / unit(random).powf(1.0 / 1.1)).min(16e6)),
];

/// Makes one run: calls `each` with each sampled block, in turn, and its weight. `ends` are the
/// sums of the blocks' sizes.
fn sample(ends: &[u64], seed: u64, mut each: impl FnMut(u64, u64)) {
    let (mut process, mut at) = (Poisson::new(seed), 0_u64);
    loop {
        let point = at + process.distance(MEAN);
        let block = ends.partition_point(|&end| end < point);
        let Some(&end) = ends.get(block) else { return };
        let size = end - if block > 0 { ends[block - 1] } else { 0 };
        each(size, Rate::nearest(Bytes(MEAN)).weight(Bytes(size), Serial(block as u64 + seed)));
        // The process has no memory: a block is sampled once, however many points are in it.
        at = end;
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many")]
fn error_bars_have_the_truth_as_often_as_they_say() {
    println!("| sizes | blocks | sampled | bytes | blocks, two standard errors | blocks |\n|---|---|---|---|---|---|");
    for (name, draw) in DISTRIBUTIONS {
        for count in [5_000_u64, 20_000, 200_000] {
            let mut random = Random::new(11);
            let mut end = 0;
            let ends: Vec<u64> = (0..count)
                .map(|_| {
                    end += (draw(&mut random) as u64).max(1);
                    end
                })
                .collect();
            let (mut sampled, mut hits) = (0, [0_u32; 3]);
            for seed in 0..RUNS {
                let (mut bytes, mut blocks, mut variance) = (0, 0, Variance::default());
                sample(&ends, seed, |size, weight| {
                    sampled += 1;
                    bytes += size * weight;
                    blocks += weight;
                    variance = variance.plus(Variance::of(Bytes(size), Blocks(weight)));
                });
                let (of_bytes, of_blocks) = variance.errors();
                let bars = [
                    (bytes, end, bar_of_bytes(Bytes(bytes), of_bytes).0),
                    (blocks, count, 2 * of_blocks.0),
                    (blocks, count, bar_of_blocks(Blocks(blocks), of_blocks).0),
                ];
                for (hits, (estimate, truth, bar)) in hits.iter_mut().zip(bars) {
                    *hits += u32::from(estimate.abs_diff(truth) <= bar);
                }
            }
            let [bytes, plain, blocks] = hits.map(|hits| f64::from(hits) / RUNS as f64);
            println!(
                "| {name} | {count} | {:.0} | {:.1} % | {:.1} % | {:.1} % |",
                f64::from(sampled) / RUNS as f64,
                100.0 * bytes,
                100.0 * plain,
                100.0 * blocks
            );
            assert!(bytes > 0.93, "{name}, {count}: {bytes}");
            assert!(blocks > 0.92, "{name}, {count}: {blocks}");
            assert!(blocks >= plain, "{name}, {count}: {blocks}, {plain}");
        }
    }
}
