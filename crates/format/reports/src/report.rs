//! Measurements of memory: what reporters say, and what report files hold.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What a process is called that has no name in a file: the one that wrote it.
pub const MAIN_PROCESS: &str = "Main Process";

/// One measurement of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whose it is, such as `redis (pid 12)`.
    pub process: Arc<str>,
    /// What was measured: names from the general to the special, with `/` between them. A `/` in a name is written `\`.
    pub path: Arc<str>,
    /// The path with `NNN` in place of each part that changes from one run to the next, if the reporter has declared any:
    /// paths that have this in common are compared with each other.
    pub stable_path: Option<Arc<str>>,
    /// Where the memory is. It matters below `explicit/` only.
    pub kind: Kind,
    /// What is counted.
    pub unit: Unit,
    /// How much. Percentages are in hundredths.
    pub amount: i64,
    /// What it means, in whole sentences.
    pub description: Arc<str>,
}

/// Where measured memory is. The numbers are those of report files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Mapped by the program itself, not by its allocator.
    NonHeap = 0,
    /// In blocks of the allocator.
    Heap = 1,
    /// Neither, or not known, or no memory at all.
    #[default]
    Other = 2,
}

/// What an amount counts. The numbers are those of report files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Unit {
    /// Bytes.
    #[default]
    Bytes = 0,
    /// Things that come and go.
    Count = 1,
    /// Things that have happened: never less than before.
    CountCumulative = 2,
    /// Hundredths of a percent; may be above 100 %.
    Percentage = 3,
}

/// All measurements of one moment, of one or more processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// In the order in which they were made.
    pub reports: Vec<Report>,
    /// Whether the allocator could be asked for the sizes of blocks: else what is reported leaves out slop.
    pub has_usable_size: bool,
}

impl Kind {
    /// The kind that a file means by a number.
    pub fn from_number(number: i64) -> Option<Kind> {
        [Kind::NonHeap, Kind::Heap, Kind::Other].into_iter().find(|&kind| kind as i64 == number)
    }
}

impl Unit {
    /// The unit that a file means by a number.
    pub fn from_number(number: i64) -> Option<Unit> {
        [Unit::Bytes, Unit::Count, Unit::CountCumulative, Unit::Percentage]
            .into_iter()
            .find(|&unit| unit as i64 == number)
    }
}

/// What no set of reports may have: about:memory could not show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// A path below `explicit/` that is neither of kind heap nor non-heap.
    ExplicitKind(Arc<str>),
    /// A path below `explicit/` of something else than bytes.
    ExplicitUnit(Arc<str>),
    /// A path in another unit than others of the same tree.
    Units(Arc<str>),
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::ExplicitKind(path) => write!(f, "`{path}` is neither on the heap nor off it"),
            Invalid::ExplicitUnit(path) => write!(f, "`{path}` is not in bytes"),
            Invalid::Units(path) => write!(f, "`{path}` has other units than the rest of its tree"),
        }
    }
}

/// The unit of each tree, by process and name.
type Units<'r> = HashMap<(&'r str, &'r str), Unit>;

impl Report {
    /// Whether it can be in its tree, which has these units so far.
    fn check<'r>(&'r self, units: &mut Units<'r>) -> Result<(), Invalid> {
        let Some((root, _)) = self.path.split_once('/') else { return Ok(()) };
        if root == "explicit" && self.kind == Kind::Other {
            return Err(Invalid::ExplicitKind(self.path.clone()));
        }
        if root == "explicit" && self.unit != Unit::Bytes {
            return Err(Invalid::ExplicitUnit(self.path.clone()));
        }
        if *units.entry((&self.process, root)).or_insert(self.unit) != self.unit {
            return Err(Invalid::Units(self.path.clone()));
        }
        Ok(())
    }
}

impl Reports {
    /// Whether about:memory can show them.
    ///
    /// # Errors
    ///
    /// The first report that is not as those of its tree have to be.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut units = HashMap::new();
        self.reports.iter().try_for_each(|report| report.check(&mut units))
    }

    /// Takes out the reports that about:memory could not show with those before them, and says why.
    pub fn take_invalid(&mut self) -> Vec<(Report, Invalid)> {
        let mut units = HashMap::new();
        let reasons: Vec<_> = self.reports.iter().map(|report| report.check(&mut units).err()).collect();
        let mut invalid = Vec::new();
        let mut valid = Vec::with_capacity(self.reports.len());
        for (report, reason) in std::mem::take(&mut self.reports).into_iter().zip(reasons) {
            match reason {
                Some(reason) => invalid.push((report, reason)),
                None => valid.push(report),
            }
        }
        self.reports = valid;
        invalid
    }

    /// All of several sets, side by side. A process that was in an earlier set under the same name gets a number behind
    /// it.
    pub fn merge(sets: impl IntoIterator<Item = Reports>) -> Reports {
        let mut all = Reports { reports: Vec::new(), has_usable_size: true };
        // How many sets had a process of this name.
        let mut names: HashMap<Arc<str>, usize> = HashMap::new();
        for set in sets {
            all.has_usable_size &= set.has_usable_size;
            let mut renamed: HashMap<Arc<str>, Arc<str>> = HashMap::new();
            for mut report in set.reports {
                let name = renamed.entry(report.process.clone()).or_insert_with_key(|name| {
                    let count = names.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
                    if *count == 1 { name.clone() } else { format!("{name} #{count}").into() }
                });
                report.process = name.clone();
                all.reports.push(report);
            }
        }
        all
    }
}

/// Where the heap of a process went, as far as its reports say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeapCount {
    /// All of it.
    allocated: Option<i64>,
    /// What is reported.
    reported: i64,
    has_explicit: bool,
    has_unclassified: bool,
}

impl HeapCount {
    pub(crate) fn add(&mut self, path: &str, kind: Kind, amount: i64) {
        if path == "heap-allocated" {
            self.allocated = Some(self.allocated.unwrap_or(0).saturating_add(amount));
        } else if let Some(below) = path.strip_prefix("explicit/") {
            self.has_explicit = true;
            self.has_unclassified |= below.split('/').next() == Some("heap-unclassified");
            if kind == Kind::Heap {
                self.reported = self.reported.saturating_add(amount);
            }
        }
    }

    /// Whether it is known how much there is in all.
    #[cfg(feature = "about")]
    pub(crate) fn is_known(&self) -> bool {
        self.allocated.is_some()
    }

    /// What no report covers: `explicit/heap-unclassified`. Files that Firefox did not write may have it already.
    pub(crate) fn unclassified(&self) -> Option<i64> {
        let allocated = self.allocated.filter(|_| self.has_explicit && !self.has_unclassified)?;
        Some(allocated.saturating_sub(self.reported))
    }
}

/// What `heap-unclassified` means.
pub(crate) const UNCLASSIFIED: &str = "Memory of the heap that no report covers: what nobody has reported, and what \
    the allocator has rounded up where reports do not know of it.";

impl Reports {
    /// What of the heap no report covers, as a report for each process of which it is known.
    pub fn unclassified(&self) -> Vec<Report> {
        let mut counts: Vec<(&Arc<str>, HeapCount)> = Vec::new();
        let mut places: HashMap<&Arc<str>, usize> = HashMap::new();
        for report in &self.reports {
            let at = *places.entry(&report.process).or_insert(counts.len());
            if at == counts.len() {
                counts.push((&report.process, HeapCount::default()));
            }
            counts[at].1.add(&report.path, report.kind, report.amount);
        }
        let unclassified = counts.into_iter().filter_map(|(process, count)| Some((process, count.unclassified()?)));
        let report = |(process, amount): (&Arc<str>, i64)| Report {
            process: process.clone(),
            path: "explicit/heap-unclassified".into(),
            stable_path: None,
            kind: Kind::Heap,
            unit: Unit::Bytes,
            amount,
            description: UNCLASSIFIED.into(),
        };
        unclassified.map(report).collect()
    }
}
