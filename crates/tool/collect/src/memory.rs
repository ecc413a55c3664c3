//! Samples the memory that the system counts for a process, from /proc.
//!
//! A sample reads two files: `status` for resident memory, `maps` for mappings. Reading `maps`
//! takes longer the more mappings there are, and blocks the process's own changes to them
//! meanwhile. [`Budget`] limits this to a hundredth of a processor.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use heapledger_core::Bytes;
use heapledger_inject::Mapping;
use heapledger_recording::{MemorySample, Time};
use rustix::time::{ClockId, clock_gettime};

/// The time between the first samples of an image, in nanoseconds.
const INTERVAL_FIRST: u64 = 5_000_000;
/// The number of samples after which the time between them doubles. There are about 1,400 samples
/// after a minute, and 4,100 after a day.
const SAMPLES_PER_INTERVAL: usize = 256;

/// The samples of an image that are not written yet, and when the next one is due.
#[derive(Debug)]
pub(crate) struct Samples {
    samples: Vec<MemorySample>,
    interval: u64,
    next: Time,
}

impl Samples {
    pub(crate) fn new() -> Samples {
        Samples { samples: Vec::new(), interval: INTERVAL_FIRST, next: Time(0) }
    }

    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.next
    }

    /// Adds a sample. Returns the samples to be written, if there are enough.
    pub(crate) fn add(&mut self, sample: MemorySample) -> Option<Vec<MemorySample>> {
        self.next = Time(sample.time.0.saturating_add(self.interval));
        self.samples.push(sample);
        if self.samples.len() < SAMPLES_PER_INTERVAL {
            return None;
        }
        self.interval = self.interval.saturating_mul(2);
        Some(self.take())
    }

    /// Returns the samples that are not written yet.
    pub(crate) fn so_far(&self) -> &[MemorySample] {
        &self.samples
    }

    /// Takes the samples that are not written yet.
    pub(crate) fn take(&mut self) -> Vec<MemorySample> {
        std::mem::take(&mut self.samples)
    }
}

/// Limits sampling to its share of a processor. It uses CPU time, because on a busy machine most of
/// the elapsed time of a sample is spent waiting for a processor.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    next: Option<Instant>,
}

impl Budget {
    pub(crate) fn is_left(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    /// Accounts for the work of this thread since its [processor time](thread_time) was `start`.
    pub(crate) fn spend(&mut self, start: Duration) {
        let spent = thread_time().saturating_sub(start);
        self.next = Some(Instant::now() + spent.saturating_mul(99).min(Duration::from_secs(3600)));
    }
}

/// Returns the processor time of this thread so far.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// A reader of /proc with a reusable buffer.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    text: Vec<u8>,
}

impl Prober {
    /// Samples the memory of a process. Returns `None` if the process has ended, or may not be
    /// read.
    pub(crate) fn sample(&mut self, pid: u32, time: Time) -> Option<MemorySample> {
        let mut sample = MemorySample { time, ..MemorySample::default() };
        parse_status(self.read(pid, "status").ok()?, &mut sample);
        parse_maps(self.read(pid, "maps").ok()?, &mut sample);
        // A process that is ending has no memory any more.
        (sample.resident > Bytes(0)).then_some(sample)
    }

    fn read(&mut self, pid: u32, file: &str) -> io::Result<&[u8]> {
        self.text.clear();
        File::open(format!("/proc/{pid}/{file}"))?.read_to_end(&mut self.text)?;
        Ok(&self.text)
    }
}

fn parse_status(text: &[u8], sample: &mut MemorySample) {
    for line in text.split(|&byte| byte == b'\n') {
        let Some((name, value)) = line.split_once_at(b':') else { continue };
        let value = || Bytes(number(value.trim_ascii_start()).saturating_mul(1 << 10));
        match name {
            b"VmRSS" => sample.resident = value(),
            b"RssAnon" => sample.resident_anonymous = value(),
            b"RssFile" | b"RssShmem" => sample.resident_file.0 += value().0,
            b"VmSwap" => sample.swapped = value(),
            _ => {}
        }
    }
}

/// Parses lines such as `7f5e1c000000-7f5e1c021000 rw-p 00000000 00:00 0    [heap]`.
fn parse_maps(text: &[u8], sample: &mut MemorySample) {
    let mappings = text.split(|&byte| byte == b'\n').filter_map(Mapping::parse);
    for mapping in mappings.filter(|mapping| mapping.is_writable && !mapping.is_shared) {
        if mapping.name == b"[heap]" {
            sample.heap.0 += mapping.bytes();
        } else if mapping.inode == 0 && mapping.name != b"[stack]" {
            sample.mappings.0 += mapping.bytes();
        }
    }
}

/// Returns the decimal number at the beginning of a text.
fn number(text: &[u8]) -> u64 {
    let digits = text.iter().map_while(|&byte| char::from(byte).to_digit(10));
    digits.fold(0_u64, |value, digit| value.wrapping_mul(10).wrapping_add(digit.into()))
}

trait SplitOnce {
    fn split_once_at(&self, at: u8) -> Option<(&[u8], &[u8])>;
}

impl SplitOnce for [u8] {
    fn split_once_at(&self, at: u8) -> Option<(&[u8], &[u8])> {
        let index = self.iter().position(|&byte| byte == at)?;
        Some((&self[..index], &self[index + 1..]))
    }
}

#[cfg(test)]
mod tests;
