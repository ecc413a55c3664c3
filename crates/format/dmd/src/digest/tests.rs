//! Records that are added up in several passes.

use super::Digest;
use super::keys::Keys;
use super::sums::{HashRange, Sums};
use super::texts::Texts;
use crate::analysis::{DmdOptions, GroupBy, Sort};
use crate::block_source::BlockSource;
use crate::hash::{Map, Seeded};
use crate::log::Log;

/// Returns a log with a record for each of 90 stacks and for most of the pairs with a report.
fn log() -> Log {
    let blocks: Vec<String> = (0..900)
        .map(|at| {
            let reports = match at % 7 {
                0..=2 => String::new(),
                3..=5 => format!(r#","reps":["t{}"]"#, at % 90),
                _ => format!(r#","reps":["t{}","t{}"]"#, at % 90, at % 11),
            };
            format!(r#"{{"req":{},"slop":{},"alloc":"t{}"{reports}}}"#, at * 37 % 500, at % 9, at * 13 % 90)
        })
        .collect();
    // Two of them have the same text.
    let traces: Vec<String> = (0..90).map(|at| format!(r#""t{at}":["f{}","f{}","f9"]"#, at / 9 % 10, at % 9)).collect();
    let frames: Vec<String> = (0..10).map(|at| format!(r##""f{at}":"#00: f{}[m +0x1]""##, at.min(8))).collect();
    let text = format!(
        r#"{{"version":5,"invocation":{{"dmdEnvVar":"1","mode":"dark-matter"}},"blockList":[{}],"traceTable":{{{}}},"frameTable":{{{}}}}}"#,
        blocks.join(","),
        traces.join(","),
        frames.join(",")
    );
    Log::read(text.as_bytes()).unwrap()
}

#[test]
fn in_several_passes_as_in_one() {
    let log = log();
    let filters = [vec![], vec!["f3".to_owned()], vec!["!f3".to_owned(), "f5".to_owned()]];
    for by in [GroupBy::Stack, GroupBy::Module, GroupBy::Function] {
        for (sort, filters) in [Sort::Usable, Sort::Blocks, Sort::Slop].iter().zip(&filters) {
            let options = DmdOptions { by, sort: *sort, filters: filters.clone(), ..DmdOptions::default() };
            let analyse = |records_max: usize, at_once: usize| {
                let Ok(digest) = Digest::in_parts(&mut &log, &options, Some(records_max), at_once);
                format!("{:#?}", digest.analysis(&options))
            };
            for records_max in [0, 1, 7, 20] {
                let wanted = analyse(records_max, 1_000_000);
                for at_once in [21, 50, 130] {
                    assert_eq!(analyse(records_max, at_once), wanted, "{options:?} {records_max} {at_once}");
                }
            }
        }
    }
}

#[test]
fn each_record_is_in_one_pass() {
    let (log, options) = (log(), DmdOptions::default());
    let Ok(texts) = Texts::of(&mut &log, &options, true);
    let keys = Keys { mode: log.mode, options: &options, probability: None, texts: &texts, seed: Seeded::default() };
    let (mut seen, mut passes, mut range) = (Map::default(), 0, Some(HashRange::ALL));
    while let Some(part) = range {
        let mut sums = Sums::new(&keys, part, Some(30));
        let Ok(()) = (&log).each_group(|group| sums.add(group));
        sums.add_queued();
        assert!(sums.list.len() <= 30 && sums.list.len() == sums.numbers.len());
        for (sum, moments) in sums.list.iter().zip(&sums.moments) {
            assert!(seen.insert(sum.key.packed(), moments.counted).is_none());
        }
        passes += 1;
        range = sums.next_range();
    }
    assert!(passes > 5 && seen.len() > 150, "{passes} {}", seen.len());
    let blocks: u64 = seen.values().map(|[_, _, blocks]| blocks).sum();
    assert_eq!(blocks, 900);
}
