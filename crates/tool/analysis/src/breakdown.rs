//! What threads or sizes hold at a moment: questions that only the events answer.

use std::collections::HashMap;

use heapledger_core::{Bytes, StackId, ThreadId};
use heapledger_recording::{Damage, ImageId, Recording};

use crate::amount::Amount;
use crate::error::Error;
use crate::moment::{Moment, Selection, last_images};
use crate::profile::Share;
use crate::replay::{Origin, Progress, Span, replay};

/// What blocks are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The thread that allocated them.
    Thread,
    /// Their requested size.
    Size,
}

/// Blocks that have something in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// A thread of an image allocated them.
    Thread(ImageId, ThreadId),
    /// They have this requested size.
    Size(Bytes),
    /// They are of a thread or size beyond those that can be told apart (67 million).
    Rest,
}

/// What threads or sizes hold at a moment.
#[derive(Debug, Default)]
pub struct Breakdown {
    /// Those that hold something, in no particular order.
    pub parts: Vec<(Part, Amount)>,
    /// Their sum.
    pub whole: Amount,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// Breaks a selection down by thread or size: a replay of its events.
pub fn breakdown(
    recording: &Recording<'_>,
    by: By,
    selection: Selection,
    progress: Progress<'_>,
) -> Result<Breakdown, Error> {
    let images = selection.images(recording)?;
    let span = match selection.moment {
        Moment::At(time) if recording.footer().is_some_and(|footer| time > footer.time) => return Err(Error::AfterEnd),
        // Checkpoints do not tell threads.
        Moment::At(time) => Span { until: Some(time), from_checkpoints: by == By::Size },
        _ => Span::default(),
    };
    // The ledger counts under a part's number instead of a stack; see the replay. Number 0 is the rest.
    let mut parts = vec![Part::Rest];
    let mut numbers: HashMap<Part, StackId> = HashMap::new();
    let mut latest = (Part::Rest, StackId::ROOT);
    let number = |origin: Origin| {
        let part = match (by, origin.thread) {
            (By::Size, _) => Part::Size(origin.size),
            (By::Thread, Some(thread)) => Part::Thread(origin.image, thread),
            (By::Thread, None) => Part::Rest,
        };
        if part == latest.0 {
            return latest.1;
        }
        if part == Part::Rest || parts.len() > StackId::MAX.0 as usize {
            return numbers.get(&part).copied().unwrap_or(StackId::ROOT);
        }
        let number = numbers.entry(part).or_insert_with(|| {
            parts.push(part);
            StackId(parts.len() as u32 - 1)
        });
        latest = (part, *number);
        *number
    };
    let replayed = replay(recording, &images, span, number, progress)?;

    // Only the selected images were replayed, so the peak of them all is the one that was asked for.
    let share = match selection.moment {
        Moment::Peak => Share::SessionPeak,
        Moment::End | Moment::At(_) => Share::End,
        Moment::Total => Share::Total,
    };
    let mut breakdown = Breakdown { damage: replayed.damage, ..Breakdown::default() };
    let mut amounts = vec![Amount::default(); parts.len()];
    let last = last_images(recording);
    for image in replayed.images {
        let counts = match selection.moment {
            Moment::At(_) => !image.ended,
            Moment::End => last.contains(&image.image),
            Moment::Peak | Moment::Total => true,
        };
        if !counts {
            continue;
        }
        for site in &image.sites {
            let amount = share.of(site);
            if let Some(sum) = amounts.get_mut(site.stack.0 as usize) {
                *sum += amount;
                breakdown.whole += amount;
            }
        }
    }
    breakdown.parts = parts.into_iter().zip(amounts).filter(|(_, amount)| !amount.is_nothing()).collect();
    Ok(breakdown)
}
