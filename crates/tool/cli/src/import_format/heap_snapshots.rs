//! Makes a profile of a heap snapshot: its nodes by stack, type and script.

use std::borrow::Cow;
use std::collections::HashMap;

use heapledger_census::graph::{Allocated, AllocationStack, CoarseType, FrameIndex, Graph, Name, Origin};
use heapledger_census::sites::{Site, sites};
use heapledger_profile_formats::{Amount, Amounts, Frame, Known, Location, Profile, Sample};

/// The maximum number of frames in all stacks together: a short file can have many long stacks.
const FRAMES_MAX: usize = 1 << 25;
/// The maximum size of all texts of the profile together, in bytes: a short file can have a long
/// name that many nodes share.
const TEXT_MAX: usize = 256 << 20;

/// Returns the profile of a graph, or the reason why it is too large.
///
/// Nodes without a stack get one that says what they are: their type, called by their kind. The
/// figures are those of `heap census`.
pub(super) fn profile(graph: &Graph) -> Result<Profile, &'static str> {
    let mut maker = Maker {
        graph,
        profile: Profile::default(),
        locations: HashMap::new(),
        of_frame: vec![None; graph.frames().count()],
        frames: 0,
        text_bytes: 0,
    };
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

/// The name of a function, or a text that stands for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FunctionName {
    Recorded(Name),
    Made(&'static str),
}

/// A place: a function, its file and a line. Frames that differ by their columns alone are one.
type Place = (FunctionName, Option<Name>, u32);

struct Maker<'g> {
    graph: &'g Graph,
    profile: Profile,
    /// The index of each place's location in the profile.
    locations: HashMap<Place, usize>,
    /// The index of each frame's location, once it is known.
    of_frame: Vec<Option<u32>>,
    /// The number of frames in all stacks so far.
    frames: usize,
    /// The size of all texts so far, in bytes.
    text_bytes: usize,
}

impl Maker<'_> {
    /// Adds nodes, which were also allocated unless the stacks say how much they allocated.
    fn add_site(&mut self, site: &Site, has_allocated: bool) -> Result<(), &'static str> {
        let live = Amount { blocks: site.count, bytes: site.bytes };
        let locations = match site.stack {
            Some(AllocationStack::At(innermost)) => self.stack(innermost)?,
            none => self.stackless(site, none.is_some())?,
        };
        let type_name = self.text(self.graph.text(site.type_name))?;
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
            AllocationStack::Empty => vec![self.location((FunctionName::Made("(empty stack)"), None, 0))?],
        };
        let allocated = Amount { blocks: count, bytes };
        self.profile.samples.push(Sample {
            locations,
            amounts: Amounts { allocated, ..Amounts::default() },
            ..Sample::default()
        });
        Ok(())
    }

    /// Returns the locations of a stack, the innermost first.
    fn stack(&mut self, innermost: FrameIndex) -> Result<Vec<usize>, &'static str> {
        let graph = self.graph;
        let locations = graph.frames().stack(innermost).map(|frame| self.frame(frame));
        let locations: Vec<usize> = locations.collect::<Result<_, _>>()?;
        self.count(locations.len())?;
        Ok(locations)
    }

    /// Returns the location of a frame.
    fn frame(&mut self, index: FrameIndex) -> Result<usize, &'static str> {
        let at = index.0 as usize;
        if let Some(known) = self.of_frame[at] {
            return Ok(known as usize);
        }
        let frame = self.graph.frame(index);
        let function = frame.function.map_or(FunctionName::Made("(anonymous)"), FunctionName::Recorded);
        let location = self.location((function, frame.source, frame.line))?;
        self.of_frame[at] = u32::try_from(location).ok();
        Ok(location)
    }

    /// Returns the locations that stand for the stack of nodes without frames.
    fn stackless(&mut self, site: &Site, is_empty: bool) -> Result<Vec<usize>, &'static str> {
        let kind = match site.coarse_type {
            CoarseType::Object => "(objects)",
            CoarseType::Script => "(scripts)",
            CoarseType::String => "(strings)",
            CoarseType::DomNode => "(DOM nodes)",
            CoarseType::Other => "(other)",
        };
        let type_name = FunctionName::Recorded(site.type_name);
        let mut locations =
            vec![self.location((type_name, site.script_file, 0))?, self.location((FunctionName::Made(kind), None, 0))?];
        if is_empty {
            locations.push(self.location((FunctionName::Made("(empty stack)"), None, 0))?);
        }
        self.count(locations.len())?;
        Ok(locations)
    }

    fn count(&mut self, frames: usize) -> Result<(), &'static str> {
        self.frames += frames;
        if self.frames > FRAMES_MAX {
            return Err("there are more stacks, or longer ones, than there is room for");
        }
        Ok(())
    }

    /// Returns the index of a place's location, and adds the location if it is new.
    fn location(&mut self, place: Place) -> Result<usize, &'static str> {
        if let Some(&known) = self.locations.get(&place) {
            return Ok(known);
        }
        let (graph, (function, file, line)) = (self.graph, place);
        let function = match function {
            FunctionName::Recorded(name) => graph.text(name),
            FunctionName::Made(text) => text,
        };
        let frame = Frame {
            function: self.text(function)?,
            full_name: self.text(function)?,
            known: true,
            file: self.text(file.map_or("", |name| graph.text(name)))?,
            line,
        };
        let at = self.profile.locations.len();
        self.profile.locations.push(Location { frames: vec![frame], ..Location::default() });
        self.locations.insert(place, at);
        Ok(at)
    }

    /// Returns a copy of a text if there is room for it.
    fn text(&mut self, text: &str) -> Result<String, &'static str> {
        self.text_bytes += text.len();
        if self.text_bytes > TEXT_MAX {
            return Err("its names are longer, taken together for all stacks, than there is room for");
        }
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests;
