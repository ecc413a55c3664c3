//! Conversion of snapshots: the formats that can be written, and what each of them cannot hold.

use std::fmt;
use std::io::{self, Write};

use crate::fxsnapshot::{self, FIREFOX_FRAMES_MAX};
use crate::graph::{AllocationStack, Detachedness, EdgeKind, FrameIndex, Graph, NodeIndex, Origin};
use crate::heapsnapshot;

/// A format that graphs are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WrittenFormat {
    /// `.fxsnapshot`, which Firefox reads.
    Firefox,
    /// `.heapsnapshot` or `.heaptimeline`, which Chromium's DevTools read.
    V8,
}

/// A thing that a file cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// V8's texts: the characters of strings, the names of functions and of other nodes.
    Texts,
    /// Edges that do not retain their targets: they are left out.
    WeakEdges,
    /// The kinds of edges, such as variables of a closure.
    EdgeKinds,
    /// The positions in scripts at which functions were defined.
    Locations,
    /// The knowledge whether a DOM node is part of a document.
    Detachedness,
    /// The moments of a timeline.
    Moments,
    /// The outer frames of stacks, beyond the innermost 60.
    OuterFrames,
    /// Stacks that are empty: they become unknown.
    EmptyStacks,
    /// The amounts that each stack ever allocated.
    Allocated,
    /// Sizes that are known to be 0: they become unknown.
    ZeroSizes,
    /// The engine's names of types: V8's type that comes closest takes their places.
    TypeNames,
    /// The files of scripts, which become the names of their nodes.
    ScriptFiles,
    /// The names of DOM nodes that have a class, too.
    DescriptiveNames,
    /// The marks of frames as the system's or self-hosted.
    FrameMarks,
    /// Sizes that are not known: they become 0.
    UnknownSizes,
    /// The time at which the snapshot was made.
    Time,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lost::Texts => "texts of strings, functions and other nodes",
            Lost::WeakEdges => "edges that do not keep their targets alive",
            Lost::EdgeKinds => "kinds of edges",
            Lost::Locations => "positions of functions in scripts",
            Lost::Detachedness => "marks of DOM nodes as attached or detached",
            Lost::Moments => "moments of the timeline",
            Lost::OuterFrames => "stacks of more than 60 frames",
            Lost::EmptyStacks => "empty stacks",
            Lost::Allocated => "amounts that stacks allocated",
            Lost::ZeroSizes => "sizes of 0, now not known",
            Lost::TypeNames => "the engine's names of types",
            Lost::ScriptFiles => "files of scripts, now their names",
            Lost::DescriptiveNames => "names of DOM nodes",
            Lost::FrameMarks => "marks of frames as the system's",
            Lost::UnknownSizes => "sizes that are not known, now 0",
            Lost::Time => "the time of the snapshot",
        })
    }
}

impl WrittenFormat {
    /// Writes a graph, and returns the stream.
    ///
    /// # Errors
    ///
    /// Fails if the stream fails.
    pub fn write<W: Write>(self, graph: &Graph, out: W) -> io::Result<W> {
        match self {
            WrittenFormat::Firefox => fxsnapshot::write(graph, out),
            WrittenFormat::V8 => heapsnapshot::write(graph, out),
        }
    }

    /// Returns what a file of this format cannot hold of a graph, each with the number of nodes,
    /// edges, stacks or moments that it is about. Takes O(nodes + edges).
    pub fn lost(self, graph: &Graph) -> Vec<(Lost, u64)> {
        let lost = match self {
            WrittenFormat::Firefox => lost_in_firefox(graph),
            WrittenFormat::V8 if graph.about().origin == Origin::V8 => lost_of_v8(graph),
            WrittenFormat::V8 => lost_in_v8(graph),
        };
        lost.into_iter().filter(|&(_, count)| count > 0).collect()
    }
}

fn count(graph: &Graph, is_lost: impl Fn(NodeIndex) -> bool) -> u64 {
    graph.nodes().filter(|&node| is_lost(node)).count() as u64
}

fn lost_in_firefox(graph: &Graph) -> Vec<(Lost, u64)> {
    let has_text = |node| {
        let label = graph.label(node).filter(|&label| !graph.text(label).is_empty());
        label.is_some() && label != graph.class(node) && label != graph.descriptive_name(node)
    };
    let is_deep = |node| match graph.stack(node) {
        Some(AllocationStack::At(frame)) => graph.frames().stack(frame).nth(FIREFOX_FRAMES_MAX).is_some(),
        _ => false,
    };
    let edges = || 0..graph.edge_count();
    vec![
        (Lost::Texts, count(graph, has_text)),
        (Lost::WeakEdges, edges().filter(|&edge| !graph.retains(edge)).count() as u64),
        (
            Lost::EdgeKinds,
            edges().filter(|&edge| graph.retains(edge) && graph.edge_kind(edge) != EdgeKind::Plain).count() as u64,
        ),
        (Lost::Locations, count(graph, |node| graph.location(node).is_some())),
        (Lost::Detachedness, count(graph, |node| graph.detachedness(node) != Detachedness::Unknown)),
        (Lost::Moments, graph.about().moments.len() as u64),
        (Lost::OuterFrames, count(graph, is_deep)),
        (Lost::EmptyStacks, count(graph, |node| graph.stack(node) == Some(AllocationStack::Empty))),
        (Lost::Allocated, graph.frames().stacks().filter_map(|stack| graph.frames().allocated(stack)).count() as u64),
        (Lost::ZeroSizes, count(graph, |node| graph.size(node) == 0 && graph.is_size_known(node))),
    ]
}

/// Returns the losses of a graph that V8's own snapshot was: nearly all of it is written as it was.
fn lost_of_v8(graph: &Graph) -> Vec<(Lost, u64)> {
    vec![(Lost::TypeNames, heapsnapshot::types_lost(graph)), (Lost::UnknownSizes, unknown_sizes(graph))]
}

fn lost_in_v8(graph: &Graph) -> Vec<(Lost, u64)> {
    vec![
        (Lost::TypeNames, graph.node_count() as u64),
        (Lost::ScriptFiles, count(graph, |node| graph.script_file(node).is_some())),
        (
            Lost::DescriptiveNames,
            count(graph, |node| graph.class(node).is_some() && graph.descriptive_name(node).is_some()),
        ),
        (Lost::FrameMarks, marked_frames(graph)),
        (Lost::UnknownSizes, unknown_sizes(graph)),
        (Lost::Time, u64::from(graph.about().time_us.is_some())),
    ]
}

fn marked_frames(graph: &Graph) -> u64 {
    let frames = (0..graph.frames().count() as u32).map(|frame| graph.frame(FrameIndex(frame)));
    frames.filter(|frame| frame.is_system || frame.is_self_hosted).count() as u64
}

fn unknown_sizes(graph: &Graph) -> u64 {
    count(graph, |node| !graph.is_size_known(node))
}

#[cfg(test)]
mod tests;
