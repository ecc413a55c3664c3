//! A question to a recording: which blocks, at which moment, compared by which metric.

mod rebuilt;
mod unmatched;
pub(crate) mod words;

use std::sync::Arc;

use heapledger_analysis::{
    self as analysis, Filter, LifetimeCondition, Metric, Moment, Names, Profile, Selection, SiteSet, SiteTable,
    SiteTotals, SlopSource,
};
use heapledger_recording::{ChunkKind, Counts, Recording, Time};

use self::rebuilt::warn_of_rebuilt;
use self::words::What;
use crate::args::Symbols;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::kept::{Lent, lend};
use crate::label::Labels;
use crate::progress::Progress;

/// A selection of a recording's blocks, and the metric by which they are compared.
#[derive(Debug)]
pub(crate) struct Question<'r, 'a> {
    pub(crate) input: &'r Input,
    pub(crate) recording: &'r Recording<'a>,
    pub(crate) labels: Labels<'r, 'a>,
    pub(crate) selection: Selection,
    pub(crate) metric: Metric,
    /// The source of the slop, if that is the metric and the recording has one.
    pub(crate) slop_source: Option<SlopSource>,
    /// The data that the session of a page keeps of the recording, if they answer this question.
    lent: Option<Lent>,
    /// The sites that were found in it.
    kept_sites: Option<(Arc<SiteTable>, SiteSet)>,
}

impl Drop for Question<'_, '_> {
    fn drop(&mut self) {
        if let Some(lent) = &mut self.lent {
            lent.give_back(&mut self.labels.names);
        }
    }
}

impl<'r, 'a> Question<'r, 'a> {
    pub(crate) fn new(
        input: &'r Input,
        recording: &'r Recording<'a>,
        symbols: &Symbols,
        selection: Selection,
        metric: Metric,
    ) -> Question<'r, 'a> {
        let mut selection = selection;
        // The time of the peak, as it is printed, means the peak itself: times of events are
        // rounded, so a time alone does not say which calls in the same tick were before the peak.
        if selection.moment.time().is_some() && selection.moment.time() == peak_time(recording, &selection.filter) {
            selection.moment = Moment::Peak;
        }
        // Blocks retained in a time that goes on beyond the end of the recording are those live at
        // the end.
        if selection.filter.allocated.is_some()
            && let Some(time) = selection.moment.time()
            && recording.footer().is_some_and(|footer| time >= footer.time)
        {
            selection.moment = Moment::End;
        }
        selection.counts_slop = metric == Metric::Slop;
        let images = selection.filter.images(recording).ok().filter(|_| selection.counts_slop);
        let slop_source = images.and_then(|images| SlopSource::of(recording, &images).ok());
        let mut lent = lend(input, symbols, &selection);
        let mut labels = match lent.as_mut().and_then(Lent::take_names) {
            Some(known) => Labels::with_names(recording, symbols, known.of(recording)),
            None => Labels::new(recording, symbols),
        };
        labels.counts_mappings = input.counts_mappings();
        warn_of_rebuilt(recording, &labels.names);
        Question { input, recording, labels, selection, metric, slop_source, lent, kept_sites: None }
    }

    /// Fails if the recording has no allocation at all: an empty table would say less.
    pub(crate) fn expect_something(self) -> Result<Self> {
        expect_something(self.recording).map(|()| self)
    }

    /// Fails if the answer is empty because the filter fits no block that was ever recorded.
    pub(crate) fn expect_match(&mut self, is_empty: bool) -> Result<()> {
        if is_empty { unmatched::expect_match(self) } else { Ok(()) }
    }

    /// Computes an answer, with a progress bar in the meantime.
    pub(crate) fn answer<A>(
        &mut self,
        ask: impl FnOnce(&mut Names<'r, 'a>, &Selection, analysis::Progress<'_>) -> std::result::Result<A, analysis::Error>,
    ) -> Result<A> {
        let mut progress = Progress::new();
        let answer = ask(&mut self.labels.names, &self.selection, &mut |done, all| progress.events(done, all));
        drop(progress);
        answer.map_err(|error| self.input.unanswered(error))
    }

    /// Returns the amount that every site holds. Fails if the filter fits no block.
    pub(crate) fn profile(&mut self) -> Result<Profile> {
        let profile = self.profile_or_nothing()?;
        self.expect_match(profile.whole.is_nothing())?;
        Ok(profile)
    }

    /// Returns the profile of sums alone if the sites are [kept](Question::kept_sites), for answers
    /// that need no more; otherwise the [profile](Question::profile). Fails if the filter fits no
    /// block.
    pub(crate) fn sums(&mut self) -> Result<Profile> {
        let Some((table, set)) = self.find_kept_sites() else { return self.profile() };
        let profile = table.sums(&set, self.selection.moment);
        self.kept_sites = Some((table, set));
        self.input.warn_of(&profile.damage);
        self.expect_match(profile.whole.is_nothing())?;
        Ok(profile)
    }

    /// Returns the sites, of which the [sums](Question::sums) are, if a session keeps them.
    pub(crate) fn kept_sites(&self) -> Option<(Arc<SiteTable>, SiteSet)> {
        self.kept_sites.clone()
    }

    fn find_kept_sites(&mut self) -> Option<(Arc<SiteTable>, SiteSet)> {
        let found = self.lent.as_mut()?.sites(&mut self.labels.names, &self.selection)?;
        found.0.knows(self.selection.moment).then_some(found)
    }

    /// Returns the amount that every site holds, even if the filter fits no block.
    pub(crate) fn profile_or_nothing(&mut self) -> Result<Profile> {
        if let Some((table, set)) = self.find_kept_sites() {
            let profile = table.profile(&set, self.selection.moment);
            self.input.warn_of(&profile.damage);
            return Ok(profile);
        }
        let profile = self.answer(|names, selection, progress| Profile::load(names, selection, progress))?;
        self.input.warn_of(&profile.damage);
        Ok(profile)
    }

    /// Returns the amounts that every site holds: in total, at the peak, and at the end or the time
    /// that was asked for.
    pub(crate) fn site_totals(&mut self) -> Result<SiteTotals> {
        let site_totals = self.answer(|names, selection, progress| SiteTotals::load(names, selection, progress))?;
        self.input.warn_of(&site_totals.damage);
        self.expect_match(site_totals.sites.is_empty())?;
        Ok(site_totals)
    }

    /// Returns the amount that every site holds; temporary are the blocks whose lifetime is
    /// `within`.
    pub(crate) fn profile_within(&mut self, within: &LifetimeCondition) -> Result<Profile> {
        let profile =
            self.answer(|names, selection, progress| Profile::load_within(names, selection, within, progress))?;
        self.input.warn_of(&profile.damage);
        self.expect_match(profile.whole.is_nothing())?;
        Ok(profile)
    }

    /// Describes the moment of the selection: `live at the peak (18.2 s)`, `allocated in all`.
    pub(crate) fn what(&self) -> String {
        What(self.recording, &self.selection).to_string()
    }

    /// Returns the time of the selected processes' peak, if the recording has it.
    pub(crate) fn peak_time(&self) -> Option<Time> {
        peak_time(self.recording, &self.selection.filter)
    }
}

/// Fails if the recording has no allocation at all.
pub(crate) fn expect_something(recording: &Recording<'_>) -> Result<()> {
    // Blocks live at the beginning of a later segment were allocated before it. Some files of other
    // tools have bytes only.
    let tells =
        |counts: &Counts| counts.allocations.0 > 0 || counts.blocks_live_max.0 > 0 || counts.bytes_live_max.0 > 0;
    let is_event = |kind| kind == ChunkKind::Events || kind == ChunkKind::Sites;
    if recording.footer().is_some_and(|footer| tells(&footer.counts))
        || recording.chunks().iter().any(|chunk| is_event(chunk.kind))
    {
        return Ok(());
    }
    if recording.footer().is_none() {
        let what = "there is nothing to show: the recording ends before its first allocation";
        return Err(Failure::new(Exit::NothingRecorded, what).hint("record again, or copy the file again, to its end"));
    }
    let what = "nothing was recorded: the program made no allocator call that was seen";
    Err(Failure::new(Exit::NothingRecorded, what)
        .hint("`heapledger doctor PROGRAM` says whether a program can be recorded"))
}

/// Returns the time of the selected processes' peak, if the recording has it.
fn peak_time(recording: &Recording<'_>, filter: &Filter) -> Option<Time> {
    if filter.processes.is_empty() {
        return Some(recording.footer()?.counts.bytes_live_max_time);
    }
    let images = filter.images(recording).ok()?;
    let pid = recording.image(*images.first()?)?.pid;
    if images.iter().any(|image| recording.image(*image).is_none_or(|image| image.pid != pid)) {
        return None;
    }
    let counts: Option<Vec<_>> = images.iter().map(|image| recording.image_counts(*image)).collect();
    // The first of equals is chosen, as in analyses.
    let counts = counts?.into_iter().rev().max_by_key(|counts| counts.bytes_live_max)?;
    Some(counts.bytes_live_max_time)
}
