//! V8's `.heapprofile`: a tree of calls with one figure, which Chrome's DevTools (panel *Memory*,
//! *Load profile*) and Speedscope read.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

mod read;

use crate::calls::Call;
use crate::holds::Holds;
use crate::profile::Profile;

pub use read::{detects, read};

/// One figure for each stack.
pub const HOLDS: Holds = Holds { files: true, ..crate::collapsed::HOLDS };

/// A function that is called by another.
struct Node {
    name: String,
    file: String,
    figure: u64,
    children: Vec<usize>,
}

/// The calling function. V8's lines are those of functions, which are not known here.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallFrame<'n> {
    function_name: &'n str,
    script_id: &'static str,
    url: &'n str,
    line_number: i32,
    column_number: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sample {
    size: u64,
    node_id: usize,
    ordinal: usize,
}

/// Writes the file. Takes memory in proportion to the profile.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let nodes = tree(profile);
    out.write_all(b"{\"head\":")?;
    // The path to the present node, with the index of each next child: stacks may be deeper than
    // our own.
    let mut path = vec![(0, 0)];
    begin(&nodes, 0, out)?;
    while let Some((at, next)) = path.last_mut() {
        match nodes[*at].children.get(*next) {
            Some(&child) => {
                if *next > 0 {
                    out.write_all(b",")?;
                }
                *next += 1;
                begin(&nodes, child, out)?;
                path.push((child, 0));
            }
            None => {
                out.write_all(b"]}")?;
                path.pop();
            }
        }
    }
    out.write_all(b",\"samples\":")?;
    let figures = nodes.iter().enumerate().filter(|(_, node)| node.figure > 0);
    let samples: Vec<Sample> = (1..)
        .zip(figures)
        .map(|(ordinal, (at, node))| Sample { size: node.figure, node_id: at + 1, ordinal })
        .collect();
    serde_json::to_writer(&mut *out, &samples)?;
    out.write_all(b"}\n")
}

/// Writes a node up to its children.
fn begin(nodes: &[Node], at: usize, out: &mut dyn Write) -> io::Result<()> {
    let Node { name, file, figure, .. } = &nodes[at];
    let frame = CallFrame { function_name: name, script_id: "0", url: file, line_number: -1, column_number: -1 };
    out.write_all(b"{\"callFrame\":")?;
    serde_json::to_writer(&mut *out, &frame)?;
    write!(out, ",\"selfSize\":{figure},\"id\":{},\"children\":[", at + 1)
}

/// Returns all stacks as a tree, from the outermost functions inwards; the root is the first node.
fn tree(profile: &Profile) -> Vec<Node> {
    let node = |name: &str, file: &str| Node { name: name.into(), file: file.into(), figure: 0, children: Vec::new() };
    let mut nodes = vec![node("(root)", "")];
    let mut numbers: HashMap<(usize, String, String), usize> = HashMap::new();
    for sample in &profile.samples {
        let figure = profile.shown.of(&sample.amounts);
        if figure == 0 {
            continue;
        }
        let mut at = 0;
        for call in Call::of(profile, sample).iter().rev() {
            let (name, file) = (call.name(), &call.frame.file);
            let next = *numbers.entry((at, name.to_string(), file.clone())).or_insert(nodes.len());
            if next == nodes.len() {
                nodes.push(node(&name, file));
                nodes[at].children.push(next);
            }
            at = next;
        }
        nodes[at].figure = nodes[at].figure.saturating_add(figure);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::profile::{Amount, Amounts, Figure, Location};
    use crate::testing::{example, frame, written};

    #[test]
    fn nodes_and_samples_agree() {
        let mut profile = example();
        for (shown, total) in [(Figure::LiveBytes, 106), (Figure::Allocations, 16), (Figure::Temporaries, 2)] {
            profile.shown = shown;
            let file: Value = serde_json::from_slice(&written(write, &profile)).unwrap();
            let (mut sum, mut ids) = (0, Vec::new());
            let mut open = vec![&file["head"]];
            while let Some(node) = open.pop() {
                sum += node["selfSize"].as_u64().unwrap();
                ids.push(node["id"].as_u64().unwrap());
                open.extend(node["children"].as_array().unwrap());
            }
            let samples = file["samples"].as_array().unwrap();
            assert_eq!((sum, samples.iter().map(|sample| sample["size"].as_u64().unwrap()).sum()), (total, total));
            ids.sort_unstable();
            assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
        }
        let names = |node: &Value| node["callFrame"]["functionName"].clone();
        let file: Value = serde_json::from_slice(&written(write, &example())).unwrap();
        let main = &file["head"]["children"][0];
        assert_eq!((names(main), names(&main["children"][0])), ("main".into(), "outer".into()));
    }

    /// A stack deeper than our own could be.
    #[test]
    fn a_very_deep_stack() {
        let depth = 50_000;
        let mut profile = Profile::default();
        profile.locations.push(Location { module: None, address: 1, frames: vec![frame("f", "", 0)] });
        profile.samples.push(crate::Sample {
            locations: vec![0; depth],
            labels: vec![],
            amounts: Amounts { live: Amount { blocks: 1, bytes: 5 }, ..Amounts::default() },
        });
        let file = String::from_utf8(written(write, &profile)).unwrap();
        assert_eq!(file.matches("\"children\"").count(), depth + 1);
        assert!(file.ends_with(&format!("\"samples\":[{{\"size\":5,\"nodeId\":{},\"ordinal\":1}}]}}\n", depth + 1)));
    }
}
