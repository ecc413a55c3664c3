//! The changes between two sets of reports.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use regex::{Captures, Regex};

use crate::report::{Kind, Report, Reports, Unit};

/// The second of two sets of reports minus the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The paths that differ.
    pub changes: Vec<Change>,
    /// The same as in both sets.
    pub has_usable_size: bool,
}

/// The change of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The process, without its id.
    pub process: Arc<str>,
    /// The path, without the parts that change from one run to the next.
    pub path: Arc<str>,
    /// The kind of memory.
    pub kind: Kind,
    /// The unit of the amount.
    pub unit: Unit,
    /// The amount of growth; never 0.
    pub amount: i64,
    /// The meaning, in the words of the first set.
    pub description: Arc<str>,
    /// The largest number of reports in one set that have the path.
    pub merged: u32,
    /// The sets that have the path.
    pub presence: Presence,
}

/// The sets that have a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presence {
    /// Both sets.
    Both,
    /// The first set only.
    First,
    /// The second set only.
    Second,
}

/// The reason why sets cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incomparable {
    /// Only one of them was made with the sizes of blocks.
    UsableSize,
    /// A path has several kinds or units.
    Path {
        /// The process.
        process: Arc<str>,
        /// The path.
        path: Arc<str>,
    },
}

impl std::error::Error for Incomparable {}

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incomparable::UsableSize => {
                f.write_str("only one of them was measured with the usable sizes of blocks (hasMozMallocUsableSize)")
            }
            Incomparable::Path { process, path } => {
                write!(f, "`{path}` of `{process}` is reported with different kinds or units")
            }
        }
    }
}

/// A process and a path without the parts that change from run to run.
type Key = (Arc<str>, Arc<str>);

/// All reports of a key.
struct Sum {
    kind: Kind,
    unit: Unit,
    amount: i64,
    description: Arc<str>,
    merged: u32,
}

impl Difference {
    /// Returns the changes from the first to the second.
    ///
    /// Reports are the same if their [stable paths](Report::stable_path) are. Reports without one,
    /// such as Firefox's, are compared by paths without ids of processes and threads, addresses,
    /// and the other parts that Firefox's about:memory leaves out.
    ///
    /// # Errors
    ///
    /// Fails if the two do not measure the same things.
    pub fn between(first: &Reports, second: &Reports) -> Result<Difference, Incomparable> {
        if first.has_usable_size != second.has_usable_size {
            return Err(Incomparable::UsableSize);
        }
        let is_isolated = |reports: &Reports| reports.reports.iter().any(|report| is_isolated(&report.process));
        let forgets_isolation = is_isolated(first) != is_isolated(second);
        let (before, _) = sums(first, forgets_isolation)?;
        let (after, mut index) = sums(second, forgets_isolation)?;
        let mut after: Vec<Option<(Key, Sum)>> = after.into_iter().map(Some).collect();

        let mut changes = Vec::new();
        for (key, old) in before {
            let new = index.remove(&key).and_then(|at| after[at].take()).map(|(_, sum)| sum);
            if new.as_ref().is_some_and(|new| (new.kind, new.unit) != (old.kind, old.unit)) {
                return Err(Incomparable::Path { process: key.0, path: key.1 });
            }
            let amount = new.as_ref().map_or(0, |new| new.amount).saturating_sub(old.amount);
            let merged = old.merged.max(new.as_ref().map_or(0, |new| new.merged));
            let presence = if new.is_some() { Presence::Both } else { Presence::First };
            changes.extend(change(key, Sum { amount, merged, ..old }, presence));
        }
        for (key, new) in after.into_iter().flatten() {
            changes.extend(change(key, new, Presence::Second));
        }
        Ok(Difference { changes, has_usable_size: first.has_usable_size })
    }
}

fn change((process, path): Key, sum: Sum, presence: Presence) -> Option<Change> {
    let Sum { kind, unit, amount, description, merged } = sum;
    (amount != 0).then_some(Change { process, path, kind, unit, amount, description, merged, presence })
}

/// Returns the sums of all keys in the order in which they come first, and the index of each.
fn sums(reports: &Reports, forgets_isolation: bool) -> Result<Sums, Incomparable> {
    let mut sums: Vec<(Key, Sum)> = Vec::new();
    let mut index = HashMap::new();
    for report in &reports.reports {
        let key = (stable_process(&report.process, forgets_isolation), stable_path(report));
        let at = *index.entry(key.clone()).or_insert(sums.len());
        if at == sums.len() {
            let Report { kind, unit, amount, ref description, .. } = *report;
            sums.push((key, Sum { kind, unit, amount, description: description.clone(), merged: 1 }));
            continue;
        }
        let sum = &mut sums[at].1;
        if (sum.kind, sum.unit) != (report.kind, report.unit) {
            return Err(Incomparable::Path { process: key.0, path: key.1 });
        }
        sum.amount = sum.amount.saturating_add(report.amount);
        sum.merged += 1;
    }
    Ok((sums, index))
}

/// See [`sums`].
type Sums = (Vec<(Key, Sum)>, HashMap<Key, usize>);

/// True if a process of Firefox is for pages of one site only.
fn is_isolated(process: &str) -> bool {
    process.starts_with("webIsolated")
}

/// A pattern and its replacement.
struct Variable {
    pattern: Regex,
    replacement: &'static str,
    is_everywhere: bool,
}

impl Variable {
    fn new(pattern: &str, replacement: &'static str, is_everywhere: bool) -> Option<Variable> {
        Some(Variable { pattern: Regex::new(pattern).ok()?, replacement, is_everywhere })
    }

    fn stabilise(&self, text: &mut Arc<str>) {
        if self.pattern.is_match(text) {
            let replace = |found: &Captures<'_>| {
                let mut with = String::new();
                found.expand(self.replacement, &mut with);
                with
            };
            let count = if self.is_everywhere { 0 } else { 1 };
            *text = self.pattern.replacen(text, count, replace).into();
        }
    }
}

/// Ids of processes.
static PROCESS_ID: LazyLock<Option<Variable>> =
    LazyLock::new(|| Variable::new(r"pid([ =]|: )[0-9]+", "pid${1}NNN", true));

/// The replacements that Firefox makes in paths, in its order.
static IN_PATHS: LazyLock<Vec<Variable>> = LazyLock::new(|| {
    let variables = [
        // Threads, and threads of pools.
        Variable::new(r"\(tid=[0-9]+\)", "(tid=NNN)", false),
        Variable::new(r"#[0-9]+ \(tid=NNN\)", "#N (tid=NNN)", false),
        // Addresses.
        Variable::new(r"zone\(0x[0-9A-Fa-f]+\)/", "zone(0xNNN)/", false),
        Variable::new(r"/worker\((.+), 0x[0-9A-Fa-f]+\)/", "/worker(${1}, 0xNNN)/", false),
        // Windows.
        Variable::new(r"^((?:explicit|event-counts)/window-objects/top\(.*, id=)[0-9]+\)", "${1}NNN)", false),
        // Origins that are made up anew each time.
        Variable::new(
            r"moz-nullprincipal:\{.{8}-.{4}-.{4}-.{4}-.{12}\}",
            "moz-nullprincipal:{NNNNNNNN-NNNN-NNNN-NNNN-NNNNNNNNNNNN}",
            true,
        ),
        // The path where Firefox is installed.
        Variable::new(r"jar:file:\\\\\\(.+)\\omni.ja!", r"jar:file:\\\...\omni.ja!", false),
        Variable::new(r"source\(scripts=([0-9]+), ", "source(scripts=NNN, ", false),
    ];
    variables.into_iter().flatten().collect()
});

/// The number of mappings in a part of the address space.
static SEGMENTS: LazyLock<Option<Variable>> =
    LazyLock::new(|| Variable::new(r"\(segments=[0-9]+\)", "(segments=NNNN)", true));

fn stable_process(process: &Arc<str>, forgets_isolation: bool) -> Arc<str> {
    if forgets_isolation && is_isolated(process) {
        return "web (pid NNN)".into();
    }
    let mut process = process.clone();
    PROCESS_ID.iter().for_each(|variable| variable.stabilise(&mut process));
    process
}

fn stable_path(report: &Report) -> Arc<str> {
    if let Some(declared) = &report.stable_path {
        return declared.clone();
    }
    let mut path = report.path.clone();
    let segments = SEGMENTS.iter().filter(|_| report.path.starts_with("address-space"));
    PROCESS_ID.iter().chain(IN_PATHS.iter()).chain(segments).for_each(|variable| variable.stabilise(&mut path));
    path
}
