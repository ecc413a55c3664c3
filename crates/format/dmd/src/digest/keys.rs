//! The rules by which blocks are in records.

use std::hash::BuildHasher;

use super::texts::{Texts, passes};
use crate::analysis::{DmdOptions, GroupBy, KindName};
use crate::hash::Seeded;
use crate::log::{Group, Mode, NameId, Report};

/// The rules by which blocks are in records.
pub(super) struct Keys<'a> {
    pub(super) mode: Mode,
    pub(super) options: &'a DmdOptions,
    pub(super) probability: Option<f64>,
    pub(super) texts: &'a Texts,
    /// Decides in which pass a record is added up.
    pub(super) seed: Seeded,
}

/// The key of a record within one log: the kind, and the numbers of its stacks plus 1, or the
/// number of a name.
#[derive(Clone, Copy)]
pub(super) struct SumKey {
    pub(super) kind: KindName,
    pub(super) numbers: [u32; 3],
}

impl SumKey {
    /// Returns the key as two numbers, which are hashed quickly.
    #[inline]
    pub(super) fn packed(self) -> (u64, u64) {
        let [first, second, third] = self.numbers.map(u64::from);
        ((self.kind as u64) << 32 | first, third << 32 | second)
    }
}

impl Keys<'_> {
    /// Returns the first number of a group's key; `None`: its blocks are in no record.
    #[inline]
    pub(super) fn first_number(&self, group: &Group) -> Option<u32> {
        // Blocks with a stack stand in for those without.
        let is_left_out = self.probability.is_some() && group.alloc.is_none();
        let DmdOptions { by, filters, .. } = self.options;
        if is_left_out || *by != GroupBy::Stack && !passes(|| self.texts.alloc(group.alloc), filters) {
            return None;
        }
        let named = |name: Option<NameId>| name.map_or(0, |name| name.0 + 1);
        Some(match by {
            GroupBy::Stack => group.alloc.map_or(self.texts.none, |trace| self.texts.stack_of[trace.0 as usize]) + 1,
            GroupBy::Type => named(group.type_name),
            GroupBy::Context => named(group.context),
            GroupBy::Module => named(self.texts.module(group.alloc)),
            GroupBy::Owner | GroupBy::Line | GroupBy::File | GroupBy::Function => named(self.texts.code(group.alloc)),
        })
    }

    #[inline]
    pub(super) fn key(&self, group: &Group, first: u32) -> SumKey {
        let reported = |report: Option<Report>| match (self.options.by, report) {
            (GroupBy::Stack, Some(report)) => self.texts.stack_of[report.trace.0 as usize] + 1,
            _ => 0,
        };
        let [once, again] = group.reports.map(reported);
        SumKey { kind: kind_of(self.mode, group), numbers: [first, once, again] }
    }

    #[inline]
    pub(super) fn hash(&self, key: SumKey) -> u64 {
        self.seed.hash_one(key.packed())
    }
}

/// Returns the kinds that a log of this mode has, in the order in which they are shown.
pub(super) fn kinds_of(mode: Mode) -> &'static [KindName] {
    match mode {
        Mode::Live | Mode::Scan => &[KindName::Live],
        Mode::Cumulative => &[KindName::Cumulative],
        Mode::DarkMatter => &[KindName::TwiceReported, KindName::Unreported, KindName::OnceReported],
    }
}

#[inline]
pub(super) fn kind_of(mode: Mode, group: &Group) -> KindName {
    match (mode, group.reports.iter().flatten().count()) {
        (Mode::Live | Mode::Scan, _) => KindName::Live,
        (Mode::Cumulative, _) => KindName::Cumulative,
        (Mode::DarkMatter, 0) => KindName::Unreported,
        (Mode::DarkMatter, 1) => KindName::OnceReported,
        (Mode::DarkMatter, _) => KindName::TwiceReported,
    }
}
