//! The part of a history that a timeline shows, and its figures by column.

use heapledger_analysis::{Amount, Filter, History, Moment, ProcessChange, ProcessChangeKind, Profile};
use heapledger_core::Bytes;
use heapledger_recording::{ExitStatus, ImageId, MemorySample, Recording, Sample, Time};

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::time;
use crate::question::Question;
use crate::text::shown_command;

/// The most programs listed below a plot or a picture: those with the highest peaks.
const PROGRAMS_MAX: usize = 12;

/// The part of a history that is shown.
pub(super) struct View<'r, 'a> {
    pub(super) recording: &'r Recording<'a>,
    pub(super) filter: Filter,
    pub(super) from: Time,
    /// The end of the shown time, later than `from`.
    pub(super) to: Time,
    pub(super) history: History,
    /// The largest sample in the part, the first of equals.
    pub(super) peak: Sample,
    /// The amount live at the peak; for a sampled recording, with its error, as far as that is
    /// known.
    pub(super) at_peak: Amount,
    /// The programs in time order.
    pub(super) programs: Vec<Program>,
    /// The amounts that groups of sites held at each of the times: the largest group first, and
    /// last the sum of all others. Empty if groups were not asked for.
    pub(super) bands: Vec<Band>,
    /// True if the bands are parts of resident memory, not of live bytes.
    pub(super) is_resident: bool,
    pub(super) times: Vec<Time>,
}

/// The bytes that a group of sites, or a part of resident memory, held over time.
pub(super) struct Band {
    pub(super) name: String,
    pub(super) bytes: Vec<u64>,
}

/// A program that ran in the shown part.
pub(super) struct Program {
    pub(super) image: ImageId,
    pub(super) pid: u32,
    pub(super) from: Time,
    pub(super) to: Option<Time>,
    pub(super) how: ProcessChangeKind,
    pub(super) exit: Option<ExitStatus>,
    pub(super) command: String,
    bytes_live_max: Bytes,
}

impl<'r, 'a> View<'r, 'a> {
    pub(super) fn new(
        question: &Question<'r, 'a>,
        history: History,
        (from, to): (Option<Time>, Option<Time>),
    ) -> Result<View<'r, 'a>> {
        let (recording, filter) = (question.recording, question.selection.filter.clone());
        let from = from.unwrap_or(history.begins).max(history.begins);
        let to = to.unwrap_or(history.ends).min(history.ends).max(Time(history.begins.0 + 1));
        if from >= to {
            let span = format!("the recording goes from {} to {}", time(history.begins), time(history.ends));
            return Err(Failure::new(Exit::Usage, "there is nothing between these times").hint(span));
        }
        let mut peak = at(&history.live, from);
        for sample in history.live.iter().filter(|sample| (from..=to).contains(&sample.time)) {
            if sample.live.bytes > peak.live.bytes {
                peak = *sample;
            }
        }
        let programs = programs(recording, &history);
        let programs = programs.into_iter().filter(|it| it.from <= to && it.to.is_none_or(|end| end >= from)).collect();
        let (bands, times) = (Vec::new(), Vec::new());
        let at_peak = Amount { bytes: peak.live.bytes, blocks: peak.live.blocks, ..Amount::default() };
        Ok(View { recording, filter, from, to, history, peak, at_peak, programs, bands, is_resident: false, times })
    }

    /// Computes the error of the amount live at the peak. For a part of the time, this takes a
    /// replay of events.
    pub(super) fn estimate(&mut self, question: &mut Question<'_, '_>) {
        if !self.recording.is_sample() {
            return;
        }
        let moment =
            if self.is_whole() && self.filter.is_of_all_blocks() { Moment::Peak } else { Moment::At(self.peak.time) };
        let selection = question.selection.with_moment(moment);
        if let Ok(profile) = question.answer(|names, _, progress| Profile::load(names, &selection, progress)) {
            self.at_peak.variance = profile.whole.variance;
        }
    }

    /// Returns the patterns of the processes that were asked for.
    pub(super) fn processes(&self) -> Vec<String> {
        self.filter.processes.iter().map(ToString::to_string).collect()
    }

    /// True if the view shows all of the time.
    pub(super) fn is_whole(&self) -> bool {
        (self.from, self.to) == (self.history.begins, self.history.ends)
    }

    /// Returns the largest figure in each of `columns` equal parts of the time. A figure holds
    /// until the next one; `None` before the first.
    pub(super) fn columns<S>(
        &self,
        samples: &[S],
        columns: usize,
        moment: impl Fn(&S) -> Time,
        figure: impl Fn(&S) -> u64,
    ) -> Vec<Option<u64>> {
        let mut largest: Vec<Option<u64>> = vec![None; columns];
        let mut last = largest.clone();
        let mut held = None;
        for sample in samples.iter().take_while(|sample| moment(sample) <= self.to) {
            if moment(sample) < self.from {
                held = Some(figure(sample));
                continue;
            }
            let column = self.column(moment(sample), columns);
            largest[column] = largest[column].max(Some(figure(sample)));
            last[column] = Some(figure(sample));
        }
        for (largest, last) in largest.iter_mut().zip(last) {
            *largest = (*largest).max(held);
            held = last.or(held);
        }
        largest
    }

    /// Returns the programs to list, and the number of the others.
    pub(super) fn listed(&self) -> (Vec<&Program>, usize) {
        let mut listed: Vec<&Program> = self.programs.iter().collect();
        listed.sort_by_key(|program| std::cmp::Reverse(program.bytes_live_max));
        listed.truncate(PROGRAMS_MAX);
        listed.sort_by_key(|program| (program.from, program.image));
        let more = self.programs.len() - listed.len();
        (listed, more)
    }

    pub(super) fn live(&self, columns: usize) -> Vec<Option<u64>> {
        self.columns(&self.history.live, columns, |sample| sample.time, |sample| sample.live.bytes.0)
    }

    pub(super) fn blocks(&self, columns: usize) -> Vec<Option<u64>> {
        self.columns(&self.history.live, columns, |sample| sample.time, |sample| sample.live.blocks.0)
    }

    pub(super) fn slop(&self, columns: usize) -> Vec<Option<u64>> {
        self.columns(&self.history.slop, columns, |sample| sample.time, |sample| sample.live.bytes.0)
    }

    /// Returns the most slop in the part.
    pub(super) fn slop_max(&self) -> u64 {
        self.slop(1).into_iter().flatten().max().unwrap_or(0)
    }

    pub(super) fn memory(&self, columns: usize, figure: Figure) -> Vec<Option<u64>> {
        self.columns(&self.history.memory, columns, |sample| sample.time, |sample| figure(sample).0)
    }

    /// Returns the most that the bands are together at any of the times.
    pub(super) fn bands_max(&self) -> u64 {
        let sum = |at| {
            self.bands.iter().filter_map(|band| band.bytes.get(at)).fold(0, |sum: u64, it| sum.saturating_add(*it))
        };
        (0..self.times.len()).map(sum).max().unwrap_or(0)
    }

    /// Returns the last moment of each of `columns` equal parts of the time; for the part with the
    /// peak, the moment of the peak.
    pub(super) fn ends(&self, columns: usize) -> Vec<Time> {
        let length = u128::from(self.to.0 - self.from.0);
        let end = |column: u128| Time(self.from.0 + (length * (column + 1) / columns as u128) as u64);
        let mut ends: Vec<Time> = (0..columns as u128).map(end).collect();
        ends[self.column(self.peak.time, columns)] = self.peak.time;
        ends
    }

    /// Returns the index of the part that contains a moment, if the time is divided into `columns`
    /// equal parts.
    pub(super) fn column(&self, moment: Time, columns: usize) -> usize {
        let part = u128::from(moment.0.saturating_sub(self.from.0)) * columns as u128;
        let column = part / u128::from(self.to.0 - self.from.0);
        (column as usize).min(columns - 1)
    }
}

/// Returns the last sample up to a moment.
pub(super) fn at(live: &[Sample], moment: Time) -> Sample {
    let after = live.partition_point(|sample| sample.time <= moment);
    let live = after.checked_sub(1).map(|at| live[at].live).unwrap_or_default();
    Sample { time: moment, live }
}

/// A function that returns one of the figures that the system counted.
pub(super) type Figure = fn(&MemorySample) -> Bytes;

/// The figures that the system counted, with the names that plots give them.
pub(super) const MEMORY: [(&str, Figure); 4] = [
    ("resident", |sample| sample.resident),
    ("of no file", |sample| sample.resident_anonymous),
    ("brk heap", |sample| sample.heap),
    ("anon mmap", |sample| sample.mappings),
];

/// Returns the letter of a program in a plot.
pub(super) fn letter(at: usize) -> char {
    u8::try_from(at).ok().filter(|&at| at < 26).map_or('+', |at| char::from(b'a' + at))
}

fn programs(recording: &Recording<'_>, history: &History) -> Vec<Program> {
    let starts = history.process_changes.iter().filter(|change| !matches!(change.what, ProcessChangeKind::Ended(_)));
    let program = |change: &ProcessChange| {
        let start = recording.image(change.image)?;
        let end = recording.image_end(change.image);
        Some(Program {
            image: change.image,
            pid: start.pid,
            from: change.time,
            to: end.map(|end| end.time),
            how: change.what,
            exit: end.and_then(|end| end.exit),
            command: shown_command(start),
            bytes_live_max: recording.image_counts(change.image).map_or(Bytes(0), |counts| counts.bytes_live_max),
        })
    };
    starts.filter_map(program).collect()
}
