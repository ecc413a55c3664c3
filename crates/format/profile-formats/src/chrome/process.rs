//! The memory dump of a process at one moment.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::allocators::{AllocatorDump, Attribute, Edge, WEAK};
use super::guid::Guid;
use super::heap::Heap;
use super::kernel::{Region, Totals};
use super::untracked;
use crate::read_error::ReadError;

/// The level of detail of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Only numbers, under names that are on a list: harmless in a program that others use.
    Background,
    /// A few entries for each part of the program.
    #[default]
    Light,
    /// Everything: single objects, heaps, mappings.
    Detailed,
}

impl Level {
    /// All levels, from the lowest.
    pub const ALL: [Level; 3] = [Level::Background, Level::Light, Level::Detailed];

    /// Returns the level's name in files.
    pub fn name(self) -> &'static str {
        match self {
            Level::Background => "background",
            Level::Light => "light",
            Level::Detailed => "detailed",
        }
    }

    /// Returns the level with this name in files.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// The reason why a dump is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The interval had passed.
    Periodic,
    /// Somebody asked for it.
    #[default]
    Explicit,
    /// More was live than ever before.
    Peak,
    /// Somebody wants the numbers without a file.
    Summary,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Periodic, Kind::Explicit, Kind::Peak, Kind::Summary];

    /// Returns the kind's name in files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Periodic => "periodic_interval",
            Kind::Explicit => "explicitly_triggered",
            Kind::Peak => "peak_memory_usage",
            Kind::Summary => "summary_only",
        }
    }

    /// Returns the kind with this name in files.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The memory of a process's parts at one moment.
///
/// ```
/// use heapledger_profile_formats::chrome::{Level, ProcessDump};
///
/// let mut dump = ProcessDump::new(4711, "server", 0, Level::Detailed);
/// let cache = dump.allocator("cache/pages").set_size(4096).set_object_count(1).guid;
/// dump.allocator("malloc/allocated_objects").set_size(10_000);
/// // The pages are blocks of malloc: viewers take them off there.
/// dump.suballocate(cache, "malloc/allocated_objects");
/// assert_eq!(dump.size_of("cache/pages"), Some(4096));
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessDump {
    /// The process id.
    pub pid: u32,
    /// The name of the process.
    pub process: String,
    /// The time in microseconds, by the same clock in all processes of a trace.
    pub time_us: u64,
    /// The level of detail.
    pub level: Level,
    /// The process as a whole.
    pub totals: Option<Totals>,
    /// Its mappings.
    pub regions: Vec<Region>,
    allocators: BTreeMap<String, AllocatorDump>,
    /// The edges by their sources: each source owns at most one other.
    edges: BTreeMap<Guid, Edge>,
    heaps: BTreeMap<String, Heap>,
    #[serde(skip)]
    filter: Filter,
}

/// The filter for names in background dumps.
#[derive(Clone, Debug, Default)]
struct Filter {
    /// The allowed names. `None`: everything is allowed.
    allowed: Option<BTreeSet<String>>,
    /// The dump that takes the values of all other names.
    discarded: Option<Box<AllocatorDump>>,
}

impl ProcessDump {
    /// Creates an empty dump.
    pub fn new(pid: u32, process: impl Into<String>, time_us: u64, level: Level) -> ProcessDump {
        let process = untracked::scope(|| process.into());
        ProcessDump { pid, process, time_us, level, ..ProcessDump::default() }
    }

    /// Returns the allocator dump with a name; a new one if the name was not asked for before. The
    /// name is absolute, with `/` between its parts; slashes at its ends are removed.
    pub fn allocator(&mut self, name: &str) -> &mut AllocatorDump {
        let name = name.trim_matches('/');
        untracked::scope(|| self.named(name, Guid::of_name(self.pid, name)))
    }

    /// Returns the dump of something that several processes share, identified by a number that they
    /// agree on.
    pub fn shared(&mut self, guid: Guid) -> &mut AllocatorDump {
        let dump = untracked::scope(|| self.named(&format!("global/{guid}"), guid));
        dump.flags &= !WEAK;
        dump
    }

    /// Like [`shared`](Self::shared), but the dump counts only if another process has it too, and
    /// not weakly.
    pub fn weak_shared(&mut self, guid: Guid) -> &mut AllocatorDump {
        untracked::scope(|| {
            let name = format!("global/{guid}");
            let is_new = !self.allocators.contains_key(&name);
            let dump = self.named(&name, guid);
            if is_new {
                dump.flags |= WEAK;
            }
            dump
        })
    }

    fn named(&mut self, name: &str, guid: Guid) -> &mut AllocatorDump {
        if self.filter.allowed.as_ref().is_some_and(|allowed| !is_allowed(allowed, name)) {
            return self.filter.discarded.insert(Box::new(AllocatorDump::new(name.to_owned(), guid)));
        }
        self.allocators.entry(name.to_owned()).or_insert_with(|| AllocatorDump::new(name.to_owned(), guid))
    }

    /// Says that one allocator dump is the memory of another, and owns it. If a source is given two
    /// targets, the more important one stays, or else the later one.
    pub fn own(&mut self, source: Guid, target: Guid, importance: i32) {
        let edge = Edge { source, target, importance };
        match self.edges.get_mut(&source) {
            Some(old) if old.importance > importance => {}
            Some(old) => *old = edge,
            None => _ = untracked::scope(|| self.edges.insert(source, edge)),
        }
    }

    /// Says that the memory of one allocator dump is a part of that of another, such as
    /// `malloc/allocated_objects`, which other dumps may be parts of too.
    pub fn suballocate(&mut self, source: Guid, target: &str) {
        untracked::scope(|| {
            // A part for this source alone: two sources that owned the whole would share it.
            let part = self.allocator(&format!("{target}/__{source}")).guid;
            self.own(source, part, 0);
        });
    }

    /// Adds the heap of an allocator. There should be an allocator dump with the same name. Does
    /// nothing unless the dump is detailed and the heap has live blocks.
    pub fn add_heap(&mut self, allocator: &str, heap: Heap) {
        if self.level == Level::Detailed && !heap.is_empty() {
            untracked::scope(|| self.heaps.insert(allocator.to_owned(), heap));
        }
    }

    /// Returns all allocator dumps, by name.
    pub fn allocators(&self) -> impl Iterator<Item = &AllocatorDump> {
        self.allocators.values()
    }

    /// Returns the ownership edges.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.values()
    }

    /// Returns the heaps, by the names of their allocators.
    pub fn heaps(&self) -> impl Iterator<Item = (&str, &Heap)> {
        self.heaps.iter().map(|(allocator, heap)| (allocator.as_str(), heap))
    }

    /// Returns the size that an allocator dump states.
    pub fn size_of(&self, name: &str) -> Option<u64> {
        self.allocators.get(name)?.size()
    }

    /// Returns a dump of the same process and moment, for one part of the program. `names` are the
    /// names that it may use, in which `0x?` matches any number in hexadecimal: dumps with other
    /// names are made, and thrown away. `None`: all names.
    pub fn part(&self, names: Option<&[String]>) -> ProcessDump {
        let mut part = ProcessDump::new(self.pid, self.process.as_str(), self.time_us, self.level);
        part.filter.allowed = names.map(|names| names.iter().cloned().collect());
        part
    }

    /// Adds the dump of a part of the program; in the background, only its numbers.
    pub fn add(&mut self, part: ProcessDump) {
        for (name, mut dump) in part.allocators {
            if self.level == Level::Background {
                dump.attributes.retain(|(_, attribute)| matches!(attribute, Attribute::Scalar { .. }));
            }
            match self.allocators.get_mut(&name) {
                None => _ = self.allocators.insert(name, dump),
                Some(known) => known.add(dump),
            }
        }
        let known: BTreeSet<Guid> = self.allocators.values().map(|dump| dump.guid).collect();
        for edge in part.edges.into_values() {
            // A dump that was thrown away owns nothing. In other levels, the target may be in
            // another process.
            if self.level > Level::Background || (known.contains(&edge.source) && known.contains(&edge.target)) {
                self.own(edge.source, edge.target, edge.importance);
            }
        }
        self.heaps.extend(part.heaps);
        self.regions.extend(part.regions);
        self.totals = self.totals.or(part.totals);
    }

    /// Returns bytes that another process can [read](ProcessDump::parse).
    pub fn to_bytes(&self) -> Vec<u8> {
        // The dump holds nothing that JSON cannot represent.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Parses a dump that another process has sent. Takes memory in proportion to its size.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a dump.
    pub fn parse(bytes: &[u8]) -> Result<ProcessDump, ReadError> {
        let dump: ProcessDump =
            serde_json::from_slice(bytes).map_err(|error| ReadError::new(error.column() as u64, error.to_string()))?;
        match dump.heaps.iter().find(|(_, heap)| !heap.is_sound()) {
            Some((allocator, _)) => Err(ReadError::new(0, format!("the heap `{allocator}` is damaged"))),
            None => Ok(dump),
        }
    }
}

/// True if a name is on the list, once its hexadecimal numbers have been replaced by `0x?`.
fn is_allowed(allowed: &BTreeSet<String>, name: &str) -> bool {
    let mut plain = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("0x") {
        let digits = &rest[at + 2..];
        let end = digits.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(digits.len());
        plain.push_str(&rest[..at]);
        plain.push_str(if end > 0 { "0x?" } else { "0x" });
        rest = &digits[end..];
    }
    plain.push_str(rest);
    allowed.contains(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Amount;

    #[test]
    fn a_name_is_one_dump() {
        let mut dump = ProcessDump::new(7, "a", 0, Level::Light);
        let guid = dump.allocator("/a/b/").set_size(5).guid;
        assert_eq!(dump.allocator("a/b").guid, guid);
        assert_eq!((guid, dump.allocators().count(), dump.size_of("a/b")), (Guid::of("7:a/b"), 1, Some(5)));
    }

    #[test]
    fn strong_is_more_than_weak() {
        let mut dump = ProcessDump::new(7, "a", 0, Level::Light);
        let guid = Guid::of("pages");
        assert!(dump.weak_shared(guid).is_weak());
        assert!(!dump.shared(guid).is_weak());
        assert!(!dump.weak_shared(guid).is_weak());
        assert_eq!(dump.allocators().next().unwrap().name, format!("global/{guid}"));
    }

    #[test]
    fn parts_are_one_dump() {
        let mut dump = ProcessDump::new(7, "a", 0, Level::Light);
        let guid = Guid::of("pages");
        let (mut first, mut second) = (dump.part(None), dump.part(None));
        first.weak_shared(guid).set_size(5);
        second.shared(guid).set_object_count(1);
        let owner = second.allocator("pages").guid;
        second.own(owner, guid, 1);
        dump.add(first);
        dump.add(second);
        let shared = dump.allocators().find(|dump| dump.guid == guid).unwrap();
        assert_eq!((shared.is_weak(), shared.size(), shared.scalar("object_count")), (false, Some(5), Some(1)));
        assert_eq!(dump.edges().count(), 1);
    }

    #[test]
    fn one_owns_one() {
        let mut dump = ProcessDump::new(7, "a", 0, Level::Light);
        let [a, b, c] = ["a", "b", "c"].map(|name| dump.allocator(name).guid);
        dump.own(a, b, 2);
        dump.own(a, c, 1);
        assert_eq!(dump.edges().map(|edge| edge.target).collect::<Vec<_>>(), [b]);
        dump.own(a, c, 2);
        assert_eq!(dump.edges().map(|edge| edge.target).collect::<Vec<_>>(), [c]);
    }

    #[test]
    fn in_the_background_only_what_is_listed() {
        let mut dump = ProcessDump::new(7, "a", 0, Level::Background);
        let mut part = dump.part(Some(&["cache".to_owned(), "cache/page_0x?".to_owned()]));
        part.allocator("cache").set_size(1).set_text("url", "https://example.org");
        part.allocator("cache/page_0x7fA0").set_size(2);
        let private = part.allocator("cache/https:/example.org").set_size(3).guid;
        part.suballocate(private, "malloc");
        dump.add(part);
        let left: Vec<_> = dump.allocators().map(|dump| (dump.name.as_str(), dump.attributes.len())).collect();
        assert_eq!(left, [("cache", 1), ("cache/page_0x7fA0", 1)]);
        assert_eq!(dump.edges().count(), 0);
    }

    #[test]
    fn others_read_what_is_sent() {
        let mut dump = ProcessDump::new(7, "a", 12, Level::Detailed);
        let guid = dump.allocator("a").set_size(u64::MAX).set_text("of", "\u{1}\"").guid;
        dump.suballocate(guid, "malloc");
        let mut heap = Heap::default();
        heap.add(["main", "f"], Some("T"), Amount { blocks: 1, bytes: 2 });
        dump.add_heap("a", heap);
        dump.regions.push(Region { start: 4096, bytes: 4096, file: "[heap]".into(), ..Region::default() });
        let read = ProcessDump::parse(&dump.to_bytes()).unwrap();
        assert_eq!(read.to_bytes(), dump.to_bytes());
        assert_eq!(read.allocators().collect::<Vec<_>>(), dump.allocators().collect::<Vec<_>>());
        for damaged in [r#""outer":0"#, r#""stack":2"#, r#""of_type":1"#] {
            let text = String::from_utf8(dump.to_bytes()).unwrap();
            assert!(text.contains(damaged), "{text}");
            let text = text.replace(damaged, &format!("{}9", &damaged[..damaged.len() - 1]));
            assert!(ProcessDump::parse(text.as_bytes()).unwrap_err().reason.contains("`a` is damaged"));
        }
    }
}
