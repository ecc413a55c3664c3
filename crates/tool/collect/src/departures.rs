//! Programs and processes that leave the session. They are announced by those that start them, and
//! listed in the recording unless they introduce themselves.

use std::collections::{HashMap, HashSet};

use heapledger_core::program::Obstacle;
use heapledger_recording::{Departure, ImageId, ImageOrigin, ImageStart, Time};
use heapledger_wire::session;

/// The time in nanoseconds after which an announced program that will not be recorded counts as
/// started. An exec that fails is reported at once, but by a thread that may have to wait for the
/// processor.
const SETTLED_AFTER: u64 = 10_000_000_000;

/// A program that an image has announced to start.
#[derive(Debug)]
pub(crate) struct Announced {
    pub(crate) image: ImageId,
    /// The ids of the image's own process and of the program's, in their pid namespace.
    pub(crate) process: u32,
    pub(crate) pid: u32,
    /// The reason why it is not recorded; 0 if it should introduce itself.
    pub(crate) reason: u16,
    pub(crate) is_tight: bool,
    /// The earliest stamp at which the program may have run.
    pub(crate) since: u64,
    pub(crate) time: Time,
    pub(crate) path: Vec<u8>,
}

/// The announcements of a session.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    pending: Vec<Announced>,
    /// The stamp of the latest introduction of an image that came by exec, by pid.
    introduced: HashMap<u32, u64>,
    /// Processes into which the recorder was not placed, by pid.
    not_followed: HashSet<u32>,
    /// Processes that had no room for the recorder, by pid.
    declined: HashSet<u32>,
    /// The number of all departures that are certain.
    count: u64,
    /// The first of these departures.
    listed: Vec<Departure>,
}

impl Departures {
    /// The maximum length of [`Departures::listed`].
    const LISTED_MAX: usize = 256;

    pub(crate) fn announce(&mut self, announced: Announced) {
        self.pending.push(announced);
    }

    /// Withdraws the latest announcement for a process, because its exec failed.
    pub(crate) fn exec_failed(&mut self, image: ImageId, pid: u32) {
        let is_it = |announced: &Announced| announced.image == image && announced.pid == pid;
        if let Some(at) = self.pending.iter().rposition(is_it) {
            self.pending.remove(at);
        }
    }

    /// Notes that an image has come by exec.
    pub(crate) fn introduce(&mut self, pid: u32, stamp: u64) {
        self.introduced.insert(pid, stamp);
        // An earlier program of the process was not followed.
        self.not_followed.remove(&pid);
    }

    /// Notes that the recorder was not placed into the program that a process has executed.
    pub(crate) fn not_followed(&mut self, pid: u32) {
        self.not_followed.insert(pid);
    }

    /// Notes that an image that has introduced itself could not take what it was given. Returns
    /// `None` if it has said so before, because it asks again.
    pub(crate) fn decline(&mut self, start: &ImageStart, time: Time) -> Option<Departure> {
        let pid = start.pid;
        self.pending.retain(|announced| announced.pid != pid || announced.reason != 0);
        if !self.declined.insert(pid) {
            return None;
        }
        let (image, path) = (start.parent_image.unwrap_or(start.image), start.executable.clone());
        let is_fork = start.how == ImageOrigin::Fork;
        Some(self.list(Departure { time, image, pid, reason: Obstacle::NoRoom as u32, path, is_fork }))
    }

    /// Notes that an image is recorded without calls of an allocator inside of it.
    pub(crate) fn not_redirected(&mut self, start: &ImageStart, time: Time) -> Departure {
        let (image, path) = (start.image, start.executable.clone());
        let reason = Obstacle::NotRedirected as u32;
        self.list(Departure { time, image, pid: start.pid, reason, path, is_fork: false })
    }

    /// Returns the departure of a process that was forked by an image and could not introduce
    /// itself; `None` if it has declined.
    pub(crate) fn unreached(&mut self, start: &ImageStart, child: u32) -> Option<Departure> {
        if self.declined.contains(&(child & !session::IN_OTHER_NETWORK)) {
            return None;
        }
        let is_elsewhere = child & session::IN_OTHER_NETWORK != 0;
        let reason = if is_elsewhere { Obstacle::OtherNetwork } else { Obstacle::Silent } as u32;
        let (pid, path) = (child & !session::IN_OTHER_NETWORK, start.executable.clone());
        Some(self.list(Departure { time: start.time, image: start.image, pid, reason, path, is_fork: true }))
    }

    /// Returns the departures that are certain by now; without `now`, all. `pid_of` returns the pid
    /// of an image.
    pub(crate) fn settle(&mut self, now: Option<Time>, pid_of: impl Fn(ImageId) -> u32) -> Vec<Departure> {
        let mut settled = Vec::new();
        for announced in std::mem::take(&mut self.pending) {
            let is_settled = |time: Time| now.is_none_or(|now| now.0.saturating_sub(time.0) > SETTLED_AFTER);
            let own = pid_of(announced.image);
            // True in another pid namespace than ours: the image gives its own number as it knows
            // it.
            let is_elsewhere = announced.process != own;
            let pid = if announced.pid == announced.process { own } else { announced.pid };
            let has_come = || self.introduced.get(&pid).is_some_and(|&stamp| stamp >= announced.since);
            if announced.reason == 0 && (is_elsewhere && pid != own || has_come()) {
                continue;
            }
            if announced.reason == 0 && now.is_some() || !is_settled(announced.time) {
                self.pending.push(announced);
                continue;
            }
            let silent = match announced.is_tight {
                // It is about the first of the programs that the process did not introduce.
                _ if announced.reason == 0 && self.not_followed.remove(&pid) => Obstacle::NotFollowed,
                true => Obstacle::NoRoom,
                false => Obstacle::Silent,
            };
            let reason = if announced.reason == 0 { silent as u32 } else { announced.reason.into() };
            let Announced { image, time, path, .. } = announced;
            settled.push(Departure { time, image, pid, reason, path, is_fork: false });
        }
        settled.iter().for_each(|departure| drop(self.list(departure.clone())));
        settled
    }

    /// Returns the number of departures, and the first of them.
    pub(crate) fn into_listed(self) -> (u64, Vec<Departure>) {
        (self.count, self.listed)
    }

    fn list(&mut self, departure: Departure) -> Departure {
        self.count += 1;
        if self.listed.len() < Departures::LISTED_MAX {
            self.listed.push(departure.clone());
        }
        departure
    }
}

#[cfg(test)]
mod tests;
