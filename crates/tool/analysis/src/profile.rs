//! What every site holds at a moment.

use std::collections::HashMap;

use heapledger_core::Blocks;
use heapledger_recording::{self as recording, Counts, Damage, ImageId, NodeCache, Recording, Time};

use crate::amount::Amount;
use crate::error::Error;
use crate::moment::{Moment, Selection, largest, last_images};
use crate::replay::{Progress, Replayed, Span, replay};
use crate::stacks::{Merger, NodeId, Stacks};

/// What every site holds at a moment, over the selected processes. Equal stacks of different images are one site.
#[derive(Debug, Default)]
pub struct Profile {
    /// The stacks.
    pub stacks: Stacks,
    /// The sites that hold something, in no particular order.
    pub sites: Vec<Site>,
    /// Their sum.
    pub whole: Amount,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// A stack that allocates, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The stack.
    pub stack: NodeId,
    /// What it holds.
    pub amount: Amount,
}

impl Profile {
    /// The profile of a selection. Takes no longer than reading the sites, unless events must be replayed.
    pub fn load(recording: &Recording<'_>, selection: Selection, progress: Progress<'_>) -> Result<Profile, Error> {
        let images = selection.images(recording)?;
        let mut profile = Profile::default();
        let mut gatherer = Gatherer { recording, cache: NodeCache::default(), sites: HashMap::new() };
        for part in parts(recording, &images, selection, progress, &mut profile.damage)? {
            gatherer.add(&mut profile, part);
        }
        Ok(profile)
    }
}

/// The sites of one image, as far as they count.
struct ImagePart {
    image: ImageId,
    sites: Vec<recording::Site>,
    /// What counts of them.
    share: Share,
}

/// What counts of an image's sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Total,
    End,
    ImagePeak,
    SessionPeak,
    Nothing,
}

impl Share {
    pub(crate) fn of(self, site: &recording::Site) -> Amount {
        match self {
            Share::Total => {
                Amount { bytes: site.bytes_allocated, blocks: site.allocations, temporaries: site.temporaries }
            }
            Share::End => site.live_end.into(),
            Share::ImagePeak => site.live_at_image_peak.into(),
            Share::SessionPeak => site.live_at_session_peak.into(),
            Share::Nothing => Amount::default(),
        }
    }
}

fn parts(
    recording: &Recording<'_>,
    images: &[ImageId],
    selection: Selection,
    progress: Progress<'_>,
    damage: &mut Vec<Damage>,
) -> Result<Vec<ImagePart>, Error> {
    if let Moment::At(time) = selection.moment {
        let replayed = replay_until(recording, images, time, progress)?;
        damage.extend(replayed.damage);
        let live = replayed.images.into_iter().filter(|image| !image.ended);
        return Ok(live.map(|image| ImagePart { image: image.image, sites: image.sites, share: Share::End }).collect());
    }
    let found: Vec<(ImageId, Counts, Vec<recording::Site>)> = match recorded(recording, images) {
        Some(found) => found,
        None => {
            let mut replayed = replay(recording, images, Span::default(), |origin| origin.stack, progress)?;
            damage.append(&mut replayed.damage);
            replayed.images.into_iter().map(|image| (image.image, image.counts, image.sites)).collect()
        }
    };
    let peak =
        selection.process.and_then(|_| largest(found.iter().map(|(image, counts, _)| (*image, counts.bytes_live_max))));
    let last = last_images(recording);
    let part = |(image, _, sites)| {
        let share = match selection.moment {
            Moment::Total => Share::Total,
            Moment::End if !last.contains(&image) => Share::Nothing,
            Moment::End | Moment::At(_) => Share::End,
            Moment::Peak if selection.process.is_none() => Share::SessionPeak,
            Moment::Peak if peak == Some(image) => Share::ImagePeak,
            Moment::Peak => Share::Nothing,
        };
        ImagePart { image, sites, share }
    };
    Ok(found.into_iter().map(part).collect())
}

/// The sites as the recorder left them. `None` if it did not finish, or they are damaged.
fn recorded(recording: &Recording<'_>, images: &[ImageId]) -> Option<Vec<(ImageId, Counts, Vec<recording::Site>)>> {
    recording.footer()?;
    let of_image = |&image: &ImageId| {
        let counts = *recording.image_counts(image)?;
        let sites = recording.sites(image);
        let is_there = !sites.rows.is_empty() || (counts.allocations, counts.reallocations) == (Blocks(0), Blocks(0));
        (is_there && sites.damage.is_empty()).then_some((image, counts, sites.rows))
    };
    images.iter().map(of_image).collect()
}

/// What is live at a time, by stack: a replay from the last checkpoints before it.
fn replay_until(
    recording: &Recording<'_>,
    images: &[ImageId],
    time: Time,
    progress: Progress<'_>,
) -> Result<Replayed, Error> {
    if recording.footer().is_some_and(|footer| time > footer.time) {
        return Err(Error::AfterEnd);
    }
    let span = Span { until: Some(time), from_checkpoints: true };
    replay(recording, images, span, |origin| origin.stack, progress)
}

/// Gathers the sites of all images.
struct Gatherer<'r, 'a> {
    recording: &'r Recording<'a>,
    cache: NodeCache,
    sites: HashMap<NodeId, usize>,
}

impl Gatherer<'_, '_> {
    fn add(&mut self, profile: &mut Profile, part: ImagePart) {
        let holding =
            || part.sites.iter().map(|site| (site.stack, part.share.of(site))).filter(|(_, it)| !it.is_nothing());
        if holding().next().is_none() {
            return;
        }
        let tree = self.recording.stack_tree(part.image, &mut self.cache);
        profile.damage.extend(tree.damage().copied());
        let mut merger = Merger::new(&mut profile.stacks, tree);
        for (stack, amount) in holding() {
            let stack = merger.node(stack);
            let at = *self.sites.entry(stack).or_insert_with(|| {
                profile.sites.push(Site { stack, amount: Amount::default() });
                profile.sites.len() - 1
            });
            profile.sites[at].amount += amount;
            profile.whole += amount;
        }
    }
}
