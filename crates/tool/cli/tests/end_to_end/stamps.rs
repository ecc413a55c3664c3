//! What programs say that their blocks are: `fixtures/programs/stamps.c` knows how many of each it has.

use std::collections::BTreeMap;
use std::path::Path;

use heapledger_recording::{NodeCache, NodeKind, Recording as File, StampText};
use serde_json::Value;

use crate::harness::{Job, Scratch, number};

/// Allocated blocks and bytes, live blocks and bytes, by `TYPE|LINE|LABEL`.
type Sums = BTreeMap<String, [i64; 4]>;

fn told(told: &Value) -> Sums {
    let figures = |figures: &Value| [0, 1, 2, 3].map(|at| figures[at].as_i64().unwrap());
    told["stamps"].as_object().unwrap().iter().map(|(stamp, sums)| (stamp.clone(), figures(sums))).collect()
}

/// What is stamped in a recording, by its sites.
fn recorded(path: &Path) -> Sums {
    let mut sums = Sums::new();
    each_stamped(path, |stamp, figures| {
        assert_eq!(stamp.file.as_deref(), Some("src/shapes.c"));
        let name = format!("{}|{}|{}", stamp.type_name, stamp.line, stamp.label.as_deref().unwrap_or(""));
        let sum = sums.entry(name).or_default();
        *sum = std::array::from_fn(|at| sum[at] + figures[at]);
    });
    sums
}

/// Calls back with the stamp of each stamped site, and its allocated blocks and bytes, live blocks and bytes.
pub(crate) fn each_stamped(path: &Path, mut each: impl FnMut(&StampText<'_>, [i64; 4])) {
    let bytes = std::fs::read(path).unwrap();
    let file = File::open(&bytes).unwrap();
    for image in file.images() {
        let tree = file.stack_tree(image.image, &mut NodeCache::default());
        assert_eq!(tree.damage().count(), 0);
        for site in file.sites(image.image).rows {
            let Some(node) = tree.get(site.stack).filter(|node| node.kind == NodeKind::Stamp) else { continue };
            let live = site.live_end;
            let figures = [site.allocations.0, site.bytes_allocated.0, live.blocks.0, live.bytes.0];
            each(&file.text(node.text().unwrap()).unwrap().stamp(), figures.map(|figure| figure as i64));
        }
    }
}

#[test]
fn stamped_blocks_are_what_the_program_says() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("stamps", "300").both(&scratch);
    recording.assert_whole().assert_adds_up();
    let truth = outcome.told().pop().unwrap();
    assert_eq!(recorded(&recording.path), told(&truth));
    assert_eq!(recording.total("stamps_unknown"), number(&truth, "unknown"));

    // Nothing of them is lost where there are no events, several files, or less is kept of stacks.
    for options in [&["--aggregate"][..], &["--stacks", "none"], &["--stacks", "native"]] {
        let job = options.iter().fold(Job::fixture("stamps", "20"), |job, option| job.option(option));
        let (outcome, recording) = job.recorded(&scratch);
        let truth = outcome.told().pop().unwrap();
        assert_eq!(recorded(&recording.path), told(&truth), "{options:?}");
    }
}
