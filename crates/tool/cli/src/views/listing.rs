//! The list of groups of sites that `top`, `leaks` and `temporary` print.

use heapledger_analysis::{Amount, Profile, RankBy, rank};
use heapledger_report_format::Row;

use crate::args::Depth;
use crate::error::Result;
use crate::json::document::Form;
use crate::json::table::{RankJson, TableJson};
use crate::output::Output;
use crate::question::Question;
use crate::views::rows::row;
use crate::views::table::{Columns, limit, print_rows};

/// A list of groups of sites, the largest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing {
    /// The name in JSON of the property by which sites are grouped.
    pub(crate) name: &'static str,
    pub(crate) by: RankBy,
    pub(crate) depth: Depth,
    /// The most groups listed; 0 for all.
    pub(crate) rows: usize,
}

impl Listing {
    /// Prints the document.
    pub(crate) fn print_document(
        self,
        question: &mut Question<'_, '_>,
        profile: &Profile,
        form: Form,
        out: &mut Output,
    ) -> Result<()> {
        out.document(&self.document(question, profile), form)
    }

    /// Returns the document that `--json` prints. The profile may be the question's
    /// [sums](Question::sums) alone.
    pub(crate) fn document(self, question: &mut Question<'_, '_>, profile: &Profile) -> TableJson<RankJson> {
        let most = limit(self.rows);
        let (mut ranks, groups) = match question.kept_sites() {
            Some((table, set)) => {
                let (by, moment) = ((self.by, question.metric), question.selection.moment);
                let found = table.rank(&mut question.labels.names, &set, moment, by, most);
                (found.ranks, found.groups)
            }
            None => {
                let ranks = rank(profile, &mut question.labels.names, self.by, question.metric);
                let groups = ranks.len();
                (ranks, groups)
            }
        };
        ranks.truncate(most);
        let mut table = TableJson::new(self.name, question, &profile.whole, &profile.left_out, groups);
        table.allocated(profile.allocated);
        table.rows = ranks.iter().map(|rank| RankJson::new(question, profile, rank)).collect();
        table
    }

    /// Prints the table, if it is not empty.
    pub(crate) fn print(self, question: &mut Question<'_, '_>, profile: &Profile, out: &mut Output) -> Result<()> {
        let ranks = rank(profile, &mut question.labels.names, self.by, question.metric);
        if ranks.is_empty() {
            return Ok(());
        }
        let (shown, rest) = ranks.split_at(ranks.len().min(limit(self.rows)));
        let columns = Columns::of(question);
        let labels = &mut question.labels;
        let rows: Vec<(Row, Amount)> =
            shown.iter().map(|rank| (row(labels, &profile.stacks, rank, self.depth), rank.amount)).collect();
        print_rows(columns, &profile.whole, rows, rest.iter().map(|rank| rank.amount), out)?;
        out.hint(labels.hint_for_unnamed(shown.iter().map(|rank| rank.frame.function)));
        Ok(())
    }
}
