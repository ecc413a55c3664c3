//! Another allocator, or other options: by a replay of the program's calls.

use heapledger_core::Bytes;
use heapledger_core::allocator::AllocatorKind;

use super::{Advice, AdviceList, Finding, is_part};

pub(super) const NAME: &str = "allocator";

/// The allocator that programs have if nothing else is said.
const SYSTEM: &str = "system";
/// The least saving of memory that is worth a change: of the peak, in percent, and in bytes.
const MEMORY_PERCENT: u64 = 5;
const BYTES_MIN: u64 = 1 << 20;
/// The least saving of time that is worth a change: of the time of all calls, in percent, and in
/// nanoseconds.
const TIME_PERCENT: u64 = 10;
const TIME_MIN_NS: u64 = 10_000_000;
/// Peaks that differ by less, in percent of the smallest, are equal: the faster allocator wins.
const EQUAL_PERCENT: u64 = 1;
/// Options must save more time than this, in percent: otherwise the allocator without them wins.
const OPTIONS_PERCENT: u64 = 10;

/// The figures of an allocator in a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedAllocator {
    /// Its name, with variables in front of it.
    pub name: String,
    /// The most resident memory beyond that before the first call.
    pub resident_max: Bytes,
    /// The processor time of all calls in nanoseconds.
    pub cpu_ns: u64,
}

/// An allocator that saves memory or time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherAllocator {
    /// The one that the program has, as recorded; `system`, or the first one of the replay, if that
    /// was not replayed.
    pub present: ReplayedAllocator,
    /// The other one.
    pub other: ReplayedAllocator,
    /// True if it was chosen for the memory that it saves, otherwise for the time.
    pub saves_memory: bool,
}

impl AdviceList {
    /// Adds advice by a replay: the allocator that saves most memory, and the one that saves most
    /// time, if these savings are worth a change. `recorded` are the allocators of the recorded
    /// processes: if they had the same, savings are compared with that one. Bytes at stake: the
    /// difference of the peaks. Allocators that did not answer all requests must not be among them.
    pub fn add_replay(&mut self, allocators: &[ReplayedAllocator], recorded: &[AllocatorKind]) {
        let named = |name: &str| allocators.iter().find(|allocator| allocator.name == name);
        let own = recorded.first().filter(|first| recorded.iter().all(|kind| kind == *first));
        let present = own.and_then(|kind| named(name_of(*kind))).or(named(SYSTEM)).or(allocators.first());
        let Some(present) = present else { return };
        let smallest = allocators.iter().map(|allocator| allocator.resident_max.0).min().unwrap_or(0);
        let limit = u128::from(smallest) * u128::from(100 + EQUAL_PERCENT);
        let as_small = |allocator: &&ReplayedAllocator| u128::from(allocator.resident_max.0) * 100 <= limit;
        let smallest = fastest(allocators.iter().filter(as_small));
        let fastest = fastest(allocators.iter());
        let saved = |other: &ReplayedAllocator| present.resident_max.0.saturating_sub(other.resident_max.0);
        let smallest = smallest
            .filter(|other| saved(other) >= BYTES_MIN && is_part(saved(other), present.resident_max.0, MEMORY_PERCENT));
        let fastest = fastest.filter(|other| {
            let saved = present.cpu_ns.saturating_sub(other.cpu_ns);
            saved >= TIME_MIN_NS && is_part(saved, present.cpu_ns, TIME_PERCENT) && Some(*other) != smallest
        });
        for (other, saves_memory) in [(smallest, true), (fastest, false)] {
            if let Some(other) = other {
                let finding = OtherAllocator { present: present.clone(), other: other.clone(), saves_memory };
                let bytes = Bytes(saved(other));
                self.advice.push(Advice { finding: Finding::Allocator(finding), bytes, owner: None });
            }
        }
        self.advice.sort_by_key(|advice| std::cmp::Reverse(advice.bytes));
    }

    /// Says that no replay is there.
    pub fn skip_replay(&mut self) {
        self.skip(NAME, "no replay is given by --replay");
    }
}

/// Returns the name that an allocator has in a replay.
fn name_of(kind: AllocatorKind) -> &'static str {
    match kind {
        AllocatorKind::Jemalloc => "jemalloc",
        AllocatorKind::Tcmalloc => "tcmalloc",
        AllocatorKind::Mimalloc => "mimalloc",
        AllocatorKind::Heapledger => "heapledger",
        AllocatorKind::Unknown | AllocatorKind::Other | AllocatorKind::Glibc => SYSTEM,
    }
}

/// Returns the fastest of allocators, and one without options if these hardly make a difference.
fn fastest<'a>(allocators: impl Iterator<Item = &'a ReplayedAllocator> + Clone) -> Option<&'a ReplayedAllocator> {
    let fastest = allocators.clone().min_by_key(|allocator| allocator.cpu_ns)?;
    let limit = fastest.cpu_ns.saturating_mul(100 + OPTIONS_PERCENT) / 100;
    let plain = allocators.filter(|allocator| !allocator.has_options() && allocator.cpu_ns <= limit);
    plain.min_by_key(|allocator| allocator.cpu_ns).or(Some(fastest))
}

impl ReplayedAllocator {
    /// True if there are variables in front of the name.
    fn has_options(&self) -> bool {
        self.split().0.is_some()
    }

    /// Returns the variables in front of the name, if there are any, and the name alone.
    pub fn split(&self) -> (Option<&str>, &str) {
        let mut at = 0;
        for word in self.name.split_inclusive(' ') {
            if !word.trim_start().contains('=') || word.starts_with(['.', '/']) {
                break;
            }
            at += word.len();
        }
        let (variables, name) = self.name.split_at(at);
        (Some(variables.trim_end()).filter(|variables| !variables.is_empty()), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advised(allocators: &[(&str, u64, u64)]) -> Vec<(String, u64, bool)> {
        advised_to(&[AllocatorKind::Glibc], allocators)
    }

    fn advised_to(recorded: &[AllocatorKind], allocators: &[(&str, u64, u64)]) -> Vec<(String, u64, bool)> {
        let allocator = |&(name, mebibytes, milliseconds): &(&str, u64, u64)| ReplayedAllocator {
            name: name.to_owned(),
            resident_max: Bytes(mebibytes << 20),
            cpu_ns: milliseconds * 1_000_000,
        };
        let mut list = AdviceList::default();
        list.add_replay(&allocators.iter().map(allocator).collect::<Vec<_>>(), recorded);
        let found = list.advice.iter().map(|advice| match &advice.finding {
            Finding::Allocator(found) => (found.other.name.clone(), advice.bytes.0 >> 20, found.saves_memory),
            _ => panic!("{advice:?}"),
        });
        found.collect()
    }

    #[test]
    fn variables_are_split_off() {
        let split = |name: &str| {
            let allocator = ReplayedAllocator { name: name.to_owned(), resident_max: Bytes(0), cpu_ns: 0 };
            let (variables, name) = allocator.split();
            (variables.map(str::to_owned), name.to_owned())
        };
        assert_eq!(split("A=1 B=x=2 jemalloc"), (Some("A=1 B=x=2".to_owned()), "jemalloc".to_owned()));
        assert_eq!(split("./a lib=1.so"), (None, "./a lib=1.so".to_owned()));
        assert_eq!(split("A= /x=1.so"), (Some("A=".to_owned()), "/x=1.so".to_owned()));
    }

    #[test]
    fn savings_are_those_of_the_recorded_program() {
        let all = [("system", 500, 1000), ("jemalloc", 200, 1000), ("mimalloc", 100, 1000)];
        let saved = |recorded: &[AllocatorKind]| advised_to(recorded, &all)[0].1;
        assert_eq!(saved(&[AllocatorKind::Jemalloc; 2]), 100);
        assert_eq!(advised_to(&[AllocatorKind::Mimalloc], &all), []);
        // One that was not replayed, and several.
        for recorded in [&[AllocatorKind::Heapledger][..], &[AllocatorKind::Jemalloc, AllocatorKind::Glibc], &[]] {
            assert_eq!(saved(recorded), 400);
        }
    }

    #[test]
    fn most_memory_and_most_time() {
        let named = |name: &str, bytes, memory| (name.to_owned(), bytes, memory);
        assert_eq!(advised(&[]), []);
        assert_eq!(advised(&[("a", 100, 100), ("system", 90, 90)]), []);
        // Less than a twentieth, and less than a tenth.
        assert_eq!(advised(&[("system", 1000, 1000), ("a", 951, 901)]), []);
        assert_eq!(advised(&[("system", 1000, 1000), ("a", 950, 1500)]), [named("a", 50, true)]);
        assert_eq!(advised(&[("system", 100, 1000), ("a", 200, 900)]), [named("a", 0, false)]);
        // The faster one of two that are as small; another one is faster still.
        let all = [("system", 500, 1000), ("small", 200, 800), ("a=1 smaller", 199, 1200), ("fast", 400, 300)];
        assert_eq!(advised(&all), [named("small", 300, true), named("fast", 100, false)]);
        // Options that hardly save time.
        let all = [("system", 500, 1000), ("b=2 small", 200, 800), ("small", 200, 850)];
        assert_eq!(advised(&all), [named("small", 300, true), named("b=2 small", 300, false)][..1]);
        // Figures of a file, which may be anything.
        let most = u64::MAX >> 20;
        assert_eq!(advised(&[("system", most, 1000), ("a", 100, 1000)]), [named("a", most - 100, true)]);
        // The first one is the present one if there is no other.
        assert_eq!(advised(&[("x", 100, 10), ("y", 10, 10)]), [named("y", 90, true)]);
    }
}
