//! What to do about memory that nobody reports, or two do.

mod frame;
mod owner;
mod plan;

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;

pub use owner::{Owner, Whose};
pub use plan::{Part, Plan, Step};

use crate::log::{FrameId, Group, Log, NameId, Report, TraceId};

/// Advice on some blocks. As text, it is a sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nobody reports them, nor anything that is allocated near them: a reporter is missing.
    Register {
        /// Whose they are.
        owner: Owner,
    },
    /// Nobody reports them, but others that are allocated near them: its reporter leaves them out.
    Extend {
        /// Whose they are.
        owner: Owner,
        /// Who could report them.
        reporter: Who,
        /// How near.
        near: Near,
    },
    /// One reporter reports them twice.
    ReportOnce {
        /// Who.
        reporter: Who,
        /// Where it does, if these are two places.
        places: Option<[Who; 2]>,
    },
    /// Two reporters report them, and one of them should not.
    LeaveOut {
        /// Who should not.
        reporter: Who,
        /// Who should go on.
        keeper: Who,
        /// Why that one.
        because: Because,
        /// Whose they are.
        owner: Owner,
    },
    /// Two reporters report them, and nothing says whose they are.
    Choose {
        /// Who does.
        reporters: [Who; 2],
    },
}

/// A reporter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// By its name.
    Named(String),
    /// By where it reports, since it has no name there.
    At(String),
}

/// What two blocks have in common that are near to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Near {
    /// The function that allocates them.
    Function,
    /// The type whose methods allocate them.
    Type,
    /// The file with the functions that allocate them, which are of no type.
    File,
}

/// Why blocks are one reporter's rather than another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    /// It alone reports others that are allocated near.
    Reports(Near),
    /// It reports them in a function of the type that allocates them.
    Measures,
    /// It is called as what allocates them is.
    Called,
    /// Both report others that are allocated near, and it the most bytes.
    ReportsMost(Near),
}

/// Gives advice on the blocks of a log. Making one takes time in proportion to the log's stacks and groups.
#[derive(Debug)]
pub struct Adviser<L> {
    log: L,
    /// By trace: the frame of the owner.
    frames: Vec<Option<FrameId>>,
    owners: HashMap<FrameId, Owner>,
    /// Bytes of those who are reported once, by what they are near to and who reports them.
    reported: HashMap<(Near, String), HashMap<Reporter, f64>>,
}

/// A reporter in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Reporter {
    Named(NameId),
    At(FrameId),
}

impl<L: Deref<Target = Log>> Adviser<L> {
    /// Looks through a log. Names of functions are in its frames, so have these resolved before.
    pub fn of(log: L) -> Adviser<L> {
        let whose: Vec<Whose> = log.frames.iter().map(|text| Whose::of(text)).collect();
        // The innermost of the best there are; not the language's.
        let frame = |trace: &Vec<FrameId>| {
            let of = |frame: &FrameId| whose.get(frame.0 as usize).copied().unwrap_or(Whose::Library);
            let best = trace.iter().min_by_key(|frame| of(frame))?;
            (of(best) != Whose::Library).then_some(*best)
        };
        let frames: Vec<Option<FrameId>> = log.traces.iter().map(frame).collect();
        let texts = frames.iter().flatten().map(|&frame| (frame, Owner::of(&log.frames[frame.0 as usize])));
        let owners = texts.collect();
        let mut reported: HashMap<_, HashMap<_, _>> = HashMap::new();
        let adviser = Adviser { log, frames, owners, reported: HashMap::new() };
        for group in &adviser.log.groups {
            let (Some(owner), [Some(report), None]) = (adviser.owner(group.alloc), group.reports) else { continue };
            let Some(reporter) = adviser.reporter(report) else { continue };
            let bytes = adviser.log.estimated(group).usable;
            for place in places(owner) {
                *reported.entry(place).or_default().entry(reporter).or_default() += bytes;
            }
        }
        Adviser { reported, ..adviser }
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Whose code a frame is.
    pub fn whose(&self, frame: FrameId) -> Whose {
        Whose::of(self.log.frames.get(frame.0 as usize).map_or("", |text| text))
    }

    /// Whose the blocks are that were allocated there; `None`: nothing on the stack says it.
    pub fn owner(&self, alloc: Option<TraceId>) -> Option<&Owner> {
        self.owners.get(&self.frame(alloc?)?)
    }

    /// The owner's frame in a stack.
    pub fn frame(&self, trace: TraceId) -> Option<FrameId> {
        *self.frames.get(trace.0 as usize)?
    }

    /// Advice on the blocks of a group; `None` if there is nothing to be done about them, or nothing to go by.
    pub fn group(&self, group: &Group) -> Option<Advice> {
        self.blocks(group.alloc, group.reports)
    }

    /// The same for blocks that were allocated and reported there.
    pub fn blocks(&self, alloc: Option<TraceId>, reports: [Option<Report>; 2]) -> Option<Advice> {
        match reports {
            [None, _] => self.unreported(alloc),
            [Some(_), None] => None,
            [Some(first), Some(second)] => self.twice(alloc, first, second),
        }
    }

    fn unreported(&self, alloc: Option<TraceId>) -> Option<Advice> {
        let owner = self.owner(alloc)?;
        let nearest = places(owner).find_map(|place| {
            let (&reporter, _) = self.most(self.reported.get(&place)?)?;
            Some((reporter, place.0))
        });
        let owner = owner.clone();
        Some(match nearest {
            Some((reporter, near)) => Advice::Extend { owner, reporter: self.who(reporter), near },
            None => Advice::Register { owner },
        })
    }

    fn twice(&self, alloc: Option<TraceId>, first: Report, second: Report) -> Option<Advice> {
        let both = [self.reporter(first)?, self.reporter(second)?];
        let [one, other] = both.map(|reporter| self.who(reporter));
        if one == other {
            let at = |report: Report| self.frame(report.trace).map(|frame| self.who(Reporter::At(frame)));
            let places = at(first).zip(at(second)).filter(|(first, second)| first != second);
            return Some(Advice::ReportOnce { reporter: one, places: places.map(|(first, second)| [first, second]) });
        }
        let Some((keeper, because, owner)) = self.keeper(alloc, both, [first, second]) else {
            return Some(Advice::Choose { reporters: [one, other] });
        };
        let (keeper, reporter) = if keeper == 0 { (one, other) } else { (other, one) };
        Some(Advice::LeaveOut { reporter, keeper, because, owner: owner.clone() })
    }

    /// Which of two reporters the blocks are of, and why.
    fn keeper(
        &self,
        alloc: Option<TraceId>,
        both: [Reporter; 2],
        reports: [Report; 2],
    ) -> Option<(usize, Because, &Owner)> {
        let owner = self.owner(alloc)?;
        let near = places(owner).find_map(|place| {
            let reported = self.reported.get(&place)?;
            let bytes = both.map(|reporter| reported.get(&reporter).copied());
            bytes.iter().any(Option::is_some).then_some((place.0, bytes))
        });
        let one_of = |is: [bool; 2]| (is[0] != is[1]).then_some(usize::from(is[1]));
        if let Some((near, bytes)) = near
            && let Some(only) = one_of(bytes.map(|bytes| bytes.is_some()))
        {
            return Some((only, Because::Reports(near), owner));
        }
        if let Some(only) = one_of(reports.map(|report| self.is_measured_by(owner, report))) {
            return Some((only, Because::Measures, owner));
        }
        if let Some(only) = one_of(both.map(|reporter| self.is_called_as(owner, reporter))) {
            return Some((only, Because::Called, owner));
        }
        let (near, [Some(first), Some(second)]) = near? else { return None };
        let most = one_of([first > second, second > first])?;
        Some((most, Because::ReportsMost(near), owner))
    }

    /// Whether a function of the owner's type, or the owner itself, is among those that made the report.
    fn is_measured_by(&self, owner: &Owner, report: Report) -> bool {
        let frames = self.log.traces.get(report.trace.0 as usize).into_iter().flatten();
        frames.filter_map(|frame| self.log.frames.get(frame.0 as usize)).any(|text| {
            let other = Owner::of(text);
            other.function == owner.function || (other.of_type.is_some() && other.of_type == owner.of_type)
        })
    }

    /// Whether a part of the reporter's name is one of the owner's: `explicit/key-store` of `db::KeyStore`.
    fn is_called_as(&self, owner: &Owner, reporter: Reporter) -> bool {
        let Who::Named(name) = self.who(reporter) else { return false };
        let plain = |text: &str| -> String {
            text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
        };
        // A crate's name, or a namespace's, is that of all there is.
        let (root, rest) = owner.function.split_once("::").unwrap_or(("", &owner.function));
        let root = if root.starts_with(char::is_uppercase) { root } else { "" };
        let of: Vec<String> = rest.split("::").chain([root]).map(plain).collect();
        // The tree's own name says nothing.
        name.split('/').skip(1).map(plain).any(|part| !part.is_empty() && of.contains(&part))
    }

    fn reporter(&self, report: Report) -> Option<Reporter> {
        let at = || self.frame(report.trace).or(self.log.traces.get(report.trace.0 as usize)?.first().copied());
        report.reporter.map(Reporter::Named).or_else(|| at().map(Reporter::At))
    }

    fn who(&self, reporter: Reporter) -> Who {
        let text = |texts: &Vec<String>, number: u32| texts.get(number as usize).cloned().unwrap_or_default();
        match reporter {
            Reporter::Named(name) => Who::Named(text(&self.log.names, name.0)),
            Reporter::At(frame) => Who::At(Owner::of(&text(&self.log.frames, frame.0)).to_string()),
        }
    }

    /// The reporter of the most bytes; of equals the one that sorts first.
    fn most<'m>(&self, reported: &'m HashMap<Reporter, f64>) -> Option<(&'m Reporter, &'m f64)> {
        let by_name = |reporter: &Reporter| std::cmp::Reverse(self.who(*reporter));
        reported
            .iter()
            .max_by(|one, other| one.1.total_cmp(other.1).then_with(|| by_name(one.0).cmp(&by_name(other.0))))
    }
}

/// What else an owner's blocks may be near to, the nearest first.
fn places(owner: &Owner) -> impl Iterator<Item = (Near, String)> + use<> {
    let function = Some((Near::Function, owner.function.clone()));
    let of_type = owner.of_type.clone().map(|of_type| (Near::Type, of_type));
    let file = owner.file().filter(|_| owner.of_type.is_none()).map(|file| (Near::File, file.to_owned()));
    [function, of_type, file].into_iter().flatten()
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Named(name) => f.write_str(name),
            Who::At(place) => write!(f, "the reporter at {place}"),
        }
    }
}

impl Near {
    /// What allocates blocks that are this near to those of an owner.
    fn of(self, owner: &Owner) -> String {
        match self {
            Near::Function => owner.function.clone(),
            Near::Type => owner.subject().to_owned(),
            Near::File => owner.file().unwrap_or_default().to_owned(),
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::Register { owner } if owner.is_own => {
                write!(f, "register a reporter for {}: nobody reports what {owner} allocates", owner.subject())
            }
            Advice::Register { owner } => write!(
                f,
                "{owner} allocates these, which is a library's: report them where the program keeps {}",
                owner.subject()
            ),
            Advice::Extend { owner, reporter, near: Near::Function } => {
                write!(f, "extend {reporter}: it reports others of those that {owner} allocates")
            }
            Advice::Extend { owner, reporter, near } => {
                let near = near.of(owner);
                write!(f, "extend {reporter}: it reports what else is allocated in {near}, but not by {owner}")
            }
            Advice::ReportOnce { reporter, places: None } => {
                write!(f, "{reporter} reports these twice: what is shared is to be measured once")
            }
            Advice::ReportOnce { reporter, places: Some([first, second]) } => {
                let place = |who: &Who| match who {
                    Who::Named(name) | Who::At(name) => name.clone(),
                };
                write!(f, "{reporter} reports these twice, in {} and in {}: one is enough", place(first), place(second))
            }
            Advice::LeaveOut { reporter, keeper, because, owner } => {
                write!(f, "leave these out of {reporter}, and in {keeper}: ")?;
                match because {
                    Because::Reports(near) => write!(f, "that alone reports others that {} allocates", near.of(owner)),
                    Because::Measures => write!(f, "that measures them in {}, which allocates them", owner.subject()),
                    Because::Called => write!(f, "{} allocates them, which is called alike", owner.subject()),
                    Because::ReportsMost(near) => {
                        write!(f, "that reports the most of what {} allocates", near.of(owner))
                    }
                }
            }
            Advice::Choose { reporters: [one, other] } => {
                write!(f, "both {one} and {other} report these: one of them is to leave them out")
            }
        }
    }
}
