//! The data that a format can hold, as the constant `HOLDS` of its module describes it: for the
//! messages of `heapledger export`, and so that data which no field takes is not computed.

use crate::profile::{Known, Profile, Sample};

/// The data that a format has a place for, besides stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The amounts; if [`one_figure`](Holds::one_figure) is set, those that the figure may belong
    /// to.
    pub amounts: Known,
    /// True if a file has only [one figure](Profile::shown) for each stack.
    pub one_figure: bool,
    /// The amounts for which readers expect a value. If a profile does not know one of them,
    /// [`unknown`](Holds::unknown) names it, and the writer puts another value in its place, such
    /// as 0.
    pub expected: Known,
    /// Numbers of blocks, beside bytes.
    pub blocks: bool,
    /// Labels: types, contexts, heaps.
    pub labels: bool,
    /// Names of functions.
    pub names: bool,
    /// The files that functions are in.
    pub files: bool,
    /// Lines of calls.
    pub lines: bool,
    /// Executables and libraries with their build ids.
    pub modules: bool,
    /// The live bytes over time.
    pub timeline: bool,
}

impl Holds {
    /// The value for a format that has only stacks.
    pub const STACKS: Holds = Holds {
        amounts: Known::NONE,
        one_figure: false,
        expected: Known::NONE,
        blocks: false,
        labels: false,
        names: false,
        files: false,
        lines: false,
        modules: false,
        timeline: false,
    };

    /// Returns the data of a profile that does not go into a file of this format, in words for
    /// people.
    pub fn lost(&self, profile: &Profile) -> Vec<&'static str> {
        let known = profile.known;
        let (held, bytes, blocks) = match (self.one_figure, profile.shown.is_bytes()) {
            (false, _) => (self.amounts, true, self.blocks),
            (true, bytes) => (profile.shown.amounts(), bytes, !bytes),
        };
        let all = |is: fn(&Sample) -> bool| profile.samples.iter().all(is);
        let is_peak = || held.peak && all(|sample| sample.amounts.live == sample.amounts.peak);
        let is_end = || held.end && all(|sample| sample.amounts.live == sample.amounts.end);
        let mut frames = profile.locations.iter().flat_map(|location| &location.frames);
        let has_files = frames.clone().any(|frame| !frame.file.is_empty());
        [
            (known.allocated && !held.allocated, "what was allocated in all"),
            (known.temporaries && !held.temporaries, "temporary allocations"),
            (known.live && !held.live && !is_peak() && !is_end(), "what was live at the time"),
            (known.peak && !held.peak && !held.live, "what was live at the peak"),
            (known.end && !held.end && !held.live, "what was live at the end"),
            (!bytes, "bytes"),
            (!blocks, "numbers of blocks"),
            (!self.labels && !all(|sample| sample.labels.is_empty()), "types and contexts"),
            (!self.names && frames.any(|frame| frame.known), "names of functions"),
            (!self.files && has_files, "files and lines"),
            (self.files && !self.lines && has_files, "lines of calls"),
            (!profile.modules.is_empty() && !self.modules, "build ids"),
            (!profile.timeline.is_empty() && !self.timeline, "what was live over time"),
        ]
        .into_iter()
        .filter_map(|(is_lost, what)| is_lost.then_some(what))
        .collect()
    }

    /// Returns the amounts for which readers expect a value but that the profile does not know, in
    /// words for people.
    pub fn unknown(&self, profile: &Profile) -> Vec<&'static str> {
        let (known, asked) = (profile.known, self.expected);
        [
            (asked.allocated && !known.allocated, "what was allocated in all"),
            (asked.temporaries && !known.temporaries, "temporary allocations"),
            (asked.live && !known.live, "what is live"),
            (asked.peak && !known.peak, "what was live at the peak"),
            (asked.end && !known.end, "what was live at the end"),
            (asked.most && !known.most, "the most that was live of each stack"),
            (asked.lifetimes && !known.lifetimes, "lifetimes"),
        ]
        .into_iter()
        .filter_map(|(is_unknown, what)| is_unknown.then_some(what))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Amount, Amounts, Figure};

    #[test]
    fn a_moment_is_lost_unless_it_is_one_that_is_held() {
        let amount = |bytes| Amount { blocks: 1, bytes };
        let mut profile = Profile {
            known: Known { live: true, peak: true, end: true, ..Known::NONE },
            samples: vec![Sample {
                amounts: Amounts { live: amount(8), peak: amount(8), end: amount(3), ..Amounts::default() },
                ..Sample::default()
            }],
            ..Profile::default()
        };
        let summary = Holds {
            amounts: Known { peak: true, end: true, ..Known::NONE },
            expected: Known { lifetimes: true, peak: true, ..Known::NONE },
            blocks: true,
            ..Holds::STACKS
        };
        assert_eq!(summary.lost(&profile), [""; 0]);
        assert_eq!(summary.unknown(&profile), ["lifetimes"]);
        profile.samples[0].amounts.live = amount(5);
        assert_eq!(summary.lost(&profile), ["what was live at the time"]);
    }

    #[test]
    fn one_figure_is_kept() {
        let known = Known { allocated: true, temporaries: true, live: true, ..Known::NONE };
        let mut profile = Profile { known, ..Profile::default() };
        let holds = Holds { amounts: known, one_figure: true, ..Holds::STACKS };
        assert_eq!(holds.lost(&profile), ["what was allocated in all", "temporary allocations", "numbers of blocks"]);
        profile.shown = Figure::Allocations;
        assert_eq!(holds.lost(&profile), ["temporary allocations", "what was live at the time", "bytes"]);
    }
}
