//! Checks that the recorder's totals and those of a replay are the same, and that both agree with a
//! simple model.

mod block_lives;
mod blocks;
mod filters;
mod groups;
mod moments;

use std::collections::BTreeMap;

use heapledger_core::{Blocks, Bytes};
use heapledger_recording::{
    Compressor, Counts, Footer, ImageCounts, ImageId, ImageStart, Live, Record, Recording, RecordingWriter, Session,
    Site, SitesEncoder, Time, encode_records,
};
use heapledger_symbols::{Symbolizer, SymbolizerOptions};

use crate::testing::write;
use crate::*;

/// The amount of each stack, by its frames.
type Held = BTreeMap<Vec<u64>, Amount>;

fn held(profile: &Profile) -> Held {
    let mut held = Held::new();
    let mut whole = Amount::default();
    for site in &profile.sites {
        let frames = profile.stacks.frames(site.stack).map(|frame| frame.offset).collect();
        assert!(held.insert(frames, site.amount).is_none(), "equal stacks are one site");
        whole += site.amount;
    }
    assert_eq!(whole, profile.whole);
    held
}

fn names<'r, 'a>(recording: &'r Recording<'a>) -> Names<'r, 'a> {
    Names::new(recording, Symbolizer::new(SymbolizerOptions::default()))
}

fn selection(process: Option<u32>, moment: Moment) -> Selection {
    Selection { filter: process.map(Filter::process).unwrap_or_default(), ..Selection::at(moment) }
}

fn load(recording: &Recording<'_>, process: Option<u32>, moment: Moment) -> Profile {
    Profile::load(&mut names(recording), &selection(process, moment), &mut |_, _| ()).expect("a profile")
}

fn broken_down(recording: &Recording<'_>, by: PartBy, process: Option<u32>, moment: Moment) -> Parts {
    parts(&mut names(recording), by, &selection(process, moment), &mut |_, _| ()).expect("a breakdown")
}

#[test]
fn questions_without_an_answer() {
    let (finished, ..) = write(&[]);
    let recording = Recording::open(&finished).unwrap();
    let ask = |process, moment| {
        Profile::load(&mut names(&recording), &selection(process, moment), &mut |_, _| ()).map(|_| ())
    };
    assert_eq!(ask(Some(7), Moment::Peak), Err(Error::NoSuchProcess("7".to_owned())));
    assert_eq!(ask(None, Moment::At(Time(1 << 40))), Err(Error::AfterEnd));
    assert_eq!(ask(None, Moment::Peak), Ok(()));
    assert_eq!(Filter::default().images(&recording), Ok(vec![ImageId(0)]));
}

/// A recording of totals alone answers questions about totals, and returns an error for others.
#[test]
fn questions_to_a_recording_without_events() {
    let compressor = &mut Compressor::new();
    let mut writer = RecordingWriter::new();
    let records = [
        Record::Session(Session { totals_only: true, ..Session::default() }),
        Record::ImageStart(ImageStart { pid: 7, ..ImageStart::default() }),
        Record::ImageCounts(ImageCounts {
            image: ImageId(0),
            counts: Counts { allocations: Blocks(2), ..Counts::default() },
        }),
    ];
    encode_records(&records, compressor).unwrap().iter().for_each(|chunk| writer.push(chunk));
    let live = Live { bytes: Bytes(30), blocks: Blocks(2) };
    let site = Site { live_end: live, live_at_session_peak: live, bytes_allocated: Bytes(30), ..Site::default() };
    SitesEncoder::encode(ImageId(0), &[site], compressor).unwrap().iter().for_each(|chunk| writer.push(chunk));
    writer.finish(&Footer { time: Time(1 << 30), ..Footer::default() }, compressor);
    let bytes = writer.pending().to_vec();
    let recording = Recording::open(&bytes).unwrap();

    assert_eq!(load(&recording, Some(7), Moment::Peak).whole.bytes, Bytes(30));
    assert_eq!(load(&recording, None, Moment::End).whole.blocks, Blocks(2));
    let ask = |selection: Selection| Profile::load(&mut names(&recording), &selection, &mut |_, _| ()).map(|_| ());
    assert_eq!(ask(Selection::at(Moment::At(Time(1)))), Err(Error::NoEvents));
    let filters = [
        Filter { size: Some(0..=1), ..Filter::default() },
        Filter { lifetime: Some(0..=1), ..Filter::default() },
        Filter { allocated: Some(0..=1), ..Filter::default() },
        Filter { threads: vec![ThreadPattern::Number(0)], ..Filter::default() },
    ];
    for filter in filters {
        assert_eq!(ask(Selection { filter, ..Selection::at(Moment::End) }), Err(Error::NoEvents));
    }
    let sizes = parts(&mut names(&recording), PartBy::Size, &Selection::default(), &mut |_, _| ());
    assert_eq!(sizes.map(|_| ()), Err(Error::NoEvents));
}
