//! Reading massif's files.

use crate::addresses::{lines, text};
use crate::gather::Gather;
use crate::profile::{Amount, Frame, Known, Location, Point, Profile};
use crate::read_error::ReadError;

/// The deepest tree that is read.
const DEPTH_MAX: usize = 600;

/// True if a file begins as one of massif.
pub fn detects(bytes: &[u8]) -> bool {
    bytes.starts_with(b"desc:") && bytes[..bytes.len().min(4096)].windows(10).any(|part| part == b"\ntime_unit")
}

/// The kind of snapshot that a tree belongs to.
#[derive(Clone, Copy, PartialEq)]
enum SnapshotKind {
    Peak,
    Other,
}

/// Reads a file: the live bytes over time, and the tree of the peak or, without that, the largest
/// tree. Trees have only bytes, not numbers of blocks.
///
/// # Errors
///
/// Fails if it is not such a file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let text = text(bytes)?;
    let mut profile = Profile::default();
    let (mut unit, mut snapshot) = (String::new(), Point::default());
    // The tree that counts so far, and its kind of snapshot.
    let mut best: Option<(SnapshotKind, u64, Vec<Leaf<'_>>)> = None;
    let mut lines = lines(text).peekable();
    while let Some((offset, line)) = lines.next() {
        let wrong = |what: &str| ReadError::new(offset, what);
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong("a number was expected"));
        if let Some(command) = line.strip_prefix("cmd:") {
            profile.command = command.trim().into();
        } else if let Some(of) = line.strip_prefix("time_unit:") {
            unit = of.trim().into();
        } else if let Some(time) = line.strip_prefix("time=") {
            snapshot.time_ns = nanoseconds(number(time)?, &unit);
        } else if let Some(heap) = line.strip_prefix("mem_heap_B=") {
            snapshot.live.bytes = number(heap)? as u64;
        } else if let Some(kind) = line.strip_prefix("heap_tree=") {
            profile.timeline.push(snapshot);
            let of = match kind.trim() {
                "empty" => continue,
                "peak" => SnapshotKind::Peak,
                "detailed" => SnapshotKind::Other,
                _ => return Err(wrong("no such kind of tree")),
            };
            let mut leaves = Vec::new();
            let mut left = 1_usize;
            let mut open: Vec<(usize, &str)> = Vec::new();
            // Each line of a tree says how many are below it.
            while left > 0 {
                let Some((offset, line)) = lines.next() else { return Err(wrong("the tree is cut short")) };
                let node = Node::parse(line).ok_or_else(|| ReadError::new(offset, "not a line of a tree"))?;
                left = (left - 1).saturating_add(node.children);
                while open.last().is_some_and(|(below, _)| *below == 0) {
                    open.pop();
                }
                if let Some((below, _)) = open.last_mut() {
                    *below -= 1;
                }
                if open.len() >= DEPTH_MAX || left > text.len() {
                    return Err(ReadError::new(offset, "a tree that is too large"));
                }
                if node.children == 0 {
                    let stack = open.iter().map(|(_, text)| *text).chain([node.text]).collect();
                    leaves.push(Leaf { stack, bytes: node.bytes });
                }
                open.push((node.children, node.text));
            }
            let is_better = match &best {
                Some((SnapshotKind::Peak, ..)) => false,
                Some((_, bytes, _)) => of == SnapshotKind::Peak || snapshot.live.bytes > *bytes,
                None => true,
            };
            if is_better {
                profile.peak_ns = snapshot.time_ns;
                best = Some((of, snapshot.live.bytes, leaves));
            }
        }
    }
    if profile.timeline.is_empty() {
        return Err(ReadError::new(text.len() as u64, "it has no snapshots"));
    }
    profile.duration_ns = profile.timeline.last().map_or(0, |last| last.time_ns);
    profile.comments.push(format!("massif, time in {unit}"));
    profile.known = Known { peak: true, ..Known::default() };
    let mut gather = Gather::default();
    gather.profile = profile;
    for leaf in best.map(|(_, _, leaves)| leaves).unwrap_or_default() {
        // The first is the whole heap.
        let stack = leaf.stack.iter().skip(usize::from(leaf.stack.len() > 1));
        let stack = stack.map(|text| gather.location(location(text))).collect();
        gather.amounts(stack, Vec::new()).peak.add(Amount { blocks: 0, bytes: leaf.bytes });
    }
    Ok(gather.profile)
}

/// A stack, the innermost frame first, and its bytes.
struct Leaf<'a> {
    stack: Vec<&'a str>,
    bytes: u64,
}

/// A line of a tree: `n2: 1024 0x10915C: f (a.c:5)`.
struct Node<'a> {
    children: usize,
    bytes: u64,
    text: &'a str,
}

impl Node<'_> {
    fn parse(line: &str) -> Option<Node<'_>> {
        let (children, rest) = line.trim_start().strip_prefix('n')?.split_once(": ")?;
        let (bytes, text) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(Node { children: children.parse().ok()?, bytes: bytes.parse().ok()?, text })
    }
}

/// Converts a time to nanoseconds. Only milliseconds are a time; instructions and bytes are taken
/// as if they were nanoseconds.
fn nanoseconds(time: f64, unit: &str) -> u64 {
    if unit == "ms" { (time * 1e6) as u64 } else { time as u64 }
}

/// Parses `0xADDRESS: function (file:line)` or `(in library)`, or
/// `in 3 places, all below massif's threshold (1.00%)`.
fn location(text: &str) -> Location {
    let (address, rest) = match text.split_once(": ") {
        Some((address, rest)) if address.starts_with("0x") => {
            (u64::from_str_radix(&address[2..], 16).unwrap_or(0), rest)
        }
        _ => (0, text),
    };
    let split = rest.rfind(" (").filter(|_| rest.ends_with(')') && address != 0);
    let (function, place) = split.map_or((rest, ""), |at| (&rest[..at], &rest[at + 2..rest.len() - 1]));
    let numbered = place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
    let (file, line) = numbered.unwrap_or(("", 0));
    let frame = Frame {
        function: function.into(),
        full_name: function.into(),
        known: !function.is_empty() && function != "???",
        file: file.into(),
        line,
    };
    Location { module: None, address, frames: vec![frame] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "desc: (none)\ncmd: ./a b\ntime_unit: ms\n#-----------\nsnapshot=0\n#-----------\ntime=0\nmem_heap_B=0\n\
        mem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=empty\n#-----------\nsnapshot=1\n#-----------\ntime=5\nmem_heap_B=100\nmem_heap_extra_B=8\n\
        mem_stacks_B=0\nheap_tree=peak\nn2: 100 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n n1: 90 0x10: f (a.c:5)\n  \
        n0: 90 0x20: main (a.c:9)\n n0: 10 in 2 places, all below massif's threshold (1.00%)\n";

    #[test]
    fn the_peak_is_what_its_tree_says() {
        assert!(detects(FILE.as_bytes()));
        let profile = read(FILE.as_bytes()).unwrap();
        let named = |at: usize| profile.locations[at].frames[0].function.as_str();
        let stacks: Vec<(Vec<&str>, u64)> = profile
            .samples
            .iter()
            .map(|it| (it.locations.iter().map(|at| named(*at)).collect(), it.amounts.peak.bytes))
            .collect();
        assert_eq!(stacks[0], (vec!["f", "main"], 90));
        assert_eq!((stacks[1].1, stacks.len()), (10, 2));
        assert_eq!((profile.command.as_str(), profile.peak_ns, profile.timeline.len()), ("./a b", 5_000_000, 2));
    }

    #[test]
    fn damage_is_told() {
        let cut = &FILE[..FILE.len() - 90];
        assert!(read(cut.as_bytes()).is_err());
        assert!(read(b"desc: x\ncmd: y\n").is_err());
        for below in ["99999999999", "18446744073709551615"] {
            let huge = FILE.replace("n2: 100", &format!("n{below}: 100"));
            assert!(read(huge.as_bytes()).is_err());
            let huge = FILE.replace(" n1: ", &format!(" n{below}: "));
            assert!(huge != FILE && read(huge.as_bytes()).is_err());
        }
    }
}
