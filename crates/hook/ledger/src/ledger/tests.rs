//! The ledger against a model that keeps every block in a map and sums up from scratch after every
//! event.

extern crate std;

use std::collections::{BTreeMap, HashMap};
use std::vec::Vec;

use heapledger_core::Blocks;
use heapledger_core::sample::Rate;
use proptest::prelude::*;

use super::*;
use crate::mapped::source::standard::with_mappings;
use crate::register::SERIAL_MAX;

/// Bytes and blocks.
type Amount = (u64, u64);

/// Live amounts by site.
type Sites = BTreeMap<StackId, Amount>;

#[derive(Clone, Default)]
struct SiteModel {
    allocations: u64,
    frees: u64,
    temporaries: u64,
    bytes_allocated: u64,
}

#[derive(Default)]
struct LiveModel {
    now: Amount,
    max: Amount,
    blocks_max: u64,
    time: u64,
}

impl LiveModel {
    /// Notes the sums. True if they are a new peak.
    fn update(&mut self, time: u64, now: Amount) -> bool {
        self.now = now;
        self.blocks_max = self.blocks_max.max(now.1);
        if now.0 > self.max.0 {
            (self.max, self.time) = (now, time);
            return true;
        }
        false
    }

    fn live(&self) -> Live {
        Live {
            bytes_live: Bytes(self.now.0),
            blocks_live: Blocks(self.now.1),
            bytes_live_max: Bytes(self.max.0),
            bytes_live_max_time: Time(self.time),
            blocks_at_bytes_max: Blocks(self.max.1),
            blocks_live_max: Blocks(self.blocks_max),
        }
    }
}

#[derive(Default)]
struct ImageModel {
    blocks: HashMap<Key, Block>,
    /// Out of `blocks`, but live.
    pending: Vec<(ThreadId, Key, Option<Block>)>,
    counts: Counts,
    /// The serial that each thread's latest event returned.
    latest: HashMap<ThreadId, Option<u64>>,
    sites: BTreeMap<StackId, SiteModel>,
    live: LiveModel,
    at_peak: Sites,
    at_session_peak: Sites,
    ended: bool,
}

impl ImageModel {
    fn live_sites(&self) -> Sites {
        let mut sites = Sites::new();
        for block in self.blocks.values().chain(self.pending.iter().filter_map(|(_, _, old)| old.as_ref())) {
            if !block.inherited {
                let (bytes, blocks) = sites.entry(block.stack).or_default();
                *bytes += block.size.0;
                *blocks += 1;
            }
        }
        sites
    }

    fn inherited(&self) -> Amount {
        let all = self.blocks.values().chain(self.pending.iter().filter_map(|(_, _, old)| old.as_ref()));
        all.filter(|block| block.inherited).fold((0, 0), |sum, block| (sum.0 + block.size.0, sum.1 + 1))
    }

    fn release(&mut self, block: Block, by: Option<ThreadId>) {
        if block.inherited {
            self.counts.frees_inherited.0 += 1;
            return;
        }
        let site = self.sites.get_mut(&block.stack).unwrap();
        site.frees += 1;
        self.counts.frees.0 += 1;
        if by.is_some_and(|thread| self.latest.get(&thread) == Some(&Some(block.serial.0))) {
            site.temporaries += 1;
            self.counts.temporaries.0 += 1;
        }
    }

    fn freed(&mut self, thread: ThreadId, old: Option<Block>) {
        match old {
            Some(block) => self.release(block, Some(thread)),
            None => self.counts.frees_unknown.0 += 1,
        }
        self.latest.insert(thread, None);
    }

    fn displace(&mut self, key: Key) -> Option<Block> {
        let displaced = self.blocks.remove(&key)?;
        self.counts.frees_missing.0 += 1;
        self.release(displaced, None);
        Some(displaced)
    }

    fn allocate(&mut self, thread: ThreadId, key: Key, size: Bytes, stack: StackId) {
        let serial = self.counts.allocations.0;
        self.counts.allocations.0 += 1;
        self.counts.bytes_allocated.0 += size.0;
        let site = self.sites.entry(stack).or_default();
        site.allocations += 1;
        site.bytes_allocated += size.0;
        self.blocks.insert(
            key,
            Block { size, stack, serial: Serial(serial), inherited: false, untracked: false, rate: Rate::EXACT },
        );
        self.latest.insert(thread, Some(serial));
    }
}

fn sum(sites: &Sites) -> Amount {
    sites.values().fold((0, 0), |sum, amount| (sum.0 + amount.0, sum.1 + amount.1))
}

/// The ledgers and their models, side by side.
#[derive(Default)]
struct Both {
    session: Session,
    time: u64,
    images: Vec<(Ledger, Vec<Pending>, ImageModel)>,
    live: LiveModel,
}

impl Both {
    /// Sums up what the models have live.
    fn update(&mut self) {
        let mut session = (0, 0);
        for (_, _, model) in &mut self.images {
            let sites = model.live_sites();
            if model.live.update(self.time, sum(&sites)) {
                model.at_peak = sites;
            }
            if !model.ended {
                session = (session.0 + model.live.now.0, session.1 + model.live.now.1);
            }
            let (bytes, blocks) = model.inherited();
            (model.counts.bytes_inherited, model.counts.blocks_inherited) = (Bytes(bytes), Blocks(blocks));
        }
        if self.live.update(self.time, session) {
            for (_, _, model) in &mut self.images {
                model.at_session_peak = if model.ended { Sites::new() } else { model.live_sites() };
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.session.live(), self.live.live());
        let mut at_session_peak = (0, 0);
        for (ledger, _, model) in &self.images {
            assert_eq!(ledger.counts(), model.counts);
            assert_eq!(ledger.live(), model.live.live());
            assert_eq!(ledger.blocks().collect::<HashMap<_, _>>(), model.blocks);
            let suspended = model.pending.iter().filter(|(_, _, old)| old.is_some()).count();
            assert_eq!(ledger.register.reserved(), suspended);
            let counts = ledger.counts();
            assert_eq!(counts.allocations.0 - counts.frees.0, ledger.live().blocks_live.0);

            let live = model.live_sites();
            let amount = |sites: &Sites, stack| sites.get(&stack).copied().unwrap_or_default();
            let expected = model.sites.iter().map(|(&stack, site)| Site {
                stack,
                allocations: Blocks(site.allocations),
                frees: Blocks(site.frees),
                temporaries: Blocks(site.temporaries),
                bytes_allocated: Bytes(site.bytes_allocated),
                bytes_live: Bytes(amount(&live, stack).0),
                blocks_live: Blocks(amount(&live, stack).1),
                bytes_at_peak: Bytes(amount(&model.at_peak, stack).0),
                blocks_at_peak: Blocks(amount(&model.at_peak, stack).1),
                bytes_at_session_peak: Bytes(amount(&model.at_session_peak, stack).0),
                blocks_at_session_peak: Blocks(amount(&model.at_session_peak, stack).1),
                variances: Default::default(),
            });
            let expected: Vec<Site> = expected.collect();
            let mut sites: Vec<Site> = ledger.sites(&self.session).collect();
            sites.sort_by_key(|site| site.stack);
            assert_eq!(sites, expected);
            for site in &sites {
                assert_eq!(ledger.site(&self.session, site.stack), Some(*site));
            }
            assert_eq!(sites.iter().map(|site| site.bytes_at_peak.0).sum::<u64>(), ledger.live().bytes_live_max.0);
            assert_eq!(
                sites.iter().map(|site| site.blocks_at_peak.0).sum::<u64>(),
                ledger.live().blocks_at_bytes_max.0
            );
            at_session_peak.0 += sites.iter().map(|site| site.bytes_at_session_peak.0).sum::<u64>();
            at_session_peak.1 += sites.iter().map(|site| site.blocks_at_session_peak.0).sum::<u64>();
        }
        let live = self.session.live();
        assert_eq!(at_session_peak, (live.bytes_live_max.0, live.blocks_at_bytes_max.0));
    }

    /// Makes a step in the ledger and in the model: a match with one arm per kind of step.
    fn step(&mut self, step: Step) {
        self.time += 1;
        let time = Time(self.time);
        let image = step.image % self.images.len();
        let session = &mut self.session;
        let (ledger, pending, model) = &mut self.images[image];
        let Step { thread, key, size, stack, mappings, .. } = step;
        match step.what {
            What::Allocate => {
                let allocated = with_mappings(mappings, || ledger.allocate(session, time, thread, key, size, stack));
                if let Ok(allocated) = allocated {
                    assert_eq!(allocated.serial.0, model.counts.allocations.0);
                    assert_eq!(allocated.displaced, model.displace(key));
                    model.allocate(thread, key, size, stack);
                } else {
                    assert_ne!(mappings, usize::MAX);
                }
            }
            What::Free => {
                let old = model.blocks.remove(&key);
                assert_eq!(ledger.free(session, thread, key), Freed::new(old));
                model.freed(thread, old);
            }
            What::Begin => {
                let begun = ledger.begin_realloc(thread, key);
                let old = model.blocks.remove(&key);
                assert_eq!(begun.old(), Freed::new(old));
                pending.push(begun);
                model.pending.push((thread, key, old));
            }
            What::Finish if pending.is_empty() => {}
            What::Finish => {
                let which = step.which % pending.len();
                let pending = pending.swap_remove(which);
                let (thread, old_key, old) = model.pending.swap_remove(which);
                match step.outcome {
                    Outcome::Moved | Outcome::InPlace => {
                        let key = if step.outcome == Outcome::Moved { key } else { old_key };
                        model.freed(thread, old);
                        let allocated =
                            with_mappings(mappings, || ledger.finish_realloc(session, time, pending, key, size, stack));
                        if let Ok(allocated) = allocated {
                            assert_eq!(allocated.displaced, model.displace(key));
                            model.allocate(thread, key, size, stack);
                            model.counts.reallocations.0 += 1;
                        } else {
                            assert_ne!(mappings, usize::MAX);
                        }
                    }
                    Outcome::Freed => {
                        ledger.finish_as_free(session, pending);
                        model.freed(thread, old);
                    }
                    Outcome::Failed => {
                        with_mappings(0, || ledger.cancel_realloc(session, pending));
                        ledger.fail();
                        model.counts.failed.0 += 1;
                        if let Some(old) = old
                            && let std::collections::hash_map::Entry::Vacant(free) = model.blocks.entry(old_key)
                        {
                            free.insert(old);
                        } else if let Some(old) = old {
                            model.counts.frees_missing.0 += 1;
                            model.release(old, None);
                        }
                    }
                }
            }
            What::Fail => {
                ledger.fail();
                model.counts.failed.0 += 1;
            }
            What::Fork => {
                let child = ledger.fork().unwrap();
                let inherited = |(&key, &block): (&Key, &Block)| (key, Block { inherited: true, ..block });
                let blocks = model.blocks.iter().map(inherited).collect();
                self.images.push((child, Vec::new(), ImageModel { blocks, ..ImageModel::default() }));
            }
            What::Exec => self.images.push(Default::default()),
            What::End => {
                ledger.end(session);
                model.ended = true;
            }
        }
        self.update();
        self.check();
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Allocate,
    Free,
    Begin,
    Finish,
    Fail,
    Fork,
    Exec,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Moved,
    InPlace,
    Failed,
    Freed,
}

#[derive(Clone, Debug)]
struct Step {
    what: What,
    outcome: Outcome,
    which: usize,
    image: usize,
    thread: ThreadId,
    key: Key,
    size: Bytes,
    stack: StackId,
    /// The number of mappings that succeed during the step.
    mappings: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        40 => Just(What::Allocate),
        30 => Just(What::Free),
        8 => Just(What::Begin),
        8 => Just(What::Finish),
        1 => Just(What::Fail),
        1 => Just(What::Fork),
        1 => Just(What::Exec),
        1 => Just(What::End),
    ];
    let outcome = prop_oneof![
        4 => Just(Outcome::Moved),
        3 => Just(Outcome::InPlace),
        1 => Just(Outcome::Failed),
        1 => Just(Outcome::Freed),
    ];
    // Few keys, so that addresses are reused and displaced.
    let key = prop_oneof![8 => (0_u64..24).prop_map(|n| Key(n * 16)), 1 => (0_u64..500).prop_map(Key)];
    let size = prop_oneof![1 => Just(0), 8 => 0_u64..200, 1 => 0_u64..1 << 40].prop_map(Bytes);
    let stack = prop_oneof![8 => 0_u32..6, 1 => Just(0), 1 => 0_u32..5000].prop_map(StackId);
    let thread = prop_oneof![8 => 0_u32..3, 1 => 0_u32..2000].prop_map(ThreadId);
    let mappings = prop_oneof![6 => Just(usize::MAX), 1 => 0_usize..4];
    (what, outcome, any::<usize>(), any::<usize>(), thread, key, size, stack, mappings).prop_map(
        |(what, outcome, which, image, thread, key, size, stack, mappings)| Step {
            what,
            outcome,
            which,
            image,
            thread,
            key,
            size,
            stack,
            mappings,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 5 } else { 1024 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn sums_up(steps in prop::collection::vec(step(), 1..if cfg!(miri) { 60 } else { 300 })) {
        let mut both = Both { images: std::vec![Default::default()], ..Both::default() };
        for step in steps {
            both.step(step);
        }
    }
}

#[test]
fn serials_end() {
    let (mut session, mut ledger) = (Session::new(), Ledger::new());
    ledger.accounting.serials = SERIAL_MAX.0;
    let mut allocate = |key| ledger.allocate(&mut session, Time(0), ThreadId(0), key, Bytes(1), StackId(1));
    assert_eq!(allocate(Key(16)), Ok(Allocated { serial: SERIAL_MAX, displaced: None }));
    assert_eq!(allocate(Key(32)), Err(OutOfMemory));
    assert_eq!(ledger.free(&mut session, ThreadId(0), Key(32)), Freed::Unknown);
    assert!(matches!(ledger.free(&mut session, ThreadId(0), Key(16)), Freed::Known(Block { serial: SERIAL_MAX, .. })));
}
