//! Sizes for which the allocator takes much more memory than the program uses.

use heapledger_core::allocator::AllocatorKind;
use heapledger_core::{Blocks, Bytes};
use heapledger_recording::Recording;

use super::{Advice, AdviceList, Finding, is_part};
use crate::error::Error;
use crate::moment::Moment;
use crate::names::Names;
use crate::parts::{Part, PartBy, parts};
use crate::progress::Progress;
use crate::selection::Selection;
use crate::size_rules::SizeRule;

pub(super) const NAME: &str = "slop";

/// The least share of a block's memory that is unused, in percent.
const SLOP_PERCENT: u64 = 20;
/// The least unused memory at the peak: this many bytes, and this percentage of all that was live.
const SLOP_MIN: Bytes = Bytes(64 << 10);
const LIVE_PERCENT: u64 = 5;

/// Allocators whose size classes differ from glibc's.
const OTHERS: [&str; 6] = ["libjemalloc", "libtcmalloc", "libmimalloc", "libsnmalloc", "libhoard", "ld-musl"];

/// Blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slop {
    /// The requested size.
    pub size: Bytes,
    /// The bytes that the allocator takes for one block; of glibc, including its own word.
    pub taken: Bytes,
    /// The number of blocks live at the peak.
    pub blocks: Blocks,
}

/// Finds sizes with much slop. Bytes at stake: those unused at the peak.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let rule = match rule_of(names.recording()) {
        Ok(rule) => rule,
        Err(why) => {
            list.skip(NAME, why);
            return Ok(());
        }
    };
    let found = parts(names, PartBy::Size, &selection.with_moment(Moment::Peak), progress)?;
    list.damage.extend(&found.damage);
    let least = SLOP_MIN.0.max(found.whole.peak.bytes.0 / 100 * LIVE_PERCENT);
    for (part, moment_amounts) in found.parts {
        let Part::Size(size) = part else { continue };
        let (taken, blocks) = (taken(rule, size), moment_amounts.peak.blocks);
        let unused = taken.0.saturating_sub(size.0);
        let slop = unused.saturating_mul(blocks.0);
        if !is_part(unused, taken.0, SLOP_PERCENT) || slop < least {
            continue;
        }
        let finding = Finding::Slop(Slop { size, taken, blocks });
        list.advice.push(Advice { finding, bytes: Bytes(slop), owner: None });
    }
    Ok(())
}

/// Returns the rule for the sizes of the recorded programs' allocator, or why there is none. An
/// allocator that was not recorded is glibc's unless a library of another one is loaded; without
/// any module, as in a recording of a log, it may be any.
pub(super) fn rule_of(recording: &Recording<'_>) -> Result<SizeRule, &'static str> {
    const NOT_KNOWN: &str = "the program has an allocator of its own, whose sizes are not known";
    const UNSAID: &str = "the recording does not say which allocator the program had";
    let is_other = |path: &[u8]| {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        OTHERS.iter().any(|other| name.starts_with(other.as_bytes()))
    };
    let mut rules = recording.images().iter().map(|start| match start.allocator {
        AllocatorKind::Unknown if recording.modules().is_empty() => Err(UNSAID),
        AllocatorKind::Unknown if recording.modules().iter().any(|module| is_other(&module.path)) => Err(NOT_KNOWN),
        AllocatorKind::Unknown => Ok(SizeRule::Glibc),
        kind => SizeRule::of(kind, start.allocator_version).ok_or(NOT_KNOWN),
    });
    let first = rules.next().unwrap_or(Ok(SizeRule::Glibc))?;
    if rules.all(|rule| rule == Ok(first)) { Ok(first) } else { Err("the programs have different allocators") }
}

/// Returns the bytes that an allocator takes for a block: for all but glibc, its usable size.
fn taken(rule: SizeRule, size: Bytes) -> Bytes {
    if rule == SizeRule::Glibc { taken_by_glibc(size) } else { rule.usable(size) }
}

/// Returns the bytes that glibc takes for a block on x86-64: the size and a word before it, rounded
/// up to a multiple of 16 bytes, at least 32 (`request2size` in its `malloc.c`).
fn taken_by_glibc(size: Bytes) -> Bytes {
    Bytes(size.0.saturating_add(8).max(32).checked_next_multiple_of(16).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fuzzing, testing};

    #[test]
    fn a_log_does_not_say_which_allocator_it_was() {
        let rule = |bytes: &[u8]| rule_of(&Recording::open(bytes).unwrap());
        assert!(rule(&fuzzing::recording_of(b"1 1 malloc(9)=#1").0).is_err());
        assert_eq!(rule(&testing::write(&[]).0), Ok(SizeRule::Glibc));
    }

    #[test]
    fn small_blocks_take_a_multiple_of_sixteen() {
        for (size, expected) in [(0, 32), (1, 32), (24, 32), (25, 48), (40, 48), (41, 64), (1000, 1008)] {
            assert_eq!(taken_by_glibc(Bytes(size)), Bytes(expected), "{size}");
        }
    }
}
