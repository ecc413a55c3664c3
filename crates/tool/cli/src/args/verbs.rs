//! The list of verbs in help, grouped by task.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use super::{Arguments, STYLES};
use crate::format::wrapped;

/// Verbs by task, in the order of help.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Record and run programs",
        &[
            "record", "attach", "run", "check", "phc", "start", "stop", "pause", "sample", "status", "live", "lib",
            "doctor",
        ],
    ),
    (
        "Ask a recording",
        &[
            "summary",
            "top",
            "types",
            "blocks",
            "tree",
            "leaks",
            "temporary",
            "reallocations",
            "callers",
            "callees",
            "sizes",
            "timeline",
            "growth",
            "advise",
            "diff",
            "info",
        ],
    ),
    ("Look at it, draw it, and write it for other tools", &["open", "flame", "export"]),
    ("Make recordings of recordings", &["merge", "trim", "names", "anonymize", "import"]),
    ("Log the calls of the allocator, and replay them", &["log", "replay"]),
    ("Ask running programs and reporters", &["rss", "reports", "dmd", "dump", "heap-map"]),
    ("Ask a snapshot of a JavaScript heap", &["heap"]),
    ("Help", &["help", "explain", "completions", "man"]),
];

/// The width of help, in columns.
const WIDTH: usize = 80;

/// Returns the command line, with its verbs by task.
pub(crate) fn command() -> Command {
    let command = Arguments::command();
    let verbs = listed(&command);
    command
        .help_template(format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{verbs}\nOptions:\n{{options}}"))
}

fn listed(command: &Command) -> String {
    let (start, end) = (STYLES.get_header().render(), STYLES.get_header().render_reset());
    let names = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter());
    let indent = names.map(|name| name.len()).max().unwrap_or_default() + 4;
    let mut text = String::new();
    for (task, verbs) in GROUPS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{start}{task}:{end}");
        for name in *verbs {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let lines = wrapped(&about.unwrap_or_default(), WIDTH - indent);
            for (at, line) in lines.iter().enumerate() {
                let name = if at == 0 { *name } else { "" };
                let _ = writeln!(text, "  {name:width$}{line}", width = indent - 2);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_listed_once() {
        let command = command();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        let mut all: Vec<&str> =
            command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
    }

    /// Help is broken between words, and is not wider than a terminal.
    #[test]
    fn help_fits_a_terminal() {
        let mut root = command().term_width(WIDTH);
        root.build();
        let mut pages = vec![root.render_help(), root.render_long_help()];
        for verb in root.get_subcommands_mut() {
            pages.extend([verb.render_help(), verb.render_long_help()]);
        }
        for page in pages {
            for line in page.to_string().lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
        assert!(root.render_help().to_string().contains("\nAsk a recording:\n  summary "));
    }
}
