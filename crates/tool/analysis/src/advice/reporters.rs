//! Blocks that the program's reporters miss or report twice: the advice on dark matter.

use heapledger_core::Bytes;
use heapledger_dmd::{Mode, Plan, Step};

use super::{Advice, AdviceList, Finding};
use crate::dark_matter::dark_matter;
use crate::error::Error;
use crate::moment::Moment;
use crate::names::Names;
use crate::progress::Progress;
use crate::selection::Selection;

pub(super) const NAME: &str = "reporters";

/// A step of the plan that `dmd --advice` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporters {
    /// The step: a sentence without its full stop.
    pub sentence: String,
    /// The number of blocks that the step is about.
    pub blocks: u64,
}

/// Finds the steps of the plan. Bytes at stake: those that are not reported, or reported twice.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let found = dark_matter(names, Mode::DarkMatter, &selection.with_moment(Moment::Total), progress)?;
    if !found.is_complete {
        list.skip(NAME, "the program asked no memory reporters");
        return Ok(());
    }
    list.damage.extend(&found.damage);
    let plan = Plan::of_log(&found.log, None);
    for Step { advice, bytes, blocks, .. } in plan.unreported.iter().chain(&plan.twice) {
        let finding = Reporters { sentence: advice.to_string(), blocks: u64::try_from(*blocks).unwrap_or(0) };
        let bytes = Bytes(u64::try_from(*bytes).unwrap_or(0));
        list.advice.push(Advice { finding: Finding::Reporters(finding), bytes, owner: None });
    }
    Ok(())
}
