//! Records as they are shown, made from their sums and details.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::details::RecordDetails;
use super::moments::{Moments, whole};
use super::sums::Sum;
use super::texts::Texts;
use crate::analysis::{DmdOptions, DmdStack, Estimate, GroupBy, Record, Reported, Share};
use crate::log::NameId;

/// Records, each with the key that its blocks share.
pub(super) type Keyed = Vec<(Key, Record)>;

/// The properties that the blocks of one record share; it identifies the record in any log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    name: Option<Arc<str>>,
    stacks: Vec<DmdStack>,
}

impl Sum {
    pub(super) fn record(
        &self,
        moments: &Moments,
        more: RecordDetails,
        texts: &Texts,
        options: &DmdOptions,
        is_estimated: bool,
    ) -> (Key, Record) {
        let total = moments.total(is_estimated);
        let [requested, slop, usable, blocks] = moments.whole(is_estimated);
        let text = |name: NameId| texts.names[name.0 as usize].clone();
        let shares = |shares: BTreeMap<Option<NameId>, [f64; 2]>| -> Vec<Share> {
            let share = |(name, [bytes, blocks]): (Option<NameId>, [f64; 2])| Share {
                name: name.map(text),
                bytes: whole(bytes),
                blocks: whole(blocks),
            };
            sorted(shares.into_iter().map(share).collect())
        };
        let shown = |stack: u32| texts.shown(stack, options.filter_stacks_for_testing);
        let number = self.key.numbers.map(|number| number.checked_sub(1));
        let (stacks, name) = if options.by == GroupBy::Stack {
            (number, None)
        } else {
            ([None; 3], number[0].map(|name| text(NameId(name))))
        };
        let reports = stacks[1..].iter().zip(&more.reporters).filter_map(|(stack, reporters)| {
            let reporters = reporters.iter().copied().map(text).collect();
            Some(Reported { stack: shown((*stack)?), reporters })
        });
        let estimate = is_estimated.then_some(Estimate {
            bytes_error: total.bytes_error,
            blocks_error: total.blocks_error,
            sampled_blocks: moments.counted[2],
        });
        let addresses = more.addresses;
        let record = Record {
            name: name.clone(),
            alloc: stacks[0].map(shown).unwrap_or_default(),
            module: self.module.map(text),
            reports: reports.collect(),
            blocks,
            requested,
            slop,
            usable,
            sizes: more.sizes.into_iter().rev().map(|(size, count)| (size as i64, whole(count))).collect(),
            estimate,
            types: shares(more.types),
            contexts: shares(more.contexts),
            // Addresses vary, so tests of the detector do not look at them.
            addresses: if options.filter_stacks_for_testing { vec![0xdada_dada; addresses.len()] } else { addresses },
        };
        let stacks = stacks.into_iter().flatten().map(|stack| texts.stack(stack)).collect();
        (Key { name, stacks }, record)
    }
}

/// Sorts by bytes, then by name.
pub(super) fn sorted(mut shares: Vec<Share>) -> Vec<Share> {
    shares.sort_by(|a, b| b.bytes.unsigned_abs().cmp(&a.bytes.unsigned_abs()).then_with(|| a.name.cmp(&b.name)));
    shares
}
