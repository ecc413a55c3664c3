//! The state of an image that the collector keeps to the end of the session.

use std::sync::Arc;

use heapledger_inject::Mapping;
use heapledger_recording::{Counts, ExitStatus, ImageEnd, ImageEndReason, ImageStart, Record, Time};
use heapledger_wire::session::ImageCounters;

use crate::external_counters::ExternalCounters;
use crate::image::Image;
use crate::inbox::NewFork;
use crate::lost::Lost;
use crate::outcome::ImageOutcome;
use crate::session_state::Shared;
use crate::shared::SharedRing;

/// The state of an image that the collector keeps to the end.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) start: ImageStart,
    pub(super) fork: Option<NewFork>,
    /// The [identity](crate::process::image_identity) of its program. After an exec of a program
    /// that is not recorded, the process has another one.
    pub(super) identity: Option<u64>,
    /// The regions that were mapped when it began, until it runs.
    pub(super) regions: Option<Vec<Mapping>>,
    pub(super) stage: Stage,
    /// The number of rings that may still hold events.
    pub(super) sources: u32,
    pub(super) common: Option<Arc<SharedRing>>,
    /// The rings that have been read to their end.
    pub(super) retired: Vec<Arc<SharedRing>>,
    /// True if children may still have its rings mapped.
    pub(super) has_forked: bool,
    /// The end of the image, if no more rings and events will come.
    pub(super) ended: Option<(ImageEndReason, Time)>,
    /// True if its rings may be given to other processes when they have been read.
    pub(super) frees_rings: bool,
    /// The exit status of its process, if it has been reported; `Some(None)` if it will not be.
    pub(super) exit: Option<Option<ExitStatus>>,
    pub(super) end_is_written: bool,
    /// The events that were lost, except those that the image itself has counted.
    pub(super) lost: Lost,
    pub(super) counts: Counts,
}

/// The part of its life that an image is in.
#[derive(Debug)]
pub(super) enum Stage {
    /// None of its events has been merged yet.
    New,
    Running(Box<Image>),
    Over,
    /// The image ended before this segment of the recording.
    Past,
    /// The image wrote nothing: it was killed before its first event, or declined what the broker
    /// gave it. It may have come back as another image. It is not in the recording.
    Absent,
}

impl Slot {
    pub(super) fn new(start: ImageStart, fork: Option<NewFork>) -> Slot {
        Slot {
            start,
            fork,
            identity: None,
            regions: None,
            stage: Stage::New,
            sources: 0,
            common: None,
            retired: Vec::new(),
            has_forked: false,
            ended: None,
            frees_rings: false,
            exit: None,
            end_is_written: false,
            lost: Lost::default(),
            counts: Counts::default(),
        }
    }

    /// Returns the counters that the image keeps itself, while its common ring is mapped.
    pub(super) fn counters(&self) -> Option<&ImageCounters> {
        self.common.as_deref().map(|common| &common.ring().header().image)
    }

    pub(super) fn external_counters(&self) -> ExternalCounters {
        ExternalCounters::read(self.lost, self.counters())
    }

    pub(super) fn counts_so_far(&self) -> Counts {
        match &self.stage {
            Stage::New | Stage::Absent | Stage::Past => Counts::default(),
            Stage::Running(image) => image.counts(&self.external_counters()),
            Stage::Over => self.counts,
        }
    }

    pub(super) fn outcome(&self) -> ImageOutcome {
        ImageOutcome {
            image: self.start.image,
            how: self.start.how,
            end: self.ended.map_or(ImageEndReason::Lost, |(reason, _)| reason),
            executable: self.start.executable.clone(),
            argv: self.start.argv.clone(),
            counts: self.counts_so_far(),
        }
    }

    /// Writes the end of the image, if it has ended.
    pub(super) fn write_end(&mut self, shared: &mut Shared) {
        let Some((reason, time)) = self.ended else { return };
        self.end_is_written = true;
        let exit = self.exit.flatten();
        shared.records.push(Record::ImageEnd(ImageEnd { image: self.start.image, time, reason, exit }));
    }
}
