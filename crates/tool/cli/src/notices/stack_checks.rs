//! The comparison of stacks with the C library's (`record --verify-stacks`): each is verified,
//! mismatched, or incomparable for one of a few reasons.

use heapledger_recording::StackCounts;
use serde::Serialize;

use crate::format::count;

/// The three classes, which add up to the number of stacks, and the reasons that add up to the last
/// class.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StackChecksJson {
    stacks_verified: u64,
    stacks_mismatched: u64,
    stacks_incomparable: u64,
    stacks_incomparable_unasked: u64,
    stacks_incomparable_outlasting: u64,
    stacks_incomparable_missing: u64,
}

impl StackChecksJson {
    /// Returns the classes of these counts. If stacks were not verified, no stack counts as
    /// incomparable for being missing.
    pub(crate) fn new(stacks: &StackCounts) -> StackChecksJson {
        let missing = if stacks.were_verified() { stacks.missing } else { 0 };
        StackChecksJson {
            stacks_verified: stacks.verified,
            stacks_mismatched: stacks.mismatched,
            stacks_incomparable: StackCounts { missing, ..*stacks }.incomparable(),
            stacks_incomparable_unasked: stacks.unasked,
            stacks_incomparable_outlasting: stacks.outlasting,
            stacks_incomparable_missing: missing,
        }
    }
}

/// The reason why there is no stack at all.
pub(crate) const MISSING: &str = "the thread was ending, or had no ring: no stack was taken";

/// Returns the numbers of incomparable stacks that are not 0, each with its reason.
pub(crate) fn incomparable(stacks: &StackCounts) -> impl Iterator<Item = (u64, &'static str)> {
    let reasons = [
        (stacks.unasked, "glibc could not be asked"),
        (stacks.outlasting, "glibc's end first"),
        (stacks.missing, MISSING),
    ];
    reasons.into_iter().filter(|(number, _)| *number > 0)
}

/// Returns `601 verified, 0 mismatched, 51 incomparable (1: …; 50: …)`, if stacks were to be
/// compared.
pub(crate) fn describe(stacks: &StackCounts) -> Option<String> {
    if !stacks.were_verified() {
        return None;
    }
    let compared = format!("{} verified, {} mismatched", count(stacks.verified), count(stacks.mismatched));
    let reasons: Vec<String> =
        incomparable(stacks).map(|(number, reason)| format!("{}: {reason}", count(number))).collect();
    let incomparable = match reasons.is_empty() {
        true => String::new(),
        false => format!(" ({})", reasons.join("; ")),
    };
    Some(format!("{compared}, {} incomparable{incomparable}", count(stacks.incomparable())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stack_is_in_one_class() {
        assert_eq!(describe(&StackCounts { missing: 3, truncated: 4, ..Default::default() }), None);
        let stacks = StackCounts { verified: 1_601, unasked: 1, missing: 50, ..Default::default() };
        let text =
            format!("1,601 verified, 0 mismatched, 51 incomparable (1: glibc could not be asked; 50: {MISSING})");
        assert_eq!(describe(&stacks), Some(text));
        let json = StackChecksJson::new(&stacks);
        assert_eq!(json.stacks_verified + json.stacks_mismatched + json.stacks_incomparable, 1_652);
        let stacks = StackCounts { verified: 5, ..Default::default() };
        assert_eq!(describe(&stacks).as_deref(), Some("5 verified, 0 mismatched, 0 incomparable"));
        // Without --verify-stacks, no stack was to be compared.
        let json = StackChecksJson::new(&StackCounts { missing: 3, ..Default::default() });
        assert_eq!((json.stacks_incomparable, json.stacks_incomparable_missing), (0, 0));
    }
}
