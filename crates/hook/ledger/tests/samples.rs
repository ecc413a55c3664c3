//! Estimates of a ledger that has a sample of the blocks: right on average, over many seeds, with
//! the errors that the ledger states.

use heapledger_core::sample::{Poisson, Random, Rate};
use heapledger_core::{Blocks, Bytes, StackId, ThreadId};
use heapledger_ledger::{Freed, Key, Ledger, Sampled, Session, Time, Variance};

const MEAN: u64 = 1 << 10;
const SEEDS: u64 = if cfg!(miri) { 2 } else { 300 };
const BLOCKS: u64 = if cfg!(miri) { 200 } else { 12_000 };
/// Block sizes far below the mean distance of sample points, about it, and above.
const SIZES: [u64; 6] = [16, 100, 300, 1000, 2500, 20_000];

/// A program: allocates blocks of all sizes, each size from a stack of its own, and frees two of
/// three of them.
struct Program {
    order: Random,
}

impl Program {
    /// The size of the next block, and whether it is freed.
    fn step(&mut self) -> (usize, bool) {
        let word = self.order.word();
        // Small blocks are more frequent.
        let size = ((word >> 40) % 64).trailing_ones() as usize % SIZES.len();
        (size, !(word >> 20).is_multiple_of(3))
    }
}

/// The sums over the seeds of the estimates of one figure.
#[derive(Clone, Copy, Default)]
struct Estimates {
    sum: f64,
    squares: f64,
    covered: u32,
    /// The estimated variances.
    variances: f64,
}

impl Estimates {
    fn add(&mut self, estimate: u64, variance: u128, truth: u64) {
        let off = estimate as f64 - truth as f64;
        self.sum += off;
        self.squares += off * off;
        self.variances += variance as f64;
        self.covered += u32::from(off.abs() <= 2.0 * (variance as f64).sqrt() + 1.0);
    }

    fn check(&self, what: &str, truth: u64) {
        let seeds = SEEDS as f64;
        let bias = self.sum / seeds;
        assert!(bias.abs() <= 0.02 * truth as f64, "{what}: off by {bias} of {truth} on average");
        let (deviation, stated) = ((self.squares / seeds).sqrt(), (self.variances / seeds).sqrt());
        assert!(bias.abs() <= 4.0 * deviation / seeds.sqrt() + 1.0, "{what}: off by {bias}, {deviation}");
        assert!((stated / deviation.max(1.0) - 1.0).abs() < 0.2 || deviation < 2.0, "{what}: {stated} for {deviation}");
        let covered = f64::from(self.covered) / seeds;
        assert!(covered > 0.88, "{what}: {covered} of the error bars have the truth");
    }
}

/// Each run has a sampler of its own. Compares estimates with the truth: for all allocations, for
/// live blocks and for the peak; and for each stack, allocated and live.
#[test]
fn estimates_are_right_on_average_and_know_their_errors() {
    let stacks = 1 + SIZES.len();
    // The totals come first, then a row per stack: allocated and live, in bytes and blocks; for the
    // totals also the peak.
    let mut found = vec![[Estimates::default(); 6]; stacks];
    let mut truth = vec![[0_u64; 6]; stacks];
    for seed in 0..SEEDS {
        let (mut ledger, mut session) = (Ledger::new(), Session::new());
        let (mut process, mut until) = (Poisson::new(seed), 0);
        let mut program = Program { order: Random::new(7) };
        truth.iter_mut().for_each(|of| *of = [0; 6]);
        let rate = Rate::nearest(Bytes(MEAN));
        for number in 0..BLOCKS {
            let (at, is_freed) = program.step();
            let size = SIZES[at];
            for of in [0, at + 1] {
                for (figure, more) in [(0, size), (1, 1), (2, size), (3, 1)] {
                    truth[of][figure] += more;
                }
                truth[of][4] = truth[of][4].max(truth[of][2]);
                truth[of][5] = truth[of][5].max(truth[of][3]);
            }
            if until == 0 {
                until = process.distance(MEAN);
            }
            let key = Key(0x1000 + number * 16);
            if until > size {
                until -= size;
            } else {
                until = process.distance(MEAN);
                let new = Sampled { size: Bytes(size), rate };
                let stack = StackId(at as u32 + 1);
                let _ = ledger.allocate(&mut session, Time(number), ThreadId(0), key, new, stack).unwrap();
            }
            if is_freed {
                // The program frees it whether it is in the sample or not.
                let _: Freed = ledger.free_if_known(&mut session, ThreadId(0), key);
                for of in [0, at + 1] {
                    truth[of][2] -= size;
                    truth[of][3] -= 1;
                }
            }
        }
        let (counts, live, variances) = (ledger.counts(), ledger.live(), ledger.variances());
        let mut add = |of: usize, first: usize, (bytes, blocks): (Bytes, Blocks), variance: Variance| {
            found[of][first].add(bytes.0, variance.bytes, truth[of][first]);
            found[of][first + 1].add(blocks.0, variance.blocks, truth[of][first + 1]);
        };
        add(0, 0, (counts.bytes_allocated, counts.allocations), variances.allocated);
        add(0, 2, (live.bytes_live, live.blocks_live), variances.live);
        assert_eq!((session.live(), session.variances().live), (live, variances.live));
        for site in ledger.sites(&session) {
            let of = site.stack.0 as usize;
            add(of, 0, (site.bytes_allocated, site.allocations), site.variances.allocated);
            add(of, 2, (site.bytes_live, site.blocks_live), site.variances.live);
        }
        // The totals of the sites add up to the whole, to the byte.
        let sum =
            |figure: fn(&heapledger_ledger::Site) -> u64| ledger.sites(&session).map(|site| figure(&site)).sum::<u64>();
        assert_eq!(sum(|site| site.bytes_live.0), live.bytes_live.0);
        assert_eq!(sum(|site| site.bytes_at_peak.0), live.bytes_live_max.0);
        let at_peak = ledger.sites(&session).map(|site| site.variances.at_peak);
        assert_eq!(at_peak.fold(Variance::default(), Variance::plus), variances.at_peak);
        let at_session_peak = ledger.sites(&session).map(|site| site.variances.at_session_peak);
        assert_eq!(at_session_peak.fold(Variance::default(), Variance::plus), session.variances().at_peak);
    }
    if cfg!(miri) {
        return;
    }
    for (of, estimates) in found.iter().enumerate() {
        for (figure, name) in ["bytes allocated", "allocations", "live bytes", "live blocks"].into_iter().enumerate() {
            estimates[figure].check(&format!("{name} of {of}"), truth[of][figure]);
        }
    }
}

/// When all blocks are freed, their weights are gone from the totals.
#[test]
fn estimates_return_to_zero() {
    let (mut ledger, mut session) = (Ledger::new(), Session::new());
    let mut order = Random::new(3);
    let mut live = Vec::new();
    for number in 0..2000_u64 {
        let (size, logarithm) = (Bytes(order.word() >> 44), order.word() >> 59);
        let (key, stack) = (Key(number * 16), StackId((number % 7) as u32));
        let new = Sampled { size, rate: Rate::from_logarithm(logarithm) };
        let _ = ledger.allocate(&mut session, Time(number), ThreadId(0), key, new, stack).unwrap();
        live.push(key);
        if number % 5 == 0 {
            assert_eq!(ledger.reattribute_block(&session, key, StackId(9)), Ok(true));
        }
        if number % 3 == 0 {
            let old = live.swap_remove(order.index(live.len()));
            let pending = ledger.begin_realloc(ThreadId(0), old);
            let _ = ledger.finish_realloc(&mut session, Time(number), pending, old, new, stack).unwrap();
            live.push(old);
        }
    }
    let (whole, variances) = (ledger.live(), ledger.variances());
    assert!(whole.bytes_live.0 > 0 && variances.live.bytes > 0 && variances.at_peak != Variance::default());
    for key in live {
        let Freed::Known(block) = ledger.free_if_known(&mut session, ThreadId(0), key) else { panic!("{key:?}") };
        assert!(block.weight().0 >= 1);
    }
    assert_eq!(ledger.free_if_known(&mut session, ThreadId(0), Key(16)), Freed::Unknown);
    let counts = ledger.counts();
    assert_eq!((counts.frees_unknown, counts.allocations), (Blocks(0), counts.frees));
    assert_eq!((ledger.live().bytes_live, ledger.live().blocks_live), (Bytes(0), Blocks(0)));
    assert_eq!((ledger.variances().live, session.variances().live), Default::default());
    assert!(ledger.sites(&session).all(|site| site.variances.live == Variance::default()));
    assert_eq!(ledger.variances().at_peak, variances.at_peak);
}
