//! Estimates from the blocks whose stacks are known are right on average, and their errors are as
//! large as stated.

use heapledger_core::sample::Random;
use heapledger_dmd::{Analysis, Block, Builder, DmdOptions, KindName, Mode, Sampling, TraceId};

const PROBABILITY: f64 = 0.003;

/// Sites, each with blocks of one size.
const SITES: [(u64, u64); 4] = [(16, 20_000), (100, 3_000), (1024, 300), (100_000, 3)];

fn analysis(random: &mut Random) -> Analysis {
    let mut builder = Builder::new(Mode::Live);
    builder.about().sampling = Some(Sampling { probability: PROBABILITY });
    for (site, (size, count)) in SITES.into_iter().enumerate() {
        let frame = builder.frame(&format!("site_{site} (a.c:{site})"));
        let trace = builder.trace(&[frame]);
        let chance = 1.0 - (1.0 - PROBABILITY).powf(size as f64);
        for _ in 0..count {
            let alloc: Option<TraceId> = (random.unit() < chance).then_some(trace);
            let (reports, type_name, context) = ([None; 2], None, None);
            let (slop, count, weight, variance) = (0, 1, 1.0, 0.0);
            builder.add(&Block { requested: size, slop, count, weight, variance, alloc, reports, type_name, context });
        }
    }
    Analysis::of(&builder.finish(), &DmdOptions::default())
}

#[test]
fn sites_are_estimated_without_bias_and_within_their_errors() {
    const ROUNDS: usize = 60;
    let mut random = Random::new(1);
    let total: i64 = SITES.iter().map(|(size, count)| (size * count) as i64).sum();
    let mut sums = [0.0; SITES.len()];
    let mut within = [0; 2];
    for _ in 0..ROUNDS {
        let analysis = analysis(&mut random);
        let kind = analysis.kind(KindName::Live).unwrap();
        assert!(analysis.is_estimated);
        assert_eq!((analysis.heap.bytes, kind.total.bytes), (total, total), "all blocks have been counted");
        for record in &kind.records {
            let site = SITES.iter().position(|(size, _)| record.sizes[0].0 == *size as i64).unwrap();
            assert!(record.alloc[0].starts_with(&format!("site_{site} ")), "no record without a stack: {record:?}");
            let truth = (SITES[site].0 * SITES[site].1) as f64;
            let error = record.estimate.unwrap().bytes_error;
            sums[site] += record.usable as f64;
            if site < 3 {
                let off = (record.usable as f64 - truth).abs();
                within[0] += usize::from(off <= error);
                within[1] += usize::from(off <= 3.0 * error);
            }
        }
    }
    for (sum, (size, count)) in sums.into_iter().zip(SITES) {
        let off = sum / ROUNDS as f64 / (size * count) as f64 - 1.0;
        assert!(off.abs() < 0.02, "blocks of {size}: {off}");
    }
    // In a normal distribution, 68 % and 99.7 %.
    let share = within.map(|count| count as f64 / (ROUNDS * 3) as f64);
    assert!((0.55..0.85).contains(&share[0]) && share[1] > 0.97, "{share:?}");
}
