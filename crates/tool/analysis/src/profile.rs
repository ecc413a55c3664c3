//! The amounts that every site holds at a moment.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use heapledger_core::Blocks;
use heapledger_recording::{self as recording, Counts, Damage, ImageId, Recording, Time};

use crate::amount::{Amount, MomentAmounts};
use crate::error::Error;
use crate::filter::StackFilter;
use crate::functions::FunctionId;
use crate::group_totals::{GroupTotals, Needs, PeakOf, group_totals, moment_amounts};
use crate::images::{largest, last_images};
use crate::lifetime_filter::LifetimeCondition;
use crate::moment::Moment;
use crate::names::Names;
use crate::parts::{Part, PartBy};
use crate::progress::Progress;
use crate::replay::visitor::Origin;
use crate::selection::Selection;
use crate::stacks::{MergedStacks, NodeId, Stacks};
use crate::wrapper_search::{Evidence, Search};

/// The amounts that every site of a selection holds at its moment. Equal stacks of different images
/// are one site.
#[derive(Debug, Default)]
pub struct Profile {
    /// The stacks, which several profiles may share.
    pub stacks: Arc<Stacks>,
    /// The sites that hold something, in no particular order.
    pub sites: Vec<Site>,
    /// Their sum.
    pub whole: Amount,
    /// The total that was allocated in the selection's time of allocation, if it has one.
    pub allocated: Option<Amount>,
    /// The amount that the selection leaves out of what its processes hold at the moment. If the
    /// selection asks for a time of allocation, only blocks allocated in that time are counted.
    pub left_out: Amount,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// A stack that allocates, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The stack.
    pub stack: NodeId,
    /// The amount that it holds.
    pub amount: Amount,
    /// The label of its part, in a [profile by parts](Profile::load_split).
    pub part: Option<FunctionId>,
}

/// A request to keep the sites of each part apart.
#[derive(Clone, Copy)]
pub struct PartSplit<'l> {
    /// The property that keeps them apart; only events tell it.
    pub by: PartBy,
    /// Returns the label of a part, shown in place of a function. Parts with the same label are
    /// one.
    pub label: &'l dyn Fn(Part) -> String,
}

impl PartSplit<'_> {
    /// Returns what must be known about blocks to keep sites apart.
    pub(crate) fn needs(split: Option<&PartSplit<'_>>) -> Needs<'static> {
        Needs { stack: true, call: split.is_some_and(|split| split.by.needs_call()), within: None }
    }

    /// Returns the part that a block belongs to; the rest if it is not known. Without `split`, all
    /// blocks belong to one part.
    pub(crate) fn part(split: Option<&PartSplit<'_>>, recording: &Recording<'_>, origin: &Origin) -> Part {
        split.and_then(|split| split.by.part(recording, origin)).unwrap_or(Part::Rest)
    }
}

impl fmt::Debug for PartSplit<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PartSplit").field("by", &self.by).finish_non_exhaustive()
    }
}

/// A cache of the labels of parts.
pub(crate) struct PartLabels<'a, 'l> {
    split: Option<&'a PartSplit<'l>>,
    known: HashMap<Part, FunctionId>,
}

impl<'a, 'l> PartLabels<'a, 'l> {
    pub(crate) fn new(split: Option<&'a PartSplit<'l>>) -> PartLabels<'a, 'l> {
        PartLabels { split, known: HashMap::new() }
    }

    /// Returns the label of a part; `None` if sites are not kept apart.
    pub(crate) fn of(&mut self, names: &mut Names<'_, '_>, part: Part) -> Option<FunctionId> {
        let split = self.split?;
        Some(*self.known.entry(part).or_insert_with(|| names.label(&(split.label)(part)).function))
    }
}

/// The totals of a selection at each moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The totals of the selected blocks.
    pub selected: MomentAmounts,
    /// The totals of the blocks that the selection leaves out.
    pub left_out: MomentAmounts,
    /// True if the selected amount at the peak is known.
    pub is_peak_known: bool,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

impl Profile {
    /// Returns the profile of a selection. Takes no longer than reading the sites, unless events
    /// must be replayed.
    pub fn load(names: &mut Names<'_, '_>, selection: &Selection, progress: Progress<'_>) -> Result<Profile, Error> {
        Ok(SiteTotals::load(names, selection, progress)?.profile(selection))
    }

    /// Returns the profile of a selection in which blocks with this lifetime count as temporary.
    /// Always a replay.
    pub fn load_within(
        names: &mut Names<'_, '_>,
        selection: &Selection,
        within: &LifetimeCondition,
        progress: Progress<'_>,
    ) -> Result<Profile, Error> {
        Ok(SiteTotals::load_within(names, selection, Some(within), progress)?.profile(selection))
    }

    /// Returns the profile of a selection with the sites of each part apart. Always a replay.
    pub fn load_split(
        names: &mut Names<'_, '_>,
        selection: &Selection,
        split: &PartSplit<'_>,
        progress: Progress<'_>,
    ) -> Result<Profile, Error> {
        let recording = names.recording();
        let needs = PartSplit::needs(Some(split));
        let key = |origin: &Origin, stack, _| Some((PartSplit::part(Some(split), recording, origin), stack));
        let GroupTotals { groups, left_out, stacks, damage, .. } =
            group_totals(names, selection, needs, key, progress)?;
        let mut profile = Profile::of_nothing(stacks, left_out, damage, selection);
        let mut labels = PartLabels::new(Some(split));
        for (key, moment_amounts) in groups {
            let (part, stack) = key.unwrap_or((Part::Rest, NodeId::ROOT));
            profile.add(stack, labels.of(names, part), moment_amounts, selection.moment);
        }
        Ok(profile)
    }

    fn of_nothing(stacks: Stacks, left_out: MomentAmounts, damage: Vec<Damage>, selection: &Selection) -> Profile {
        Profile {
            stacks: Arc::new(stacks),
            left_out: left_out.at(selection.moment),
            damage,
            allocated: selection.filter.allocated.as_ref().map(|_| Amount::default()),
            ..Profile::default()
        }
    }

    fn add(&mut self, stack: NodeId, part: Option<FunctionId>, moment_amounts: MomentAmounts, moment: Moment) {
        if let Some(allocated) = &mut self.allocated {
            *allocated += moment_amounts.total;
        }
        let amount = moment_amounts.at(moment);
        if !amount.is_nothing() {
            self.whole += amount;
            self.sites.push(Site { stack, amount, part });
        }
    }
}

/// Returns what a selection holds in total, at the end (or at its own time) and, if it can be
/// [known](SiteTotals::at_peak), at the peak.
pub fn totals(names: &mut Names<'_, '_>, selection: &Selection, progress: Progress<'_>) -> Result<Totals, Error> {
    let gathered = SiteTotals::load(names, selection, progress)?;
    let (left_out, damage) = (gathered.left_out, gathered.damage);
    let mut totals = Totals { selected: MomentAmounts::default(), left_out, is_peak_known: true, damage };
    gathered.sites.iter().for_each(|(_, moment_amounts)| totals.selected += *moment_amounts);
    if !knows_peak(names.recording(), selection)? {
        let at_peak = SiteTotals::at_peak(names, selection, progress)?;
        totals.is_peak_known = at_peak.is_some();
        totals.selected.peak = Amount::default();
        at_peak
            .iter()
            .flat_map(|it| &it.sites)
            .for_each(|(_, moment_amounts)| totals.selected.peak += moment_amounts.peak);
    }
    Ok(totals)
}

/// True if the sites at this moment also have their right shares in the peak. They do not if only a
/// part of the time is replayed, or if totals of several processes are added up that had their
/// peaks at different times.
fn knows_peak(recording: &Recording<'_>, selection: &Selection) -> Result<bool, Error> {
    if selection.moment == Moment::Peak {
        return Ok(true);
    }
    if selection.filter.allocated.is_some() || matches!(selection.moment, Moment::At(_)) {
        return Ok(false);
    }
    let images = selection.filter.images(recording)?;
    let mut pids: Vec<u32> = images.iter().filter_map(|image| Some(recording.image(*image)?.pid)).collect();
    pids.dedup();
    Ok(images.len() == recording.images().len() || pids.len() < 2)
}

/// The sites of a selection with what they hold at each moment. Equal stacks of different images
/// are one site.
#[derive(Debug)]
pub struct SiteTotals {
    /// The stacks.
    pub stacks: Stacks,
    /// The sites, in no particular order.
    pub sites: Vec<(NodeId, MomentAmounts)>,
    /// The totals of the blocks that the selection leaves out.
    pub left_out: MomentAmounts,
    /// The time of the peak, if it had to be found by a replay.
    pub peak_time: Option<Time>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

impl SiteTotals {
    /// Returns what the sites of a selection hold at each moment, and at the selection's own time
    /// if it has one. Takes no longer than reading the sites, unless events must be replayed.
    pub fn load(names: &mut Names<'_, '_>, selection: &Selection, progress: Progress<'_>) -> Result<SiteTotals, Error> {
        SiteTotals::load_within(names, selection, None, progress)
    }

    /// Returns what the sites hold at the peak of the selected processes, whatever the selection's
    /// moment is: totals loaded for another moment may not know it. `None` if the recording does
    /// not know it either, because it has several processes and no events.
    pub fn at_peak(
        names: &mut Names<'_, '_>,
        selection: &Selection,
        progress: Progress<'_>,
    ) -> Result<Option<SiteTotals>, Error> {
        match SiteTotals::load(names, &selection.with_moment(Moment::Peak), progress) {
            Ok(site_totals) => Ok(Some(site_totals)),
            Err(Error::NoEvents) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the totals that the recorder wrote, or `None` if events must be replayed.
    pub(crate) fn load_recorded(names: &mut Names<'_, '_>, selection: &Selection) -> Result<Option<SiteTotals>, Error> {
        let images = selection.filter.images(names.recording())?;
        if selection.filter.needs_events() || selection.counts_slop || matches!(selection.moment, Moment::At(_)) {
            return Ok(None);
        }
        let Some(recorded) = recorded(names.recording(), &images) else { return Ok(None) };
        let peaks = peaks(names.recording(), selection, &recorded);
        Ok(peaks.map(|peaks| SiteTotals::from_totals(names, selection, recorded, &peaks)))
    }

    fn load_within(
        names: &mut Names<'_, '_>,
        selection: &Selection,
        within: Option<&LifetimeCondition>,
        progress: Progress<'_>,
    ) -> Result<SiteTotals, Error> {
        if within.is_none()
            && let Some(site_totals) = SiteTotals::load_recorded(names, selection)?
        {
            return Ok(site_totals);
        }
        let needs = Needs { stack: true, within, ..Needs::default() };
        let key = |_: &Origin, stack, is_within| Some((stack, is_within));
        let group_totals = group_totals(names, selection, needs, key, progress)?;
        let mut sites = Sites::default();
        for (key, mut moment_amounts) in group_totals.groups {
            let (stack, is_within) = key.unwrap_or((NodeId::ROOT, false));
            if within.is_some() {
                let temporaries = if is_within { moment_amounts.total.blocks } else { Blocks(0) };
                moment_amounts.total = moment_amounts.total.with_temporaries(temporaries);
            }
            sites.add(stack, moment_amounts);
        }
        let GroupTotals { left_out, peak_time, stacks, damage, .. } = group_totals;
        Ok(SiteTotals { stacks, sites: sites.sites, left_out, peak_time: Some(peak_time), damage })
    }

    fn from_totals(
        names: &mut Names<'_, '_>,
        selection: &Selection,
        recorded: Vec<ImageSites>,
        peaks: &HashMap<ImageId, PeakOf>,
    ) -> SiteTotals {
        let mut merged = MergedStacks::new(names.recording());
        let mut filter = StackFilter::new(&selection.filter);
        let (mut sites, mut left_out) = (Sites::default(), MomentAmounts::default());
        let last = last_images(names.recording());
        // Wrappers are searched for among all stacks, whatever is selected.
        let is_evidence =
            matches!(names.known.search, Search::NotBegun) && recorded.len() == names.recording().images().len();
        let mut evidence = Vec::new();
        for image in recorded {
            let is_last = last.contains(&image.image);
            let peak = peaks.get(&image.image).copied().unwrap_or(PeakOf::NotCounted);
            for site in &image.sites {
                let moment_amounts = moment_amounts(site, peak, is_last);
                let stack = merged.node(image.image, site.stack);
                if is_evidence {
                    let (blocks, temporaries) = (site.allocations.0, site.temporaries.0);
                    evidence.push(Evidence { stack, blocks, temporaries });
                }
                if !filter.passes(names, &merged.stacks, stack) {
                    left_out += moment_amounts;
                    continue;
                }
                sites.add(stack, moment_amounts);
            }
            merged.forget(image.image);
        }
        if is_evidence && matches!(names.known.search, Search::NotBegun) {
            names.known.search = Search::Readable(merged.stacks.number(), evidence);
        }
        SiteTotals { stacks: merged.stacks, sites: sites.sites, left_out, peak_time: None, damage: merged.damage }
    }

    fn profile(self, selection: &Selection) -> Profile {
        let mut profile = Profile::of_nothing(self.stacks, self.left_out, self.damage, selection);
        for (stack, moment_amounts) in self.sites {
            profile.add(stack, None, moment_amounts, selection.moment);
        }
        profile
    }
}

/// A list of sites without duplicates.
#[derive(Default)]
struct Sites {
    sites: Vec<(NodeId, MomentAmounts)>,
    places: HashMap<NodeId, usize>,
}

impl Sites {
    fn add(&mut self, stack: NodeId, moment_amounts: MomentAmounts) {
        let at = *self.places.entry(stack).or_insert(self.sites.len());
        if at == self.sites.len() {
            self.sites.push((stack, MomentAmounts::default()));
        }
        self.sites[at].1 += moment_amounts;
    }
}

/// The sites of one image as the recorder left them.
struct ImageSites {
    image: ImageId,
    counts: Counts,
    sites: Vec<recording::Site>,
}

/// Returns the sites as the recorder left them; `None` if it did not finish, or if they are
/// damaged.
fn recorded(recording: &Recording<'_>, images: &[ImageId]) -> Option<Vec<ImageSites>> {
    recording.footer()?;
    let of_image = |&image: &ImageId| {
        let counts = *recording.image_counts(image)?;
        let sites = recording.sites(image);
        let is_there = !sites.rows.is_empty() || (counts.allocations, counts.reallocations) == (Blocks(0), Blocks(0));
        (is_there && sites.damage.is_empty()).then_some(ImageSites { image, counts, sites: sites.rows })
    };
    images.iter().map(of_image).collect()
}

/// Returns whose peak counts for each image; `None` if the peak of these images together is asked
/// for, and the recorder did not note it.
fn peaks(
    recording: &Recording<'_>,
    selection: &Selection,
    recorded: &[ImageSites],
) -> Option<HashMap<ImageId, PeakOf>> {
    if recorded.len() == recording.images().len() {
        return Some(recorded.iter().map(|image| (image.image, PeakOf::Session)).collect());
    }
    let mut pids = recorded.iter().filter_map(|image| Some(recording.image(image.image)?.pid));
    let first = pids.next();
    if pids.any(|pid| Some(pid) != first) {
        return (selection.moment != Moment::Peak).then(HashMap::new);
    }
    // The images of one process follow each other, so the peak is that of one of them.
    let largest = largest(recorded.iter().map(|image| (image.image, image.counts.bytes_live_max)))?;
    Some(HashMap::from([(largest, PeakOf::Image)]))
}
