//! Measurements of memory: the results of reporters, and the contents of report files.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The name for a process without one in a file, which is the process that wrote it.
pub const MAIN_PROCESS: &str = "Main Process";

/// One measurement of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The process that was measured, such as `redis (pid 12)`.
    pub process: Arc<str>,
    /// The thing that was measured: names from the general to the special, with `/` between them. A
    /// `/` in a name is written `\`.
    pub path: Arc<str>,
    /// The path with `NNN` in place of each part that changes from one run to the next, if the
    /// reporter has declared any. Reports with the same stable path are compared with each other.
    pub stable_path: Option<Arc<str>>,
    /// The kind of memory. It matters below `explicit/` only.
    pub kind: Kind,
    /// The unit of the amount.
    pub unit: Unit,
    /// The amount. Percentages are in hundredths.
    pub amount: i64,
    /// The meaning of the measurement, in whole sentences.
    pub description: Arc<str>,
}

/// The kind of memory that was measured. The numbers are those of report files.
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

/// The unit of an amount. The numbers are those of report files.
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
    /// The reports, in the order in which they were made.
    pub reports: Vec<Report>,
    /// True if the allocator could tell the sizes of blocks; otherwise the reports leave out slop.
    pub has_usable_size: bool,
}

impl Kind {
    /// Returns the kind for a number in a file.
    pub fn from_number(number: i64) -> Option<Kind> {
        [Kind::NonHeap, Kind::Heap, Kind::Other].into_iter().find(|&kind| kind as i64 == number)
    }
}

impl Unit {
    /// Returns the unit for a number in a file.
    pub fn from_number(number: i64) -> Option<Unit> {
        [Unit::Bytes, Unit::Count, Unit::CountCumulative, Unit::Percentage]
            .into_iter()
            .find(|&unit| unit as i64 == number)
    }
}

/// An error in a set of reports that about:memory could not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// A path below `explicit/` whose kind is neither heap nor non-heap.
    ExplicitKind(Arc<str>),
    /// A path below `explicit/` with a unit other than bytes.
    ExplicitUnit(Arc<str>),
    /// A path with another unit than the others of the same tree.
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
    /// Fails if the report does not fit its tree, which has these units so far.
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
    /// Checks that about:memory can show the reports.
    ///
    /// # Errors
    ///
    /// Fails with the first report that does not fit its tree.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut units = HashMap::new();
        self.reports.iter().try_for_each(|report| report.check(&mut units))
    }

    /// Removes the reports that about:memory could not show beside those before them, and returns
    /// them with the reasons.
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

    /// Joins several sets into one. A process whose name occurs in an earlier set gets a number
    /// behind its name.
    pub fn merge(sets: impl IntoIterator<Item = Reports>) -> Reports {
        let mut all = Reports { reports: Vec::new(), has_usable_size: true };
        // The number of sets with a process of this name.
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

/// The use of a process's heap, as far as its reports say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeapCount {
    /// The size of the heap.
    allocated: Option<i64>,
    /// The reported bytes.
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

    /// True if the size of the heap is known.
    #[cfg(feature = "about")]
    pub(crate) fn is_known(&self) -> bool {
        self.allocated.is_some()
    }

    /// Returns the bytes that no report covers: `explicit/heap-unclassified`. Files of other
    /// programs than Firefox may have that report already.
    pub(crate) fn unclassified(&self) -> Option<i64> {
        let allocated = self.allocated.filter(|_| self.has_explicit && !self.has_unclassified)?;
        Some(allocated.saturating_sub(self.reported))
    }
}

/// The description of `heap-unclassified`.
pub(crate) const UNCLASSIFIED: &str = "Memory of the heap that no report covers: what nobody has reported, and what \
    the allocator has rounded up where reports do not know of it.";

impl Reports {
    /// Returns the heap memory that no report covers, as a report for each process for which it is
    /// known.
    pub fn unclassified(&self) -> Vec<Report> {
        let mut counts: Vec<(&Arc<str>, HeapCount)> = Vec::new();
        let mut index: HashMap<&Arc<str>, usize> = HashMap::new();
        for report in &self.reports {
            let at = *index.entry(&report.process).or_insert(counts.len());
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
