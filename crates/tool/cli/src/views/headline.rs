//! The lines above a table: what the figures are of, and what the filters leave out.

use heapledger_analysis::{Amount, Metric, Moment};

use crate::error::Result;
use crate::format::share;
use crate::output::Output;
use crate::question::Question;
use crate::question::words::filter_words;
use crate::views::sampled;

impl Question<'_, '_> {
    /// Prints `412.6 MiB in 1,234 blocks live at the peak (18.2 s)`, and the amount that the
    /// filters leave out.
    pub(crate) fn headline(&self, whole: &Amount, left_out: &Amount, out: &mut Output) -> Result<()> {
        let blocks = self.input.counted(whole);
        out.title(format_args!("{} in {blocks} {}", sampled::bytes_of(whole), self.what()))?;
        sampled::print_notice(self.recording, out)?;
        self.slop(whole, out)?;
        self.filters(left_out, out)
    }

    /// Prints `slop: 3.1 MiB (0.8 % of usable sizes), computed for glibc 2.36`, if slop is asked
    /// for.
    fn slop(&self, whole: &Amount, out: &mut Output) -> Result<()> {
        let Some(source) = &self.slop_source else { return Ok(()) };
        let usable = whole.bytes.0.saturating_add(whole.slop.0);
        let of_usable = share(whole.slop.0 as f64 / usable.max(1) as f64);
        let figure = sampled::figure(whole, Metric::Slop);
        Ok(out.dim_line(format_args!("slop: {figure} ({of_usable} of usable sizes), {source}"))?)
    }

    /// Prints the filters.
    pub(crate) fn words(&self, out: &mut Output) -> Result<()> {
        let filters = filter_words(&self.selection.filter);
        if filters.is_empty() { Ok(()) } else { Ok(out.dim_line(format_args!("only: {}", filters.join(" · ")))?) }
    }

    /// Prints the filters, and the amount that they leave out.
    pub(crate) fn filters(&self, left_out: &Amount, out: &mut Output) -> Result<()> {
        let filters = filter_words(&self.selection.filter);
        if filters.is_empty() {
            return Ok(());
        }
        let blocks = self.input.counted(left_out);
        let rest = match left_out.is_nothing() {
            true => "leaves nothing out".to_owned(),
            false => format!("leaves out {} in {blocks}", sampled::bytes_of(left_out)),
        };
        Ok(out.dim_line(format_args!("only: {} ({rest})", filters.join(" · ")))?)
    }

    /// Prints the amount allocated in the time that was asked for, whether live or not.
    pub(crate) fn allocated(&self, allocated: Option<Amount>, out: &mut Output) -> Result<()> {
        match (allocated, self.selection.moment) {
            (None, _) | (_, Moment::Total) => Ok(()),
            (Some(all), _) => {
                let blocks = self.input.counted(&all);
                Ok(out.dim_line(format_args!("of {} in {blocks} allocated in that time", sampled::bytes_of(&all)))?)
            }
        }
    }
}
