use std::collections::BTreeSet;

use clap::CommandFactory;

use super::*;
use crate::args::Arguments;

/// Verbs that print JSON and take a file, and are not for the page: they make, ask or examine
/// something else than a file's contents.
const OTHERS: [&str; 10] = ["check", "doctor", "open", "pause", "phc", "replay", "sample", "start", "status", "stop"];

#[test]
fn the_page_can_ask_all_verbs_that_read_files() {
    let mut root = Arguments::command();
    root.build();
    let reads = |verb: &&clap::Command| {
        let has_json = verb.get_arguments().any(|arg| arg.get_long() == Some("json"));
        has_json && verb.get_positionals().any(|arg| arg.get_value_hint() == clap::ValueHint::FilePath)
    };
    let reading: BTreeSet<&str> = root.get_subcommands().filter(reads).map(clap::Command::get_name).collect();
    let asked: BTreeSet<&str> = RECORDED.into_iter().chain(["dmd"]).collect();
    let others = OTHERS.into_iter().collect();
    assert_eq!(reading.difference(&others).copied().collect::<BTreeSet<_>>(), asked);
    assert!(TOTALS.iter().all(|verb| RECORDED.contains(verb)));
}

/// These fail for each file of totals, so the first view of the page would begin with an error.
#[test]
fn what_needs_events_is_not_asked_without_them() {
    for kind in [Kind::Aggregate, Kind::Profile, Kind::Dump] {
        let verbs = Contents { kind, has_events: false }.verbs();
        for verb in ["timeline", "sizes", "reallocations", "blocks", "growth", "advise", "rss"] {
            assert!(!verbs.contains(&verb), "{verb} of {kind:?}");
        }
    }
}

#[test]
fn each_verb_of_each_kind_is_one() {
    let mut root = Arguments::command();
    root.build();
    for kind in [
        Kind::Recording,
        Kind::Sample,
        Kind::Aggregate,
        Kind::Profile,
        Kind::Dump,
        Kind::Snapshot,
        Kind::Dmd,
        Kind::Reports,
    ] {
        for has_events in [false, true] {
            for verb in (Contents { kind, has_events }).verbs() {
                let command = verb.split('/').try_fold(&root, |command, name| command.find_subcommand(name));
                let command = command.unwrap_or_else(|| panic!("there is no verb {verb}"));
                assert!(command.get_arguments().any(|arg| arg.get_long() == Some("json")), "{verb}");
            }
        }
    }
}
