//! Advice on memory that no reporter reports, or that two report.

pub(crate) mod code_class;
mod frame;
pub(crate) mod owner;
mod plan;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use code_class::{Code, CodeClass};
pub use owner::Owner;
pub use plan::{Part, Plan, Step};

use self::owner::{owner_at, owner_in};
use crate::analysis::{Analysis, DmdStack, KindName, Record, Reported};
use crate::hash::Map;

/// Advice on some blocks. As text, it is a sentence without its full stop. It begins with a verb,
/// never with a name: a sentence begins with a capital, and names are not to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No reporter reports them, nor anything that is allocated near them: a reporter is missing.
    Register {
        /// The owner of the blocks.
        owner: Owner,
        /// True if any blocks of the log are reported. Otherwise its reporters may not have been
        /// asked.
        is_asked: bool,
    },
    /// No reporter reports them, but one reports others that are allocated near them: it leaves
    /// these out.
    Extend {
        /// The owner of the blocks.
        owner: Owner,
        /// The reporter that could report them.
        reporter: ReporterName,
        /// The relation between these blocks and those that it reports.
        shared: SharedProperty,
    },
    /// One reporter reports them twice.
    ReportOnce {
        /// The reporter.
        reporter: ReporterName,
        /// The two places where it reports them, if they differ.
        locations: Option<[ReporterName; 2]>,
    },
    /// Two reporters report them, and one of them should not.
    LeaveOut {
        /// The reporter that should stop.
        reporter: ReporterName,
        /// The reporter that should go on.
        keeper: ReporterName,
        /// The reason for the choice.
        reason: Reason,
        /// The owner of the blocks.
        owner: Owner,
    },
    /// Two reporters report them, and nothing says which of them should.
    Choose {
        /// The reporters.
        reporters: [ReporterName; 2],
    },
}

/// A reporter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReporterName {
    /// A reporter with a name.
    Named(String),
    /// A reporter without a name, by the function in which it reports.
    At(String),
}

/// The property that two blocks near to each other have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedProperty {
    /// The function that allocates them.
    Function,
    /// The type whose methods allocate them.
    Type,
    /// The file of the functions that allocate them, which belong to no type.
    File,
}

/// The reason why blocks belong to one reporter and not to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It alone reports others that are allocated near them.
    Reports(SharedProperty),
    /// It reports them in a function of the type that allocates them.
    Measures,
    /// It has the name of what allocates them.
    Called,
    /// Both report others that are allocated near them, and it reports the most bytes.
    ReportsMost(SharedProperty),
}

/// Gives advice on the records of an analysis. Making one takes time in proportion to the frames of
/// its stacks.
#[derive(Debug, Default)]
pub struct Adviser {
    /// The class and the owner of each frame, by the frame's text.
    frames: Map<Arc<str>, (CodeClass, Owner)>,
    /// The bytes of blocks with one report, by what they are near to and by reporter.
    reported: Map<(SharedProperty, String), BTreeMap<ReporterName, i64>>,
    /// True if any block is reported.
    is_asked: bool,
}

impl Adviser {
    /// Collects what an analysis says. It should be by stack, with all frames, which should have
    /// the names of functions: the program's own code may be far out.
    pub fn of(analysis: &Analysis) -> Adviser {
        let mut adviser = Adviser::default();
        let records = || analysis.kinds.iter().flat_map(|kind| &kind.records);
        adviser.is_asked = analysis.is_any_reported();
        for record in records() {
            let stacks = record.reports.iter().map(|report| &report.stack).chain([&record.alloc]);
            for frame in stacks.flatten() {
                if !adviser.frames.contains_key(frame) {
                    adviser.frames.insert(frame.clone(), (CodeClass::of(frame), Owner::of(frame)));
                }
            }
        }
        let mut reported: Map<_, BTreeMap<_, _>> = Map::default();
        for record in records() {
            let (Some(owner), [report]) = (adviser.owner(&record.alloc), &record.reports[..]) else { continue };
            for property in properties(&owner) {
                *reported.entry(property).or_default().entry(adviser.who(report)).or_default() += record.usable;
            }
        }
        Adviser { reported, ..adviser }
    }

    /// Returns the owner of the blocks that a stack allocated; `None`: nothing on the stack tells
    /// it.
    pub fn owner(&self, stack: &DmdStack) -> Option<Owner> {
        let known: Vec<_> = stack.iter().map(|frame| self.frames.get(frame)).collect();
        owner_in(&known)
    }

    /// Returns the index of the owner's frame in a stack: the innermost of the best class on the
    /// stack. `None`: all frames are library code (of the language, the system or the allocator).
    pub fn owner_at(&self, stack: &DmdStack) -> Option<usize> {
        let known: Vec<_> = stack.iter().map(|frame| self.frames.get(frame)).collect();
        owner_at(&known)
    }

    /// Returns the class of a frame's code.
    pub fn code_class(&self, frame: &str) -> CodeClass {
        self.frames.get(frame).map_or(CodeClass::Library, |(code_class, _)| *code_class)
    }

    /// Returns advice on a record; `None` if there is nothing to be done about it, or nothing to go
    /// by.
    pub fn record(&self, kind: KindName, record: &Record) -> Option<Advice> {
        match (kind, &record.reports[..]) {
            (KindName::Unreported, _) => self.unreported(&record.alloc),
            (KindName::TwiceReported, [first, second, ..]) => Some(self.twice(&record.alloc, first, second)),
            _ => None,
        }
    }

    fn unreported(&self, alloc: &DmdStack) -> Option<Advice> {
        let owner = self.owner(alloc)?;
        let nearest = properties(&owner).find_map(|property| {
            // Among equals, the first by name.
            let reporters = self.reported.get(&property)?.iter().rev();
            let (reporter, _) = reporters.max_by_key(|(_, bytes)| **bytes)?;
            Some((reporter.clone(), property.0))
        });
        Some(match nearest {
            Some((reporter, shared)) => Advice::Extend { owner, reporter, shared },
            None => Advice::Register { owner, is_asked: self.is_asked },
        })
    }

    fn twice(&self, alloc: &DmdStack, first: &Reported, second: &Reported) -> Advice {
        let [one, other] = [first, second].map(|report| self.who(report));
        if one == other {
            let at = |report: &Reported| self.owner(&report.stack).map(|owner| ReporterName::At(owner.to_string()));
            let locations = at(first).zip(at(second)).filter(|(first, second)| first != second);
            return Advice::ReportOnce { reporter: one, locations: locations.map(|(first, second)| [first, second]) };
        }
        let Some((keeper, reason, owner)) = self.keeper(alloc, [&one, &other], [first, second]) else {
            return Advice::Choose { reporters: [one, other] };
        };
        let (keeper, reporter) = if keeper == 0 { (one, other) } else { (other, one) };
        Advice::LeaveOut { reporter, keeper, reason, owner }
    }

    /// Returns the one of two reporters that the blocks belong to, with the reason and the owner.
    fn keeper(
        &self,
        alloc: &DmdStack,
        both: [&ReporterName; 2],
        reports: [&Reported; 2],
    ) -> Option<(usize, Reason, Owner)> {
        let owner = self.owner(alloc)?;
        let shared = properties(&owner).find_map(|property| {
            let reported = self.reported.get(&property)?;
            let bytes = both.map(|reporter| reported.get(reporter).copied());
            bytes.iter().any(Option::is_some).then_some((property.0, bytes))
        });
        let one_of = |is: [bool; 2]| (is[0] != is[1]).then_some(usize::from(is[1]));
        if let Some((shared, bytes)) = shared
            && let Some(only) = one_of(bytes.map(|bytes| bytes.is_some()))
        {
            return Some((only, Reason::Reports(shared), owner));
        }
        if let Some(only) = one_of(reports.map(|report| self.is_measured_by(&owner, report))) {
            return Some((only, Reason::Measures, owner));
        }
        if let Some(only) = one_of(both.map(|reporter| is_called_as(&owner, reporter))) {
            return Some((only, Reason::Called, owner));
        }
        let (shared, [Some(first), Some(second)]) = shared? else { return None };
        let most = one_of([first > second, second > first])?;
        Some((most, Reason::ReportsMost(shared), owner))
    }

    /// True if a function of the owner's type, or the owner itself, is on the stack of the report.
    fn is_measured_by(&self, owner: &Owner, report: &Reported) -> bool {
        report.stack.iter().filter_map(|frame| self.frames.get(frame)).any(|(_, other)| {
            other.function == owner.function || (other.of_type.is_some() && other.of_type == owner.of_type)
        })
    }

    fn who(&self, report: &Reported) -> ReporterName {
        match (report.reporters.first(), self.owner(&report.stack)) {
            (Some(name), _) => ReporterName::Named(name.to_string()),
            (None, Some(owner)) => ReporterName::At(owner.to_string()),
            (None, None) => {
                ReporterName::At(report.stack.first().map(|frame| Owner::of(frame).to_string()).unwrap_or_default())
            }
        }
    }
}

/// True if a part of the reporter's name is also in the owner's: `explicit/key-store` for
/// `db::KeyStore`.
fn is_called_as(owner: &Owner, reporter: &ReporterName) -> bool {
    let ReporterName::Named(name) = reporter else { return false };
    let plain =
        |text: &str| -> String { text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase() };
    // The name of the crate or top namespace applies to all its code and says nothing.
    let (root, rest) = owner.function.split_once("::").unwrap_or(("", &owner.function));
    let root = if root.starts_with(char::is_uppercase) { root } else { "" };
    let of: Vec<String> = rest.split("::").chain([root]).map(plain).collect();
    // The tree's own name says nothing.
    name.split('/').skip(1).map(plain).any(|part| !part.is_empty() && of.contains(&part))
}

impl Advice {
    /// Returns the owner of the blocks, if it matters.
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Advice::Register { owner, .. } | Advice::Extend { owner, .. } | Advice::LeaveOut { owner, .. } => {
                Some(owner)
            }
            Advice::ReportOnce { .. } | Advice::Choose { .. } => None,
        }
    }

    /// Returns the action to take, in one word.
    pub fn action(&self) -> &'static str {
        match self {
            Advice::Register { .. } => "register",
            Advice::Extend { .. } => "extend",
            Advice::ReportOnce { .. } => "report-once",
            Advice::LeaveOut { .. } => "leave-out",
            Advice::Choose { .. } => "choose",
        }
    }
}

/// Returns the properties that other blocks may share with an owner's, the nearest first.
fn properties(owner: &Owner) -> impl Iterator<Item = (SharedProperty, String)> + use<> {
    let function = Some((SharedProperty::Function, owner.function.clone()));
    let of_type = owner.of_type.clone().map(|of_type| (SharedProperty::Type, of_type));
    let file = owner.file().filter(|_| owner.of_type.is_none()).map(|file| (SharedProperty::File, file.to_owned()));
    [function, of_type, file].into_iter().flatten()
}

impl fmt::Display for ReporterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReporterName::Named(name) => f.write_str(name),
            ReporterName::At(location) => write!(f, "the reporter at {location}"),
        }
    }
}

impl SharedProperty {
    /// Returns the owner's name for this property: its function, type or file.
    fn of(self, owner: &Owner) -> String {
        match self {
            SharedProperty::Function => owner.function.clone(),
            SharedProperty::Type => owner.subject().to_owned(),
            SharedProperty::File => owner.file().unwrap_or_default().to_owned(),
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::Register { owner, is_asked: true } if owner.is_own => {
                write!(f, "register a reporter for {}: nobody reports what {owner} allocates", owner.subject())
            }
            Advice::Register { owner, is_asked: false } if owner.is_own => {
                write!(f, "register a reporter for {}, unless there is one: {owner} allocates these", owner.subject())
            }
            Advice::Register { owner, .. } => write!(
                f,
                "report these where the program keeps {}: {owner} allocates them, which is a library's",
                owner.subject()
            ),
            Advice::Extend { owner, reporter, shared: SharedProperty::Function } => {
                write!(f, "extend {reporter}: it reports other blocks that {owner} allocates")
            }
            Advice::Extend { owner, reporter, shared } => {
                let shared = shared.of(owner);
                write!(f, "extend {reporter}: it reports what else is allocated in {shared}, but not by {owner}")
            }
            Advice::ReportOnce { reporter, locations: None } => {
                write!(f, "measure once what is shared: {reporter} reports these twice")
            }
            Advice::ReportOnce { reporter, locations: Some([first, second]) } => {
                let location = |who: &ReporterName| match who {
                    ReporterName::Named(name) | ReporterName::At(name) => name.clone(),
                };
                let (first, second) = (location(first), location(second));
                write!(f, "report these in one place: {reporter} reports them twice, in {first} and in {second}")
            }
            Advice::LeaveOut { reporter, keeper, reason, owner } => {
                write!(f, "leave these out of {reporter}: ")?;
                match reason {
                    Reason::Reports(shared) => {
                        write!(f, "only {keeper} reports others that {} allocates", shared.of(owner))
                    }
                    Reason::Measures => {
                        write!(f, "{keeper} measures them in {}, which allocates them", owner.subject())
                    }
                    Reason::Called => write!(f, "{keeper} is called as {} is, which allocates them", owner.subject()),
                    Reason::ReportsMost(shared) => {
                        write!(f, "{keeper} reports the most of what {} allocates", shared.of(owner))
                    }
                }
            }
            Advice::Choose { reporters: [one, other] } => {
                write!(f, "leave these out of one reporter: both {one} and {other} report them")
            }
        }
    }
}
