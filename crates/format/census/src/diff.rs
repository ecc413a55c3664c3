//! The difference of two censuses, figure by figure.
//!
//! The rules are those of Firefox's `CensusUtils.diff`: groups that only the first census has
//! become negative, and groups that only the second has are taken over.

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::breakdown::Breakdown;
use crate::result::{Census, CensusValue, Figures, FrameNumbers, ReportFrames, StackKey, sort_as_javascript};

/// The difference of two censuses.
#[derive(Clone, Debug)]
pub struct CensusDifference {
    /// The breakdown of both.
    pub breakdown: Breakdown,
    /// The second census less the first.
    pub value: CensusValue,
    /// The frames of the stacks in the value.
    pub frames: ReportFrames,
    /// The sum of all `count` figures of the first census.
    pub basis_count: i64,
    /// The sum of all `bytes` figures of the first census.
    pub basis_bytes: i64,
}

/// The reasons why two censuses have no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffError {
    /// Their breakdowns differ.
    Breakdowns,
    /// They are lists of ids, which are no figures.
    Bucket,
}

impl fmt::Display for DiffError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiffError::Breakdowns => "the censuses have different breakdowns",
            DiffError::Bucket => "a bucket lists ids, which cannot be subtracted: use `count`",
        })
    }
}

impl std::error::Error for DiffError {}

impl CensusDifference {
    /// Subtracts the first census from the second.
    ///
    /// Groups are in the order of the first, followed by those that only the second has.
    ///
    /// # Errors
    ///
    /// Fails if the breakdowns differ, or if they end in a `bucket`.
    pub fn of(first: &Census, second: &Census) -> Result<CensusDifference, DiffError> {
        if first.breakdown != second.breakdown {
            return Err(DiffError::Breakdowns);
        }
        if has_bucket(&first.breakdown) {
            return Err(DiffError::Bucket);
        }
        let mut frames = first.frames.clone();
        let numbers = FrameNumbers::of_result(&second.frames, &mut frames);
        let value = difference(&first.value, Some(&second.value), &numbers);
        let (basis_count, basis_bytes) = totals(&first.value);
        Ok(CensusDifference { breakdown: first.breakdown.clone(), value, frames, basis_count, basis_bytes })
    }
}

fn has_bucket(breakdown: &Breakdown) -> bool {
    matches!(breakdown, Breakdown::Bucket) || breakdown.children().into_iter().any(has_bucket)
}

/// Returns the sums of all figures. In an array of breakdowns, each counts all nodes again.
fn totals(value: &CensusValue) -> (i64, i64) {
    let (mut count, mut bytes) = (0_i64, 0_i64);
    for leaf in value.leaves() {
        if let CensusValue::Count(figures) = leaf {
            count = count.saturating_add(figures.count.unwrap_or(0));
            bytes = bytes.saturating_add(figures.bytes.unwrap_or(0));
        }
    }
    (count, bytes)
}

/// Returns the second value less the first. Without a second, the result is negative.
fn difference(first: &CensusValue, second: Option<&CensusValue>, numbers: &FrameNumbers) -> CensusValue {
    match (first, second) {
        (CensusValue::Count(first), Some(CensusValue::Count(second))) => CensusValue::Count(less(first, second)),
        (CensusValue::Groups { groups, rest }, Some(CensusValue::Groups { groups: others, rest: other_rest })) => {
            let mut groups = merge(groups, others, Clone::clone, numbers);
            sort_as_javascript(&mut groups);
            let rest = match (rest, other_rest) {
                (Some((key, first)), second) => {
                    let second = second.as_ref().map(|(_, second)| &**second);
                    Some((*key, Box::new(difference(first, second, numbers))))
                }
                (None, Some((key, second))) => Some((*key, Box::new(taken_over(second, numbers)))),
                (None, None) => None,
            };
            CensusValue::Groups { groups, rest }
        }
        (CensusValue::Stacks(groups), Some(CensusValue::Stacks(others))) => {
            CensusValue::Stacks(merge(groups, others, |key| renumbered(*key, numbers), numbers))
        }
        (CensusValue::All(values), Some(CensusValue::All(others))) => {
            let pairs = values.iter().zip(others);
            CensusValue::All(pairs.map(|(first, second)| difference(first, Some(second), numbers)).collect())
        }
        (first, _) => negative(first),
    }
}

/// Merges the groups of two values. The keys of the second are translated to those of the first.
fn merge<K: Clone + Eq + Hash>(
    groups: &[(K, CensusValue)],
    others: &[(K, CensusValue)],
    translated: impl Fn(&K) -> K,
    numbers: &FrameNumbers,
) -> Vec<(K, CensusValue)> {
    let mut unused: HashMap<K, &CensusValue, RandomState> =
        others.iter().map(|(key, value)| (translated(key), value)).collect();
    let mut merged: Vec<(K, CensusValue)> =
        groups.iter().map(|(key, value)| (key.clone(), difference(value, unused.remove(key), numbers))).collect();
    for (key, value) in others {
        let key = translated(key);
        if unused.contains_key(&key) {
            merged.push((key, taken_over(value, numbers)));
        }
    }
    merged
}

fn less(first: &Figures, second: &Figures) -> Figures {
    let subtract = |first: Option<i64>, second: Option<i64>| Some(second?.saturating_sub(first?));
    Figures {
        count: subtract(first.count, second.count),
        bytes: subtract(first.bytes, second.bytes),
        label: first.label.clone(),
    }
}

/// Returns a value of the first census that the second does not have.
fn negative(value: &CensusValue) -> CensusValue {
    let none = Figures { count: Some(0), bytes: Some(0), label: None };
    map(value, &|figures| less(figures, &none), &|key| key)
}

/// Returns a value of the second census that the first does not have.
fn taken_over(value: &CensusValue, numbers: &FrameNumbers) -> CensusValue {
    map(value, &Clone::clone, &|key| renumbered(key, numbers))
}

/// Copies a value with other figures and other stacks.
fn map(
    value: &CensusValue,
    figures: &impl Fn(&Figures) -> Figures,
    stack: &impl Fn(StackKey) -> StackKey,
) -> CensusValue {
    let inner = |value: &CensusValue| map(value, figures, stack);
    match value {
        CensusValue::Count(it) => CensusValue::Count(figures(it)),
        CensusValue::Bucket(ids) => CensusValue::Bucket(ids.clone()),
        CensusValue::Groups { groups, rest } => CensusValue::Groups {
            groups: groups.iter().map(|(key, value)| (key.clone(), inner(value))).collect(),
            rest: rest.as_ref().map(|(key, value)| (*key, Box::new(inner(value)))),
        },
        CensusValue::Stacks(groups) => {
            CensusValue::Stacks(groups.iter().map(|(key, value)| (stack(*key), inner(value))).collect())
        }
        CensusValue::All(values) => CensusValue::All(values.iter().map(inner).collect()),
    }
}

fn renumbered(key: StackKey, numbers: &FrameNumbers) -> StackKey {
    match key {
        StackKey::Stack(stack) => StackKey::Stack(numbers.of_stack(stack)),
        StackKey::Empty | StackKey::NoStack => key,
    }
}
