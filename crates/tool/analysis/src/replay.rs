//! Replays events through the ledger, to find what a recording's totals do not have.
//!
//! The ledger counts per stack. A replay may put any other key in place of stacks (threads, sizes):
//! the ledger's figures per "stack", including exact shares of the peaks, are then a breakdown by
//! that key.

pub(crate) mod results;
pub(crate) mod span;
pub(crate) mod visitor;

mod player;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use heapledger_core::Bytes;
use heapledger_ledger as ledger;
use heapledger_recording::{CountErrors, EventsBuffer, ImageId, Recording, RecordingError, Time, Timeline};

use self::player::{Player, add_to_timeline};
use self::results::Replayed;
use self::span::Span;
use self::visitor::{BlockVisitor, EndReason};
use crate::error::Error;
use crate::events::expect_events;
use crate::progress::Progress;

/// A replay: its images, the part of their time, and the memory that it may take.
#[derive(Clone, Copy)]
pub(crate) struct Replay<'r, 'a> {
    pub(crate) recording: &'r Recording<'a>,
    /// The images, which are replayed together.
    pub(crate) images: &'r [ImageId],
    pub(crate) span: Span,
    /// The limit of memory.
    pub(crate) memory_max: Bytes,
}

impl<'r> Replay<'r, '_> {
    /// Replays the images together, in the order of time. The visitor returns the group that a
    /// block is counted under.
    pub(crate) fn run(self, mut visitor: impl BlockVisitor, progress: Progress<'_>) -> Result<Replayed, Error> {
        self.run_with(&mut visitor, progress)
    }

    /// Does the work of `run`. It is compiled once, not for each visitor.
    fn run_with(self, visitor: &mut dyn BlockVisitor, progress: Progress<'_>) -> Result<Replayed, Error> {
        let Replay { recording, span, .. } = self;
        expect_events(recording)?;
        let mut session = ledger::Session::new();
        let mut replayed = Replayed::default();
        let mut memory = Memory { taken: 0, max: self.memory_max.0 };
        let mut players = self.players(&mut session, &mut memory, visitor)?;
        let events_all: u64 = players.iter().flatten().map(Player::events_left).sum();
        let mut next_steps = BinaryHeap::new();
        for (at, player) in players.iter_mut().enumerate() {
            next_steps.extend(player.as_mut().map(|player| Reverse((player.next_time(), player.image, at))));
        }

        let mut buffer = EventsBuffer::default();
        let mut timeline = Timeline::new();
        if span.from.is_none()
            && let Some(begins) = recording.session().map(|session| session.begins).filter(|begins| begins.0 > 0)
        {
            // The blocks in the ledgers were carried into this recording: they are live, but not
            // allocated in it.
            session.restart(ledger::Time(begins.0));
            add_to_timeline(&mut timeline, begins, session.live());
            for player in players.iter_mut().flatten() {
                player.restart(begins);
            }
        }
        let mut events_done = 0;
        while !span.is_over(session.live())
            && let Some(Reverse((_, image, at))) = next_steps.pop()
        {
            let Some(player) = players[at].as_mut() else { continue };
            // The player with the earliest step goes on until another one is earlier.
            let turn = next_steps.peek().map(|Reverse((time, other, _))| (*time, *other));
            let is_due = |time: Time| turn.is_none_or(|turn| (Some(time), image) <= (turn.0, turn.1));
            while let Some(time) = player.next_time()
                && is_due(time)
                && (!span.is_over(session.live()) || player.is_before_a_stamp())
            {
                if player.needs_chunk() {
                    match player.load_chunk(&mut buffer) {
                        Ok(events) => events_done += events,
                        Err(RecordingError::Damaged(damage)) => replayed.damage.push(damage),
                        Err(other) => return Err(other.into()),
                    }
                    memory.check(player)?;
                    progress(events_done, events_all);
                    if !visitor.wants_more() {
                        return Err(Error::Stopped);
                    }
                } else {
                    player.play(&mut session, &mut timeline, visitor, is_due)?;
                }
            }
            match player.next_time() {
                Some(time) => next_steps.push(Reverse((Some(time), image, at))),
                // Its register is released now, so that the memory serves the images that still
                // run.
                None if player.ended => {
                    memory.taken -= player.memory;
                    replayed.images.extend(players[at].take().map(|player| player.finish(&session)));
                }
                None => {}
            }
        }
        let end = recording.footer().map_or(Time(0), |footer| footer.time).max(timeline.last_time());
        for player in players.into_iter().flatten() {
            player.notify_ends(end, EndReason::ReplayEnded, visitor);
            replayed.images.push(player.finish(&session));
        }

        replayed.live = session.live();
        replayed.errors = CountErrors::of(session.variances());
        replayed.timeline = timeline.finish();
        replayed.remove_lower_peaks();
        replayed.images.sort_by_key(|image| image.image);
        Ok(replayed)
    }

    /// Returns the images that have something in the span, before their first events.
    fn players(
        &self,
        session: &mut ledger::Session,
        memory: &mut Memory,
        visitor: &mut dyn BlockVisitor,
    ) -> Result<Vec<Option<Player<'r>>>, Error> {
        let mut players = Vec::with_capacity(self.images.len());
        for &image in self.images {
            if let Some(mut player) = Player::new(self.recording, image, self.span, session, visitor)? {
                memory.check(&mut player)?;
                players.push(Some(player));
            }
        }
        Ok(players)
    }
}

/// The memory taken by the registers and sites of all images under replay, in bytes.
struct Memory {
    taken: u64,
    max: u64,
}

impl Memory {
    /// Updates the memory of one image, and fails if the limit is exceeded.
    fn check(&mut self, player: &mut Player<'_>) -> Result<(), Error> {
        let now = player.bytes();
        self.taken = self.taken - player.memory + now;
        player.memory = now;
        if self.taken > self.max { Err(Error::MemoryLimit(Bytes(self.max))) } else { Ok(()) }
    }
}
