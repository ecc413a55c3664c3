//! The types that programs declare for their blocks: `fixtures/programs/stamps.c` knows its numbers
//! of each.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use heapledger_recording::{NodeCache, NodeKind, Recording as File};
use serde_json::Value;

use crate::harness::{Job, Scratch, heapledger, number};

/// Allocated blocks and bytes, live blocks and bytes, by `TYPE|LINE|LABEL`.
pub(crate) type Sums = BTreeMap<String, [i64; 4]>;

fn sums_of(told: &Value) -> Sums {
    let figures = |figures: &Value| [0, 1, 2, 3].map(|at| figures[at].as_i64().unwrap());
    told["stamps"].as_object().unwrap().iter().map(|(stamp, sums)| (stamp.clone(), figures(sums))).collect()
}

/// Returns the stamped blocks in a recording, by its sites.
pub(crate) fn recorded(path: &Path) -> Sums {
    recorded_with_peak(path).0
}

/// Returns the same, with the bytes of stamped blocks at the peaks of the images.
fn recorded_with_peak(path: &Path) -> (Sums, u64) {
    let bytes = std::fs::read(path).unwrap();
    let file = File::open(&bytes).unwrap();
    let (mut sums, mut at_peak) = (Sums::new(), 0);
    for image in file.images() {
        let tree = file.stack_tree(image.image, &mut NodeCache::default());
        assert_eq!(tree.damage().count(), 0);
        for site in file.sites(image.image).rows {
            let Some(node) = tree.get(site.stack).filter(|node| node.kind == NodeKind::Stamp) else { continue };
            let stamp = file.text(node.text().unwrap()).unwrap().stamp();
            assert!(stamp.file.is_some(), "{stamp:?}");
            let name = format!("{}|{}|{}", stamp.type_name, stamp.line, stamp.label.as_deref().unwrap_or(""));
            let live = site.live_end;
            at_peak += site.live_at_image_peak.bytes.0;
            let figures = [site.allocations.0, site.bytes_allocated.0, live.blocks.0, live.bytes.0];
            let sum = sums.entry(name).or_default();
            *sum = std::array::from_fn(|at| sum[at] + figures[at] as i64);
        }
    }
    (sums, at_peak)
}

#[test]
fn stamped_blocks_are_what_the_program_says() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("stamps", "300").both(&scratch);
    recording.assert_whole().assert_adds_up();
    let truth = outcome.printed_objects().pop().unwrap();
    assert_eq!(recorded(&recording.path), sums_of(&truth));
    assert_eq!(recording.total("stamps_unknown"), number(&truth, "unknown"));

    // Recordings made from it have them, too; an anonymous one has the names only if that is
    // allowed.
    let made = |verb: &str, options: &[&str], files: &[&Path]| {
        let output = scratch.file(&format!("{verb}{}.hl", options.len()));
        let line = [verb.as_ref(), "-o".as_ref(), output.as_os_str()].into_iter().chain(options.iter().map(OsStr::new));
        let done = heapledger(line.chain(files.iter().map(|file| file.as_os_str())));
        assert!(done.status.success(), "{done:?}");
        let (sums, at_peak) = recorded_with_peak(&output);
        assert!(at_peak >= 50_000_000, "{verb}: {at_peak}");
        sums
    };
    let (sums, path) = (sums_of(&truth), &*recording.path);
    let twice: Sums = sums.iter().map(|(stamp, sum)| (stamp.clone(), sum.map(|figure| 2 * figure))).collect();
    assert_eq!(made("merge", &[], &[path, path]), twice);
    assert_eq!(made("trim", &[], &[path]), sums);
    assert_eq!(made("anonymize", &["--keep-names"], &[path]), sums);
    let hidden = made("anonymize", &[], &[path]);
    let figures = |sums: &Sums| {
        let mut figures: Vec<[i64; 4]> = sums.values().copied().collect();
        figures.sort_unstable();
        figures
    };
    assert_eq!(figures(&hidden), figures(&sums));
    assert!(hidden.keys().all(|stamp| stamp.starts_with("type-") && !stamp.contains("label")), "{hidden:?}");

    // No stamp is lost without events, in several files, or if less is kept of stacks.
    for options in [&["--aggregate"][..], &["--stacks", "none"], &["--stacks", "native"]] {
        let job = options.iter().fold(Job::fixture("stamps", "20"), |job, option| job.option(option));
        let (outcome, recording) = job.recorded(&scratch);
        let truth = outcome.printed_objects().pop().unwrap();
        assert_eq!(recorded(&recording.path), sums_of(&truth), "{options:?}");
    }
}
