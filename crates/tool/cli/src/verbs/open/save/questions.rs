//! The questions whose answers a saved page has: those that its views ask before anybody narrows
//! them down, for each moment and each grouping.

use heapledger_viewer::Question;

use super::super::session::Session;

/// The groupings that the page offers.
const BY: [&str; 15] = [
    "owner", "type", "function", "line", "file", "module", "site", "stack", "context", "scope", "task", "heap",
    "thread", "process", "size",
];

/// The groupings that have an answer for each moment and each metric, too.
const BY_FIRST: [&str; 2] = ["owner", "type"];

/// The moments of verbs that are asked about one, and what was ever allocated. Each view begins
/// with the verb's usual moment.
const MOMENTS: [&[(&str, &str)]; 3] = [&[], &[("at", "peak")], &[("at", "end")]];
const MOMENTS_AND_TOTAL: [&[(&str, &str)]; 4] = [&[], &[("at", "peak")], &[("at", "end")], &[("total", "")]];

/// The number of rows in a table, as the page asks for it.
const ROWS: &str = "100";
/// The number of rows of the groupings that are a treemap at first, too.
const ROWS_FIRST: &str = "300";

/// An option with its value.
type Pair = (&'static str, &'static str);

/// Returns the questions about all files, the most important first.
pub(super) fn all(session: &Session) -> Vec<Question> {
    let mut list = List::default();
    for (file, verbs) in session.verbs().enumerate() {
        list.file = file.to_string();
        let has = |verb: &str| verbs.contains(&verb);
        if has("tree") {
            MOMENTS_AND_TOTAL.into_iter().for_each(|moment| list.add("columns", &[moment]));
        }
        for &verb in verbs {
            list.plain(verb);
        }
        for verb in verbs {
            list.views(verb);
        }
        for other in file + 1..session.verbs().len() {
            if has("diff") {
                list.differences(&[file.to_string(), other.to_string()]);
            }
        }
    }
    list.questions
}

/// The questions so far.
#[derive(Default)]
struct List {
    file: String,
    questions: Vec<Question>,
}

impl List {
    fn add(&mut self, verb: &str, options: &[&[Pair]]) {
        let files = [self.file.clone()];
        self.push(verb, &files, options);
    }

    fn push(&mut self, verb: &str, files: &[String], options: &[&[Pair]]) {
        let files = files.iter().map(|file| ("file".to_owned(), file.clone()));
        let options = options.iter().copied().flatten().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let question = Question { verb: verb.into(), options: files.chain(options).collect() };
        if !self.questions.contains(&question) {
            self.questions.push(question);
        }
    }

    /// Adds a verb without options, as the view of all answers asks it.
    fn plain(&mut self, verb: &str) {
        match verb {
            // All types that were ever allocated may take a hundred megabytes: no view shows them.
            "summary" | "leaks" | "blocks" | "types" => {
                MOMENTS.into_iter().for_each(|moment| self.add(verb, &[moment]))
            }
            "top" | "tree" | "sizes" => {
                MOMENTS_AND_TOTAL.into_iter().for_each(|moment| self.add(verb, &[moment]));
            }
            // They are about a function, a node, or two files.
            "callers" | "callees" | "heap/node" | "heap/paths" | "heap/diff" | "reports/diff" | "diff" => {}
            _ => self.add(verb, &[]),
        }
    }

    /// Adds the questions of the view that shows a verb.
    fn views(&mut self, verb: &str) {
        match verb {
            "timeline" => BY.into_iter().for_each(|by| self.add(verb, &[&[("by", by), ("rows", "8")]])),
            "tree" => {
                for moment in MOMENTS_AND_TOTAL {
                    let threshold = ("threshold", "0.1%");
                    self.add(verb, &[moment, &[threshold]]);
                    self.add(verb, &[moment, &[threshold, ("bottom-up", "")]]);
                    self.add(verb, &[moment, &[threshold, ("metric", "blocks")]]);
                }
                self.add(verb, &[&[("total", ""), ("threshold", "0.1%"), ("metric", "temporary")]]);
            }
            "top" => self.tables(),
            "leaks" => {
                for by in BY {
                    self.add(verb, &[&[("by", by), ("rows", ROWS)]]);
                }
                for moment in MOMENTS {
                    self.add(verb, &[moment, &[("by", "site"), ("rows", ROWS)]]);
                    self.add(verb, &[moment, &[("by", "owner"), ("rows", ROWS)]]);
                }
            }
            "temporary" => {
                BY.into_iter().for_each(|by| self.add(verb, &[&[("by", by), ("rows", ROWS)]]));
                for within in ["10", "100", "1ms", "100ms"] {
                    self.add(verb, &[&[("by", "site"), ("rows", ROWS), ("within", within)]]);
                }
            }
            "reallocations" => BY.into_iter().for_each(|by| self.add(verb, &[&[("by", by), ("rows", ROWS)]])),
            "sizes" => {
                for moment in MOMENTS_AND_TOTAL {
                    self.add(verb, &[moment, &[("metric", "bytes")]]);
                    self.add(verb, &[moment, &[("metric", "blocks")]]);
                }
            }
            "blocks" => MOMENTS.into_iter().for_each(|moment| self.add(verb, &[moment, &[("rows", "200")]])),
            "growth" => {
                BY.into_iter().for_each(|by| self.add(verb, &[&[("by", by), ("rows", "200")]]));
                self.add(verb, &[&[("by", "owner"), ("rows", "200"), ("all", "")]]);
            }
            "advise" => ["50", "3"].into_iter().for_each(|rows| self.add(verb, &[&[("rows", rows)]])),
            "diff" => {
                let file = [self.file.clone()];
                for by in BY {
                    self.push(verb, &file, &[&[("at", "peak"), ("at", "end"), ("by", by), ("rows", ROWS)]]);
                }
            }
            _ => {}
        }
    }

    /// Adds the questions of the table and the treemap.
    fn tables(&mut self) {
        for moment in MOMENTS_AND_TOTAL {
            for by in BY {
                let rows = if BY_FIRST.contains(&by) { ROWS_FIRST } else { ROWS };
                self.add("top", &[moment, &[("by", by), ("rows", rows)]]);
            }
            for by in BY_FIRST {
                self.add("top", &[moment, &[("by", by), ("metric", "blocks"), ("rows", ROWS_FIRST)]]);
            }
        }
        self.add("top", &[&[("total", ""), ("by", "owner"), ("metric", "temporary"), ("rows", ROWS)]]);
    }

    /// Adds the differences of two files.
    fn differences(&mut self, files: &[String]) {
        for moment in [&[("at", "peak")][..], &[("at", "end")], &[("total", "")]] {
            for by in BY {
                self.push("diff", files, &[moment, &[("by", by), ("rows", ROWS)]]);
            }
        }
    }
}
