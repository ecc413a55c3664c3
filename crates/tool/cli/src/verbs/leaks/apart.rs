//! Mappings that the program's own code did not make: they stay mapped, and are no leaks.

use std::collections::BTreeMap;

use heapledger_analysis::rewrite::MappedUse;
use heapledger_analysis::{Amount, Names, Profile};

use crate::error::Result;
use crate::input::Input;
use crate::output::Output;
use crate::views::sampled;

/// Takes these mappings out of a profile. Returns their amounts by kind, the largest first.
pub(super) fn take(profile: &mut Profile, names: &Names<'_, '_>) -> Vec<(MappedUse, Amount)> {
    let mut apart: BTreeMap<MappedUse, Amount> = BTreeMap::new();
    let (stacks, mut whole) = (&profile.stacks, Amount::default());
    profile.sites.retain(|site| {
        let kind = stacks.heap(site.stack).and_then(|heap| MappedUse::from_name(&names.text(heap)));
        // No call was seen that mapped it, such as the stack of the first thread.
        let is_unseen = stacks.frames(site.stack).next().is_none();
        let kind = kind.filter(|kind| kind.is_apart() || is_unseen);
        match kind {
            Some(kind) => *apart.entry(kind).or_default() += site.amount,
            None => whole += site.amount,
        }
        kind.is_none()
    });
    profile.whole = whole;
    let mut apart: Vec<(MappedUse, Amount)> = apart.into_iter().collect();
    apart.sort_by_key(|(kind, amount)| (std::cmp::Reverse(amount.bytes), *kind));
    apart
}

/// Prints their amounts.
pub(super) fn print(apart: &[(MappedUse, Amount)], input: &Input, out: &mut Output) -> Result<()> {
    if apart.is_empty() {
        return Ok(());
    }
    out.line("")?;
    out.line("not made by the program's own code, and left out (--kind shows them):")?;
    for (kind, amount) in apart {
        let (bytes, mappings) = (sampled::bytes_of(amount), input.counted(amount));
        out.line(format_args!("  {}: {bytes} in {mappings}", kind.name()))?;
    }
    Ok(())
}
