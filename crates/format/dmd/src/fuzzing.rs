//! The body of the fuzz target, shared with a property test.

use std::io::Cursor;

use crate::analysis::{Analysis, DmdOptions, GroupBy, Sort};
use crate::frames::FrameTexts;
use crate::log::{Log, Mode, Size};
use crate::referrers::Referrers;
use crate::spool::Spooling;
use crate::spooled::SpooledLog;
use crate::text::TextOptions;

/// Reads the data as a log, and derives everything from it that can be derived. Panics if that
/// does, or if the results are not consistent.
pub fn log(data: &[u8]) {
    let Ok(mut log) = Log::read_at_most(data, 1 << 20) else { return };
    let mut written = Vec::new();
    log.write(&mut written).expect("memory takes everything");
    let again = Log::read(written.as_slice()).expect("what was written can be read");
    let text = |log: &Log| Analysis::of(log, &DmdOptions::default()).text("dmd", &TextOptions::default());
    // A log with contents may have blocks without: only those with contents are written. In other
    // modes no addresses are written.
    if log.mode != Mode::Scan
        && log.scanned.blocks.is_empty()
        && log.about.sampling.is_none()
        && log.groups.iter().all(|it| it.sizes.iter().all(is_counted))
    {
        assert_eq!(text(&log), text(&again));
    }
    let merged = Log::read_merged(data).expect("it could be read");
    for by in [
        GroupBy::Stack,
        GroupBy::Type,
        GroupBy::Module,
        GroupBy::Context,
        GroupBy::Owner,
        GroupBy::Line,
        GroupBy::File,
        GroupBy::Function,
    ] {
        for (max_frames, sort, estimate) in [(1, Sort::Requested, None), (24, Sort::Blocks, Some(0.003))] {
            let options = DmdOptions {
                max_frames,
                sort,
                estimate,
                by,
                ignore_alloc_fns: by == GroupBy::Type,
                ..DmdOptions::default()
            };
            let analysis = Analysis::of(&log, &options);
            assert_eq!(analysis.heap, Analysis::of(&merged, &options).heap);
            let texts = TextOptions { details: true, defects: true };
            let frames_max = if options.ignore_alloc_fns { usize::MAX } else { max_frames };
            let spooling = Spooling { memory_max: 0, open: &|| Ok(Box::new(Cursor::new(Vec::new()))) };
            let mut spooled = SpooledLog::read(data, frames_max, spooling).expect("it could be read");
            let spooled = Analysis::of_spooled(&mut spooled, &options).expect("memory does not fail");
            if !analysis.is_estimated {
                assert_eq!(analysis.text("dmd", &texts), spooled.text("dmd", &texts));
            }
            assert!(analysis.text("dmd", &texts).contains("Summary {"));
            assert!(analysis.to_json().is_object());
            if estimate.is_none() && !analysis.is_estimated {
                let nothing = Analysis::difference(&log, &log, &options).expect("it is of its own mode");
                assert!(nothing.kinds.iter().all(|kind| kind.records.is_empty()), "nothing has changed");
            }
        }
    }
    log.map_frames(|text| vec![text.to_owned(), "caller".to_owned()]);
    if let Some(block) = log.scanned.blocks.first() {
        let address = block.address;
        assert!(Referrers::of(&log).chains(address, 100).is_some(), "the block is there");
        let _ = log.clamp();
    }
}

fn is_counted(size: &Size) -> bool {
    size.variance == 0.0 && size.weight == size.count as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r##"{"version": 5, "invocation": {"dmdEnvVar": null, "mode": "dark-matter"}, "blockList": [
        {"req": 10, "slop": 6, "alloc": "A", "reps": ["B"], "by": ["D"], "num": 2, "type": "D", "context": "D"},
        {"req": 7, "addr": "7f001000", "contents": ["7f001001", "0"], "weight": 2.5, "variance": 1.5, "sampled": 1}, {"req": 0}],
        "traceTable": {"A": ["C"], "B": []}, "frameTable": {"C": "#00: ???[lib\u0041 +0x10]"}, "nameTable": {"D": "name"},
        "heapledger": {"program": "p", "pid": 1, "pauseNs": 2, "sampling": {"probability": 0.003},
        "modules": [{"path": "lib", "buildId": "00ff"}], "defects": [{"kind": "partly", "by": "D", "addr": "10", "rep": "A",
        "alloc": null, "measured": 1, "usable": 2, "num": 3}], "defectsCount": 3, "other": [{"a": [1.5e3, true, null]}]}}"##;

    /// Returns files with a few of their bytes, or of their words, changed.
    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        let words = vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "-1",
            "0",
            "18446744073709551615",
            "1e999",
            "\"A\"",
            "null",
            "scan",
            "\\ud800",
        ];
        let change = (0..WHOLE.len(), 0_usize..6, prop::sample::select(words));
        prop::collection::vec(change, 0..4).prop_map(|changes| {
            let mut file = WHOLE.as_bytes().to_vec();
            for (at, length, word) in changes {
                let at = at.min(file.len());
                let end = (at + length).min(file.len());
                file.splice(at..end, word.bytes());
            }
            file
        })
    }

    #[test]
    fn the_whole_file_can_be_read() {
        for mode in ["live", "dark-matter", "cumulative", "scan"] {
            log(WHOLE.replace("dark-matter", mode).as_bytes());
        }
        assert!(Log::read(WHOLE.as_bytes()).is_ok());
        assert!(Log::read_at_most(WHOLE.as_bytes(), WHOLE.len() as u64).is_ok());
        assert!(Log::read_at_most(WHOLE.as_bytes(), 100).is_err());
    }

    proptest! {
        #[test]
        fn damaged_files_are_no_danger(file in damaged()) {
            log(&file);
        }

        #[test]
        fn nor_is_anything_else(data: Vec<u8>) {
            log(&data);
        }
    }
}
