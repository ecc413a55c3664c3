//! What is live, and the most that ever was: for one process image, and for the session over all of them.

use heapledger_core::{Blocks, Bytes};

/// A moment, in the caller's unit and from the caller's origin; the ledger only hands it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Time(pub u64);

/// Live totals and their maxima. The two maxima are independent: each is over all time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Requested bytes of the live blocks.
    pub bytes_live: Bytes,
    /// Live blocks.
    pub blocks_live: Blocks,
    /// The peak: the most bytes that were live at one moment.
    pub bytes_live_max: Bytes,
    /// The first moment of the peak.
    pub bytes_live_max_time: Time,
    /// Blocks live at the peak.
    pub blocks_at_bytes_max: Blocks,
    /// The most blocks that were live at one moment.
    pub blocks_live_max: Blocks,
}

/// Live totals, and the number of times the peak was raised. Sums wrap around rather than panic; real ones never get
/// there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    pub(crate) live: Live,
    pub(crate) epoch: u64,
}

impl Meter {
    pub(crate) const fn new() -> Meter {
        let live = Live {
            bytes_live: Bytes(0),
            blocks_live: Blocks(0),
            bytes_live_max: Bytes(0),
            bytes_live_max_time: Time(0),
            blocks_at_bytes_max: Blocks(0),
            blocks_live_max: Blocks(0),
        };
        Meter { live, epoch: 0 }
    }

    #[inline(always)]
    pub(crate) fn rise(&mut self, time: Time, size: Bytes) {
        let live = &mut self.live;
        live.bytes_live.0 = live.bytes_live.0.wrapping_add(size.0);
        live.blocks_live.0 = live.blocks_live.0.wrapping_add(1);
        live.blocks_live_max = live.blocks_live_max.max(live.blocks_live);
        if live.bytes_live > live.bytes_live_max {
            live.bytes_live_max = live.bytes_live;
            live.bytes_live_max_time = time;
            live.blocks_at_bytes_max = live.blocks_live;
            self.epoch += 1;
        }
    }

    /// Counts maxima anew, from what is live.
    pub(crate) fn restart(&mut self, time: Time) {
        let live = &mut self.live;
        live.bytes_live_max = live.bytes_live;
        live.bytes_live_max_time = time;
        live.blocks_at_bytes_max = live.blocks_live;
        live.blocks_live_max = live.blocks_live;
        self.epoch += 1;
    }

    #[inline(always)]
    pub(crate) fn fall(&mut self, bytes: Bytes, blocks: Blocks) {
        let live = &mut self.live;
        live.bytes_live.0 = live.bytes_live.0.wrapping_sub(bytes.0);
        live.blocks_live.0 = live.blocks_live.0.wrapping_sub(blocks.0);
    }
}

/// The totals over all process images: what every [`crate::Ledger`] of one recording adds to and takes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    pub(crate) meter: Meter,
}

impl Session {
    /// A session in which nothing has happened.
    pub const fn new() -> Session {
        Session { meter: Meter::new() }
    }

    /// Counts the maxima anew from this moment on, with what is live as the first: see [`crate::Ledger::restart`].
    pub fn restart(&mut self, time: Time) {
        self.meter.restart(time);
    }

    /// The totals over all images that have not ended, and their maxima.
    pub fn live(&self) -> Live {
        self.meter.live
    }
}

/// What the totals of an image are part of.
pub(crate) trait Over {
    fn epoch(&self) -> u64;
    fn rise(&mut self, time: Time, size: Bytes);
    fn fall(&mut self, bytes: Bytes, blocks: Blocks);
}

impl Over for Session {
    #[inline(always)]
    fn epoch(&self) -> u64 {
        self.meter.epoch
    }

    #[inline(always)]
    fn rise(&mut self, time: Time, size: Bytes) {
        self.meter.rise(time, size);
    }

    #[inline(always)]
    fn fall(&mut self, bytes: Bytes, blocks: Blocks) {
        self.meter.fall(bytes, blocks);
    }
}

/// Nothing: the image is alone.
pub(crate) struct Alone;

impl Over for Alone {
    #[inline(always)]
    fn epoch(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn rise(&mut self, _: Time, _: Bytes) {}

    #[inline(always)]
    fn fall(&mut self, _: Bytes, _: Blocks) {}
}
