//! What is made of random sessions has the figures that they have.

use heapledger_recording::{Record, Recording};
use heapledger_symbols::{Options, Symbolizer};
use proptest::prelude::*;

use super::*;
use crate::testing::{steps, write};
use crate::{Moment, Names, Overview, Profile, Selection, overview};

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
