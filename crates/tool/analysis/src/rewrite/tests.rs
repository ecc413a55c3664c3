//! What is made of random sessions has the figures that they have.

use heapledger_recording::{Counts, Record, Recording, Time};
use heapledger_symbols::{Options, Symbolizer};
use proptest::prelude::*;

use super::*;
use crate::testing::{steps, write};
use crate::{Amount, Moment, Names, Overview, Profile, Selection, overview};

fn totals(recording: &Recording<'_>) -> Overview {
    overview(recording, &mut |_, _| ()).expect("totals")
}

fn merged(parts: &[&Recording<'_>]) -> Vec<u8> {
    let mut so_far = Vec::new();
    let mut draft = Draft::new(&mut so_far);
    merge(parts, &mut draft).expect("a draft");
    draft.flush().expect("a draft");
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    let (footer, damage) = merge(parts, &mut draft).expect("a draft");
    assert!(damage.iter().all(Vec::is_empty), "{damage:?}");
    draft.count_and_finish(&Recording::open(&so_far).expect("a draft"), footer, &mut |_, _| ()).expect("a recording");
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn merged_sessions_keep_their_images(one in steps(80), two in steps(80)) {
        let (one, _, truth_of_one) = write(&one);
        let (two, unfinished, truth_of_two) = write(&two);
        let parts = [&one, &two].map(|part| Recording::open(part).unwrap());
        let bytes = merged(&[&parts[0], &parts[1]]);
        let both = Recording::open(&bytes).unwrap();
        prop_assert!(both.complete() && both.verify().is_empty());
        let found = totals(&both);
        prop_assert!(!found.recounted);
        let images = |overview: &Overview| -> Vec<_> {
            overview.processes.iter().flat_map(|process| process.images.clone()).map(|image| image.counts).collect()
        };
        let expected = parts.iter().flat_map(|part| images(&totals(part))).collect::<Vec<_>>();
        prop_assert_eq!(images(&found), expected);
        let (a, b) = (truth_of_one.counts, truth_of_two.counts);
        prop_assert_eq!(found.counts.allocations.0, a.allocations.0 + b.allocations.0);
        prop_assert_eq!(found.counts.bytes_live_end.0, a.bytes_live_end.0 + b.bytes_live_end.0);
        let most = a.bytes_live_max.max(b.bytes_live_max);
        prop_assert!((most.0..=a.bytes_live_max.0 + b.bytes_live_max.0).contains(&found.counts.bytes_live_max.0));
        let mut names = Names::new(&both, Symbolizer::new(Options::default()));
        let peak = Profile::load(&mut names, &Selection::at(Moment::Peak), &mut |_, _| ()).unwrap();
        prop_assert_eq!(peak.whole.bytes, found.counts.bytes_live_max);

        // One whose recorder was killed makes a whole that is not complete, of the same figures.
        let unfinished = Recording::open(&unfinished).unwrap();
        let bytes = merged(&[&parts[0], &unfinished]);
        let both = Recording::open(&bytes).unwrap();
        prop_assert!(!both.complete() && both.footer().is_some());
        prop_assert_eq!(totals(&both).counts, found.counts);
    }

    #[test]
    fn anonymous_sessions_keep_their_figures(steps in steps(80)) {
        let (finished, unfinished, _) = write(&steps);
        for bytes in [finished, unfinished] {
            let recording = Recording::open(&bytes).unwrap();
            let mut anonymous = Vec::new();
            let damage = anonymize(&recording, Kept::default(), b"key", Draft::new(&mut anonymous)).unwrap();
            prop_assert!(damage.is_empty());
            let anonymous = Recording::open(&anonymous).unwrap();
            prop_assert_eq!(anonymous.complete(), recording.complete());
            prop_assert_eq!(totals(&anonymous), totals(&recording));
            prop_assert!(anonymous.images().iter().all(|image| image.argv.len() == 1));
        }
    }
}

fn trimmed(recording: &Recording<'_>, from: u64, to: u64) -> Vec<u8> {
    let part = Time(from)..=Time(to);
    let mut so_far = Vec::new();
    let mut draft = Draft::new(&mut so_far);
    trim(recording, part.clone(), &mut draft, &mut |_, _| ()).expect("a draft");
    draft.flush().expect("a draft");
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    let (footer, damage) = trim(recording, part, &mut draft, &mut |_, _| ()).expect("a draft");
    assert!(damage.is_empty(), "{damage:?}");
    draft.count_and_finish(&Recording::open(&so_far).expect("a draft"), footer, &mut |_, _| ()).expect("a recording");
    bytes
}

fn profile(recording: &Recording<'_>, moment: Moment) -> Profile {
    let mut names = Names::new(recording, Symbolizer::new(Options::default()));
    Profile::load(&mut names, &Selection::at(moment), &mut |_, _| ()).expect("a profile")
}

/// What every stack holds at a moment, by its frames.
fn held(recording: &Recording<'_>, moment: Moment) -> Vec<(Vec<u64>, Amount)> {
    let profile = profile(recording, moment);
    let frames = |stack| profile.stacks.frames(stack).map(|frame| frame.offset).collect::<Vec<u64>>();
    let mut held: Vec<_> = profile.sites.iter().map(|site| (frames(site.stack), site.amount)).collect();
    held.sort_by(|a, b| a.0.cmp(&b.0));
    held
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn parts_of_sessions_are_as_they_were(
        steps in steps(120), cuts in prop::array::uniform2(any::<prop::sample::Index>())
    ) {
        let (whole, unfinished, truth) = write(&steps);
        if truth.history.is_empty() {
            return Ok(());
        }
        let [mut from, mut to] = cuts.map(|cut| cut.get(&truth.history).0.0);
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let end = Recording::open(&whole).unwrap().footer().unwrap().time.0;
        for whole in [&whole, &unfinished] {
            let whole = Recording::open(whole).unwrap();
            let bytes = trimmed(&whole, from, to);
            let part = Recording::open(&bytes).unwrap();
            prop_assert!(part.verify().is_empty(), "{:?}", part.verify());
            prop_assert_eq!(part.complete(), whole.complete());
            for (time, _) in truth.history.iter().filter(|(time, _)| (from..=to).contains(&time.0)) {
                prop_assert_eq!(held(&part, Moment::At(*time)), held(&whole, Moment::At(*time)), "{:?}", time);
            }
            // Counted again, it is the same: what is in the file says all.
            let cut = &bytes[..bytes.len() - 40];
            prop_assert_eq!(totals(&Recording::open(cut).unwrap()).counts, totals(&part).counts);
            let peak = profile(&part, Moment::Peak).whole;
            prop_assert_eq!(peak.bytes, totals(&part).counts.bytes_live_max);

            // A part of a part is a part of the whole.
            let again = trimmed(&part, from, to);
            prop_assert_eq!(totals(&Recording::open(&again).unwrap()).counts, totals(&part).counts);
        }
        // Before and after a moment: nothing is lost between.
        let whole = Recording::open(&whole).unwrap();
        let (before, after) = (trimmed(&whole, 0, from), trimmed(&whole, from + 1, end));
        let parts = [&before, &after].map(|part| totals(&Recording::open(part).unwrap()).counts);
        let counts = totals(&whole).counts;
        let sum = |figure: fn(&Counts) -> u64| parts.iter().map(figure).sum::<u64>();
        prop_assert_eq!(sum(|it| it.allocations.0), counts.allocations.0);
        prop_assert_eq!(sum(|it| it.frees.0), counts.frees.0);
        prop_assert_eq!(sum(|it| it.failed.0), counts.failed.0);
        prop_assert_eq!(sum(|it| it.bytes_allocated.0), counts.bytes_allocated.0);
        prop_assert!(sum(|it| it.temporary_allocations.0) <= counts.temporary_allocations.0);
        prop_assert_eq!(parts.iter().map(|it| it.bytes_live_max).max(), Some(counts.bytes_live_max));
    }
}

#[test]
fn parts_of_a_run_are_not_merged() {
    let session = heapledger_recording::Session { begins: heapledger_recording::Time(1), ..Default::default() };
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    draft.records(&[Record::Session(session)]).unwrap();
    draft.finish(&Footer::default()).unwrap();
    let part = Recording::open(&bytes).unwrap();
    let mut out = Vec::new();
    let refused = merge(&[&part, &part], &mut Draft::new(&mut out));
    assert!(matches!(refused, Err(Error::BeginsInMidRun(0))), "{refused:?}");
}
