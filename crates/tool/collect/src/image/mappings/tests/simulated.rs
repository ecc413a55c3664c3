//! A kernel and threads whose steps are interleaved at random, with the events that the hook
//! writes.

use super::*;

/// The pages of a simulated process, each with the number of the call that mapped it.
#[derive(Default)]
struct Kernel {
    pages: BTreeMap<u64, u32>,
}

impl Kernel {
    /// Returns the lowest gap, so that addresses are used again at once.
    fn gap(&self, pages: u64) -> u64 {
        let mut first = 16;
        for &page in self.pages.keys() {
            if page >= first + pages {
                break;
            }
            first = first.max(page + 1);
        }
        first
    }

    fn map(&mut self, first: u64, pages: u64, number: u32) {
        self.pages.extend((first..first + pages).map(|page| (page, number)));
    }

    fn unmap(&mut self, first: u64, pages: u64) {
        self.pages.retain(|page, _| !(first..first + pages).contains(page));
    }

    /// Moves as mremap(2) does. Returns the new address.
    fn relocate(&mut self, from: (u64, u64), pages: u64, target: Option<u64>, number: u32) -> u64 {
        let (first, old) = from;
        if pages <= old && target.is_none() {
            self.unmap(first + pages, old - pages);
            return first;
        }
        let to = target.unwrap_or_else(|| self.gap(pages));
        self.unmap(to, pages);
        for offset in 0..pages {
            let moved = self.pages.get(&(first + offset)).filter(|_| offset < old).copied();
            self.pages.insert(to + offset, moved.unwrap_or(number));
        }
        self.unmap(first, old);
        to
    }
}

/// A call in progress, and the number of its steps that have been done.
#[derive(Clone, Copy)]
enum Progress {
    Map { pages: u64, at: Option<u64>, result: u64 },
    Unmap { range: (u64, u64) },
    Move { range: (u64, u64), pages: u64, target: Option<u64>, result: u64, has_turn: bool },
}

struct Simulation {
    kernel: Kernel,
    events: Vec<Call>,
    /// The ranges that no call is about.
    idle: Vec<(u64, u64)>,
    /// By thread: the calls in progress, of which all but the first are a signal handler's.
    threads: Vec<Vec<(Progress, u32)>>,
    turn: Option<usize>,
    random: u64,
    number: u32,
}

impl Simulation {
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % end
    }

    fn take_idle(&mut self) -> Option<(u64, u64)> {
        if self.idle.is_empty() {
            return None;
        }
        let index = self.below(self.idle.len() as u64) as usize;
        Some(self.idle.swap_remove(index))
    }

    /// Begins a call in a thread.
    fn begin(&mut self, thread: usize) {
        let pages = 1 + self.below(6);
        let new = Progress::Map { pages, at: None, result: 0 };
        let range = if self.idle.len() > 3 { self.take_idle() } else { None };
        let progress = match (range, self.below(5)) {
            (None, _) => new,
            (Some(range), 0) => Progress::Map { pages: range.1, at: Some(range.0), result: 0 },
            // A part of it is left.
            (Some((first, pages)), 1) if pages > 1 => {
                self.idle.push((first + 1, pages - 1));
                Progress::Unmap { range: (first, 1) }
            }
            // A signal handler maps and unmaps.
            (Some(range), choice) if choice < 3 || !self.threads[thread].is_empty() => Progress::Unmap { range },
            (Some(range), choice) => {
                let target = if choice == 3 { self.take_idle() } else { None };
                let pages = target.map_or(pages, |(_, pages)| pages);
                let target = target.map(|(first, _)| first);
                Progress::Move { range, pages, target, result: 0, has_turn: false }
            }
        };
        self.threads[thread].push((progress, 0));
    }

    fn event(&mut self, thread: usize, call: MapCall, step: MapStep, range: (u64, u64), arguments: [u64; 3]) {
        let (time, stack) = (Time(self.events.len() as u64 + 10), StackId(self.number));
        let ((first, pages), thread) = (range, ThreadId(thread as u32));
        let (address, length) = (first * PAGE, pages * PAGE);
        self.events.push(Call { time, thread, stack, call, step, is_allocators: false, address, length, arguments });
    }

    /// Does the next step of a thread's innermost call. Steps are made in the order of the hook's:
    /// see `recorder/src/hook/mappings/calls.rs`.
    fn advance(&mut self, thread: usize) {
        let Some((mut progress, step)) = self.threads[thread].pop() else { return };
        self.number += 1;
        let mut is_done = step == 1;
        match (&mut progress, step) {
            (Progress::Map { pages, at, result }, 0) => {
                // The number is that of the event.
                *result = at.unwrap_or_else(|| self.kernel.gap(*pages));
                self.kernel.map(*result, *pages, u32::MAX);
            }
            (Progress::Map { pages, result, .. }, _) => {
                self.kernel.map(*result, *pages, self.number);
                self.event(thread, MapCall::Mmap, MapStep::Done, (*result, *pages), [3, 0x22, 0]);
                self.idle.push((*result, *pages));
            }
            (Progress::Unmap { range }, 0) => self.event(thread, MapCall::Munmap, MapStep::Begins, *range, [0; 3]),
            (Progress::Unmap { range: (first, pages) }, _) => self.kernel.unmap(*first, *pages),
            (Progress::Move { range, has_turn, .. }, 0) => {
                if self.turn.is_some_and(|holder| holder != thread) {
                    return self.threads[thread].push((progress, 0));
                }
                *has_turn = self.turn.replace(thread).is_none();
                self.event(thread, MapCall::Mremap, MapStep::Begins, *range, [0; 3]);
            }
            (Progress::Move { range, pages, target, result, .. }, 1) => {
                is_done = false;
                *result = self.kernel.relocate(*range, *pages, *target, u32::MAX);
            }
            (Progress::Move { range: (first, old), pages, result, has_turn, .. }, _) => {
                is_done = true;
                let to = (*result, *pages);
                let grown = self.kernel.pages.range_mut(to.0..to.0 + to.1).filter(|(_, number)| **number == u32::MAX);
                grown.for_each(|(_, number)| *number = self.number);
                self.event(thread, MapCall::Mremap, MapStep::Done, to, [1, *first * PAGE, *old * PAGE]);
                self.idle.push(to);
                if *has_turn {
                    self.turn = None;
                }
            }
        }
        if !is_done {
            self.threads[thread].push((progress, step + 1));
        }
    }

    /// Runs calls in threads, until so many have begun and all have ended.
    fn run(threads: usize, calls: u32, seed: u64) -> Simulation {
        let mut simulation = Simulation {
            kernel: Kernel::default(),
            events: Vec::new(),
            idle: Vec::new(),
            threads: vec![Vec::new(); threads],
            turn: None,
            random: seed,
            number: 10,
        };
        let mut begun = 0;
        while begun < calls || simulation.threads.iter().any(|thread| !thread.is_empty()) {
            let thread = simulation.below(threads as u64) as usize;
            let depth = simulation.threads[thread].len();
            // A signal in the middle of a call now and then.
            let begins = depth == 0 || (depth < 3 && simulation.below(12) == 0);
            if begun < calls && begins {
                simulation.begin(thread);
                begun += 1;
            } else {
                simulation.advance(thread);
            }
        }
        simulation
    }

    /// Returns true if the events, as the recorder applies them, lead to what the kernel has.
    fn agrees(&self) -> bool {
        let mut mappings = mappings();
        self.events.iter().for_each(|call| mappings.apply_in_turn(call));
        assert!(mappings.moving.is_empty() && mappings.waiting.is_empty(), "all moves have ended");
        let mut found = BTreeMap::new();
        for piece in mappings.mapped.space.pieces() {
            let number = mappings.mapped.known[&piece.serial].stack.0;
            let first = piece.start / PAGE;
            found.extend((first..first + piece.bytes.0 / PAGE).map(|page| (page, number)));
        }
        found == self.kernel.pages
    }
}

proptest! {
    /// Whatever the order in which threads come to their turns, and whenever their signal handlers
    /// map and unmap, what is recorded is what the kernel has.
    #[test]
    fn recorded_ranges_are_the_kernels(threads in 1_usize..9, calls in 1_u32..400, seed: u64) {
        prop_assert!(Simulation::run(threads, calls, seed).agrees());
    }
}
