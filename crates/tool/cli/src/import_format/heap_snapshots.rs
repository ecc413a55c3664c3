//! Makes a profile of a heap snapshot: its nodes by stack, type and script.

use std::borrow::Cow;
use std::collections::HashMap;

use heapledger_census::graph::{Allocated, AllocationStack, CoarseType, FrameIndex, Graph, Origin};
use heapledger_census::sites::{Site, sites};
use heapledger_profile_formats::{Amount, Amounts, Frame, Known, Location, Profile, Sample};

/// The maximum number of frames in all stacks together: a short file can have many long stacks.
const FRAMES_MAX: usize = 1 << 25;

/// Returns the profile of a graph, or the reason why it is too large.
///
/// Nodes without a stack get one that says what they are: their type, called by their kind. The
/// figures are those of `heap census`.
pub(super) fn profile(graph: &Graph) -> Result<Profile, &'static str> {
    let mut maker = Maker { graph, profile: Profile::default(), locations: HashMap::new(), frames: 0 };
    let has_allocated = graph.frames().allocated(AllocationStack::Empty).is_some();
    for site in sites(graph) {
        maker.add_site(&site, has_allocated)?;
    }
    if has_allocated {
        for stack in graph.frames().stacks() {
            maker.add_allocated(stack)?;
        }
    }
    let about = graph.about();
    Ok(Profile {
        command: match about.origin {
            Origin::V8 => "V8's heap".to_owned(),
            Origin::Firefox => "Firefox's JavaScript heap".to_owned(),
            Origin::Other => "heap".to_owned(),
        },
        start_unix_ns: about.time_us.unwrap_or(0).saturating_mul(1000),
        known: Known { live: true, allocated: has_allocated, ..Known::NONE },
        ..maker.profile
    })
}

/// True if a node of the graph has a stack.
pub(super) fn has_stacks(graph: &Graph) -> bool {
    graph.frames().count() > 0 && graph.nodes().any(|node| graph.stack(node).is_some())
}

struct Maker<'g> {
    graph: &'g Graph,
    profile: Profile,
    /// The number of each place. Frames that differ by their columns alone are one place.
    locations: HashMap<Location, usize>,
    /// The number of frames in all stacks so far.
    frames: usize,
}

impl Maker<'_> {
    /// Adds nodes, which were also allocated unless the stacks say how much they allocated.
    fn add_site(&mut self, site: &Site, has_allocated: bool) -> Result<(), &'static str> {
        let live = Amount { blocks: site.count, bytes: site.bytes };
        let type_name = self.graph.text(site.type_name).to_owned();
        let locations = match site.stack {
            Some(AllocationStack::At(innermost)) => self.stack(innermost)?,
            none => self.stackless(site, none.is_some())?,
        };
        let is_counted_below = has_allocated && site.stack.is_some();
        let allocated = if is_counted_below { Amount::default() } else { live };
        self.profile.samples.push(Sample {
            locations,
            labels: vec![(Cow::Borrowed("type"), type_name)],
            amounts: Amounts { live, allocated, ..Amounts::default() },
        });
        Ok(())
    }

    /// Adds the allocations of a stack, whose types the file does not have.
    fn add_allocated(&mut self, stack: AllocationStack) -> Result<(), &'static str> {
        let Some(Allocated { count, bytes }) = self.graph.frames().allocated(stack).filter(|it| it.count > 0) else {
            return Ok(());
        };
        let locations = match stack {
            AllocationStack::At(innermost) => self.stack(innermost)?,
            AllocationStack::Empty => vec![self.named("(empty stack)", "", 0)],
        };
        let allocated = Amount { blocks: count, bytes };
        self.profile.samples.push(Sample {
            locations,
            amounts: Amounts { allocated, ..Amounts::default() },
            ..Sample::default()
        });
        Ok(())
    }

    /// Returns the places of a stack, the innermost first.
    fn stack(&mut self, innermost: FrameIndex) -> Result<Vec<usize>, &'static str> {
        let graph = self.graph;
        let places = graph.frames().stack(innermost).map(|frame| {
            let frame = graph.frame(frame);
            let text = |name| graph.text(name);
            let (function, file) = (frame.function.map_or("(anonymous)", text), frame.source.map_or("", text));
            self.named(function, file, frame.line)
        });
        let places: Vec<usize> = places.collect();
        self.count(places.len())?;
        Ok(places)
    }

    /// Returns the places that stand for the stack of nodes without frames.
    fn stackless(&mut self, site: &Site, is_empty: bool) -> Result<Vec<usize>, &'static str> {
        let graph = self.graph;
        let file = site.script_file.map_or("", |name| graph.text(name));
        let kind = match site.coarse_type {
            CoarseType::Object => "(objects)",
            CoarseType::Script => "(scripts)",
            CoarseType::String => "(strings)",
            CoarseType::DomNode => "(DOM nodes)",
            CoarseType::Other => "(other)",
        };
        let mut places = vec![self.named(graph.text(site.type_name), file, 0), self.named(kind, "", 0)];
        if is_empty {
            places.push(self.named("(empty stack)", "", 0));
        }
        self.count(places.len())?;
        Ok(places)
    }

    fn count(&mut self, frames: usize) -> Result<(), &'static str> {
        self.frames += frames;
        if self.frames > FRAMES_MAX {
            return Err("there are more stacks, or longer ones, than there is room for");
        }
        Ok(())
    }

    /// Returns the number of a place.
    fn named(&mut self, function: &str, file: &str, line: u32) -> usize {
        let frame = Frame {
            function: function.to_owned(),
            full_name: function.to_owned(),
            known: true,
            file: file.to_owned(),
            line,
        };
        let locations = &mut self.profile.locations;
        let location = Location { frames: vec![frame], ..Location::default() };
        *self.locations.entry(location).or_insert_with_key(|location| {
            locations.push(location.clone());
            locations.len() - 1
        })
    }
}
