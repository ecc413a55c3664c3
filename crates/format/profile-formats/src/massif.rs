//! The output of Valgrind's massif, which `ms_print` and massif-visualizer open.
//!
//! The file has the live bytes over time, as at most [`SNAPSHOTS`] snapshots. At the peak, at the
//! end and at the moments of [`Profile::snapshots`] it has them by stack, from the functions that
//! allocate to their callers.

use std::collections::HashMap;
use std::io::{self, Write};

mod read;

use crate::calls::on_one_line;
use crate::holds::Holds;
use crate::profile::{Amounts, Known, Point, Profile};

pub use read::{detects, read};

/// The format has a place for live bytes only.
pub const HOLDS: Holds = Holds {
    amounts: Known { live: true, peak: true, end: true, ..Known::NONE },
    names: true,
    files: true,
    lines: true,
    timeline: true,
    ..Holds::STACKS
};

/// The most snapshots in a file, those by stack included: massif's own limit.
pub const SNAPSHOTS: usize = 100;

/// The most functions of a stack that are shown, from the inside: each has a line that begins with
/// as many spaces.
const DEPTH: usize = 500;

/// Functions with less than 1/`THRESHOLD` of a snapshot are shown as one: massif's own threshold of
/// 1 %.
const THRESHOLD: u64 = 100;

/// Writes the file. Takes memory in proportion to the profile.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let text = |text: &str| cleared(text);
    for comment in &profile.comments {
        writeln!(out, "desc: {}", text(comment))?;
    }
    if profile.comments.is_empty() {
        writeln!(out, "desc: (none)")?;
    }
    writeln!(out, "cmd: {}", text(&profile.command))?;
    writeln!(out, "time_unit: ms")?;
    for (number, snapshot) in snapshots(profile).iter().enumerate() {
        writeln!(out, "#-----------\nsnapshot={number}\n#-----------")?;
        writeln!(out, "time={}", snapshot.time_ns / 1_000_000)?;
        writeln!(out, "mem_heap_B={}", snapshot.bytes)?;
        writeln!(out, "mem_heap_extra_B=0\nmem_stacks_B=0")?;
        match &snapshot.detail {
            Detail::None => writeln!(out, "heap_tree=empty")?,
            Detail::Tree(tree) => {
                writeln!(out, "heap_tree=detailed").and_then(|()| Tree::new(profile, tree).write(profile, out))?
            }
            Detail::Peak(tree) => {
                writeln!(out, "heap_tree=peak").and_then(|()| Tree::new(profile, tree).write(profile, out))?
            }
        }
    }
    Ok(())
}

/// The live bytes at a moment.
struct Snapshot {
    time_ns: u64,
    bytes: u64,
    detail: Detail,
}

/// The bytes of each sample, if the snapshot is by stack.
enum Detail {
    None,
    Tree(Vec<u64>),
    Peak(Vec<u64>),
}

/// Returns the snapshots in the order of time.
fn snapshots(profile: &Profile) -> Vec<Snapshot> {
    let of = |bytes: fn(&Amounts) -> u64| profile.samples.iter().map(|sample| bytes(&sample.amounts)).collect();
    let mut detailed: Vec<Snapshot> = Vec::new();
    let mut add = |time_ns, detail: Detail| {
        let (Detail::Tree(by_sample) | Detail::Peak(by_sample)) = &detail else { return };
        let bytes = by_sample.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        detailed.push(Snapshot { time_ns, bytes, detail });
    };
    for snapshot in &profile.snapshots {
        add(snapshot.time_ns, Detail::Tree(snapshot.live.iter().map(|live| live.bytes).collect()));
    }
    if profile.known.peak {
        add(profile.peak_ns, Detail::Peak(of(|amounts| amounts.peak.bytes)));
    }
    if profile.known.end {
        // Blocks that were live at the end of a process are not live after it.
        add(profile.duration_ns, Detail::Tree(of(|amounts| amounts.end.bytes)));
    }
    // Points that repeat a snapshot by stack are left out.
    let timeline = profile.timeline.iter().filter(|point| {
        let is_end = profile.known.end && point.time_ns >= profile.duration_ns;
        !is_end && !detailed.iter().any(|it| it.time_ns == point.time_ns && it.bytes == point.live.bytes)
    });
    let timeline: Vec<Point> = timeline.copied().collect();
    let plain = highest(&timeline, SNAPSHOTS.saturating_sub(detailed.len())).into_iter();
    let plain = plain.map(|point| Snapshot { time_ns: point.time_ns, bytes: point.live.bytes, detail: Detail::None });
    let mut all: Vec<Snapshot> = plain.chain(detailed).collect();
    all.sort_by_key(|snapshot| snapshot.time_ns);
    all
}

/// Returns at most `most` points: the one with the most bytes in each of as many intervals.
pub fn highest(points: &[Point], most: usize) -> Vec<Point> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    if points.len() <= most {
        return points.to_vec();
    }
    if most == 0 {
        return Vec::new();
    }
    let width = (last.time_ns - first.time_ns) / most as u64 + 1;
    let mut found: Vec<(u64, Point)> = Vec::new();
    for point in points {
        let interval = point.time_ns.saturating_sub(first.time_ns) / width;
        match found.last_mut().filter(|(latest, _)| *latest == interval) {
            Some((_, highest)) if highest.live.bytes >= point.live.bytes => {}
            Some((_, highest)) => *highest = *point,
            None => found.push((interval, *point)),
        }
    }
    found.into_iter().map(|(_, point)| point).collect()
}

/// Stacks as a tree, from the functions that allocate outwards. The root is the first.
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    /// A location, and the index of one of its functions.
    call: Option<(usize, usize)>,
    bytes: u64,
    children: Vec<usize>,
}

impl Tree {
    fn new(profile: &Profile, bytes: &[u64]) -> Tree {
        let mut tree = Tree { nodes: vec![Node::default()] };
        let mut known: HashMap<(usize, (usize, usize)), usize> = HashMap::new();
        for (sample, &bytes) in profile.samples.iter().zip(bytes).filter(|(_, bytes)| **bytes > 0) {
            let mut node = 0;
            tree.nodes[0].bytes = tree.nodes[0].bytes.saturating_add(bytes);
            for call in places(profile, &sample.locations).take(DEPTH) {
                let next = tree.nodes.len();
                let child = *known.entry((node, call)).or_insert(next);
                if child == next {
                    tree.nodes.push(Node { call: Some(call), ..Node::default() });
                    tree.nodes[node].children.push(child);
                }
                node = child;
                tree.nodes[node].bytes = tree.nodes[node].bytes.saturating_add(bytes);
            }
        }
        tree
    }

    fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let threshold = self.nodes[0].bytes.div_ceil(THRESHOLD);
        // Stacks may be too deep for recursion.
        let mut next = vec![Line::Node { at: 0, depth: 0 }];
        while let Some(line) = next.pop() {
            match line {
                Line::Rest { places, bytes, depth } => {
                    let (places, all) =
                        if places == 1 { ("1 place".to_owned(), "") } else { (format!("{places} places"), "all ") };
                    let indent = " ".repeat(depth);
                    writeln!(out, "{indent}n0: {bytes} in {places}, {all}below massif's threshold (1.00%)")?;
                }
                Line::Node { at, depth } => {
                    let node = &self.nodes[at];
                    let (mut shown, small): (Vec<usize>, Vec<usize>) =
                        node.children.iter().partition(|&&child| self.nodes[child].bytes >= threshold);
                    // The largest first.
                    shown.sort_by_key(|&child| (self.nodes[child].bytes, std::cmp::Reverse(child)));
                    let children = shown.len() + usize::from(!small.is_empty());
                    let name = match node.call {
                        None => "(heap allocation functions) malloc/new/new[], --alloc-fns, etc.".to_owned(),
                        Some(call) => name(profile, call),
                    };
                    writeln!(out, "{}n{children}: {} {name}", " ".repeat(depth), node.bytes)?;
                    if !small.is_empty() {
                        let bytes =
                            small.iter().fold(0, |sum: u64, &child| sum.saturating_add(self.nodes[child].bytes));
                        next.push(Line::Rest { places: small.len(), bytes, depth: depth + 1 });
                    }
                    next.extend(shown.into_iter().map(|at| Line::Node { at, depth: depth + 1 }));
                }
            }
        }
        Ok(())
    }
}

/// Returns the text of a call: `0x401136: main (a.c:7)`.
fn name(profile: &Profile, (location, inlined): (usize, usize)) -> String {
    let Some(location) = profile.locations.get(location) else { return "0x0: [no stack]".to_owned() };
    let address = location.address;
    let module = location.module.and_then(|module| profile.modules.get(module));
    let (function, file, line) = match location.frames.get(inlined) {
        Some(frame) if frame.known => (cleared(&frame.full_name), &*frame.file, frame.line),
        _ => ("???".to_owned(), "", 0),
    };
    let place = match (file.rsplit('/').next().unwrap_or_default(), module) {
        ("", None) => String::new(),
        ("", Some(module)) => format!(" (in {})", cleared(&module.path)),
        (file, _) if line == 0 => format!(" ({})", cleared(file)),
        (file, _) => format!(" ({}:{line})", cleared(file)),
    };
    format!("0x{address:X}: {function}{place}")
}

/// A line that is still to be written.
enum Line {
    Node { at: usize, depth: usize },
    Rest { places: usize, bytes: u64, depth: usize },
}

/// Returns the calls of a stack: a location, and the index of a function there. At least one, of no
/// location if nothing is known.
fn places<'p>(profile: &'p Profile, locations: &'p [usize]) -> impl Iterator<Item = (usize, usize)> + 'p {
    let known = locations.iter().filter_map(|&at| Some((at, profile.locations.get(at)?)));
    let mut places =
        known.flat_map(|(at, location)| (0..location.frames.len().max(1)).map(move |inlined| (at, inlined))).peekable();
    let nothing = places.peek().is_none().then_some((usize::MAX, 0));
    places.chain(nothing)
}

/// Returns a text on one line, without the character that begins a comment to readers.
fn cleared(text: &str) -> String {
    on_one_line(text).replace('#', "~")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Amount, Snapshot as Moment};
    use crate::testing::{self, example};

    fn written(profile: &Profile) -> String {
        String::from_utf8(testing::written(write, profile)).unwrap()
    }

    fn point(time_ns: u64, bytes: u64) -> Point {
        Point { time_ns, live: Amount { blocks: 1, bytes } }
    }

    #[test]
    fn snapshots_and_trees() {
        let mut profile = example();
        profile.comments = vec!["a {lambda()#1}\nb".into()];
        // One point that is the peak, and one after the end.
        profile.timeline =
            [(0, 5), (20_000_000, 97), (30_000_000, 40), (50_000_000, 0)].map(|(at, bytes)| point(at, bytes)).into();
        profile.samples[0].amounts.peak.bytes = 64;
        let expected = "\
desc: a {lambda()~1} b
cmd: /bin/a --b \"c\"
time_unit: ms
#-----------
snapshot=0
#-----------
time=0
mem_heap_B=5
mem_heap_extra_B=0
mem_stacks_B=0
heap_tree=empty
#-----------
snapshot=1
#-----------
time=20
mem_heap_B=97
mem_heap_extra_B=0
mem_stacks_B=0
heap_tree=peak
n2: 97 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
 n1: 96 0x1004: inner(int) (a.c:3)
  n1: 96 0x1004: outer(int) (a.c:7)
   n0: 96 0x2200: main(int) (m.c:12)
 n1: 1 0x1FFF: ??? (in /bin/a)
  n1: 1 0x2100: inlined ; parse  it(int)
   n0: 1 0x2200: main(int) (m.c:12)
#-----------
snapshot=2
#-----------
time=30
mem_heap_B=40
mem_heap_extra_B=0
mem_stacks_B=0
heap_tree=empty
#-----------
snapshot=3
#-----------
time=50
mem_heap_B=16
mem_heap_extra_B=0
mem_stacks_B=0
heap_tree=detailed
n1: 16 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
 n1: 16 0x1004: inner(int) (a.c:3)
  n1: 16 0x1004: outer(int) (a.c:7)
   n0: 16 0x2200: main(int) (m.c:12)
";
        assert_eq!(written(&profile), expected);
    }

    #[test]
    fn what_is_small_is_one() {
        let mut profile = example();
        profile.known = Known { end: false, ..profile.known };
        profile.samples[0].amounts.peak.bytes = 10_000;
        let file = written(&profile);
        assert!(
            file.contains("\nn2: 10033 ") && file.contains("\n n0: 1 in 1 place, below massif's threshold (1.00%)\n"),
            "{file}"
        );
        profile.samples[3].amounts.peak.bytes = 7;
        let file = written(&profile);
        assert!(file.contains("\n n0: 8 in 2 places, all below massif's threshold (1.00%)\n"), "{file}");
    }

    #[test]
    fn a_moment_is_a_snapshot_of_its_own() {
        let mut profile = Profile { known: Known::NONE, ..example() };
        let live = profile.samples.iter().map(|sample| sample.amounts.live).collect();
        profile.snapshots = vec![Moment { time_ns: 7_000_000, live }];
        let file = written(&profile);
        assert!(file.contains("time=7\nmem_heap_B=106\n") && file.contains("\n n0: 7 0x0: [no stack]\n"), "{file}");
    }

    /// However many points there are, the highest is among those that are left.
    #[test]
    fn snapshots_are_few() {
        let points: Vec<Point> = (0..1000).map(|at| point(at * at, (at * 7919) % 1009)).collect();
        let found = highest(&points, SNAPSHOTS);
        let most = points.iter().map(|point| point.live.bytes).max();
        assert!(found.len() <= SNAPSHOTS && found.is_sorted_by_key(|point| point.time_ns), "{found:?}");
        assert_eq!(found.iter().map(|point| point.live.bytes).max(), most);
    }

    /// Snapshots by stack are among them.
    #[test]
    fn snapshots_by_stack_count() {
        let timeline = (0..1000).map(|at| point(at * 1_000_000, at)).collect();
        let snapshots = (0..8).map(|at| Moment { time_ns: at * 2_500_000, live: Vec::new() }).collect();
        let profile = Profile { timeline, snapshots, duration_ns: 10_000_000_000, ..example() };
        let file = written(&profile);
        assert_eq!((file.matches("snapshot=").count(), file.matches("heap_tree=peak").count()), (SNAPSHOTS, 1));
    }

    #[test]
    fn nothing_is_a_file() {
        assert_eq!(written(&Profile::default()), "desc: (none)\ncmd: \ntime_unit: ms\n");
    }

    /// Stacks may be arbitrarily deep.
    #[test]
    fn deep_stacks() {
        let mut profile = example();
        profile.samples[0].locations = vec![3; 100_000];
        let lines = written(&profile).lines().count();
        assert!((DEPTH..3 * DEPTH).contains(&lines), "{lines}");
    }
}
