//! Reading the files of V8's sampling heap profiler: `node --heap-prof`, Chrome's DevTools,
//! `HeapProfiler.stopSampling`.

use std::borrow::Cow;

use crate::gather::Gather;
use crate::json::tokens::{Token, Tokens, count};
use crate::profile::{Amount, Frame, Known, Location, Profile};
use crate::read_error::ReadError;

/// True if a file may be one of V8: JSON that has nodes of calls.
pub fn detects(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    let has = |text: &[u8]| head.windows(text.len()).any(|part| part == text);
    bytes.starts_with(b"{") && has(b"\"head\"") && has(b"\"callFrame\"")
}

/// A function that is called by another.
#[derive(Default)]
struct Node<'a> {
    caller: Option<usize>,
    function: Cow<'a, str>,
    url: Cow<'a, str>,
    /// The line of the function, from 0.
    line: Option<u64>,
    bytes: u64,
    location: Option<usize>,
}

/// The contents of an open bracket.
#[derive(Clone, Copy)]
enum Level {
    File,
    Node(usize),
    Children(usize),
    CallFrame(usize),
    Other,
}

/// Reads a file: the bytes live when it was written, as V8 has estimated them from its sample.
///
/// # Errors
///
/// Fails if it is not such a file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let mut nodes = nodes(bytes)?;
    let mut gather = Gather::default();
    // The first is the root, which is not a function.
    for node in nodes.iter_mut().skip(1) {
        node.location = Some(gather.location(location(node)));
    }
    for node in nodes.iter().filter(|node| node.bytes > 0) {
        let outwards = std::iter::successors(Some(node), |node| nodes.get(node.caller?));
        let stack = gather.walk(outwards.filter_map(|node| node.location));
        let stack = stack.map_err(|reason| ReadError::new(0, reason))?;
        gather.amounts(stack, Vec::new()).live.add(Amount { blocks: 0, bytes: node.bytes });
    }
    gather.profile.known = Known { live: true, ..Known::NONE };
    Ok(gather.profile)
}

/// Returns the nodes of the tree: a caller is before the functions that it calls.
fn nodes(bytes: &[u8]) -> Result<Vec<Node<'_>>, ReadError> {
    let mut tokens = Tokens::new(bytes);
    let mut nodes: Vec<Node<'_>> = Vec::new();
    let mut levels: Vec<Level> = Vec::new();
    let mut key = Cow::Borrowed("");
    while let Some(token) = tokens.next()? {
        let level = levels.last().copied();
        match token {
            Token::Object | Token::Array => {
                let is_object = token == Token::Object;
                levels.push(match (level, &*key) {
                    (None, _) if is_object => Level::File,
                    (Some(Level::File), "head") if is_object && nodes.is_empty() => {
                        nodes.push(Node::default());
                        Level::Node(0)
                    }
                    (Some(Level::Children(caller)), _) if is_object => {
                        nodes.push(Node { caller: Some(caller), ..Node::default() });
                        Level::Node(nodes.len() - 1)
                    }
                    (Some(Level::Node(at)), "callFrame") if is_object => Level::CallFrame(at),
                    (Some(Level::Node(at)), "children") if !is_object => Level::Children(at),
                    _ => Level::Other,
                });
            }
            Token::End => _ = levels.pop(),
            Token::Key(name) => key = name,
            Token::Text(text) => match (level, &*key) {
                (Some(Level::CallFrame(at)), "functionName") => nodes[at].function = text,
                (Some(Level::CallFrame(at)), "url") => nodes[at].url = text,
                _ => {}
            },
            Token::Number(number) => match (level, &*key) {
                (Some(Level::Node(at)), "selfSize") => {
                    nodes[at].bytes = count(number).ok_or_else(|| tokens.error("`selfSize` is no number"))?;
                }
                (Some(Level::CallFrame(at)), "lineNumber") => nodes[at].line = number.parse().ok(),
                _ => {}
            },
            Token::Word => {}
        }
    }
    if nodes.is_empty() { Err(tokens.error("it has no `head`")) } else { Ok(nodes) }
}

fn location(node: &Node<'_>) -> Location {
    let function = if node.function.is_empty() { "(anonymous)" } else { &node.function };
    let frame = Frame {
        function: function.to_owned(),
        full_name: function.to_owned(),
        known: true,
        file: node.url.to_string(),
        line: node.line.and_then(|line| u32::try_from(line.checked_add(1)?).ok()).unwrap_or(0),
    };
    Location { frames: vec![frame], ..Location::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"head":{"children":[{"callFrame":{"functionName":"f","url":"a.js","lineNumber":4},"selfSize":64,
        "children":[{"selfSize":8.0,"callFrame":{"functionName":""},"id":3}]}],"callFrame":{"functionName":"(root)"},"selfSize":2},
        "samples":[{"size":64,"nodeId":2}]}"#;

    #[test]
    fn every_node_has_its_own() {
        assert!(detects(FILE.as_bytes()) && !detects(b"{\"head\":1}"));
        let profile = read(FILE.as_bytes()).unwrap();
        let names = |sample: &crate::Sample| -> Vec<String> {
            let frames = sample.locations.iter().map(|&at| &profile.locations[at].frames[0]);
            frames.map(|frame| format!("{}:{}", frame.function, frame.line)).collect()
        };
        let found: Vec<_> = profile.samples.iter().map(|it| (names(it), it.amounts.live.bytes)).collect();
        let stack = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(found, [(stack(&[]), 2), (stack(&["f:5"]), 64), (stack(&["(anonymous):0", "f:5"]), 8)],);
    }

    #[test]
    fn however_deep() {
        let (open, close) = (r#"{"callFrame":{"functionName":"f"},"selfSize":0,"children":["#, "]}");
        let depth = 100_000;
        let leaf = r#"{"callFrame":{"functionName":"g"},"selfSize":5}"#;
        let file = format!("{{\"head\":{}{leaf}{}}}", open.repeat(depth), close.repeat(depth));
        let profile = read(file.as_bytes()).unwrap();
        assert_eq!((profile.samples.len(), profile.samples[0].locations.len()), (1, depth));
    }

    #[test]
    fn the_last_line_there_can_be_has_no_next() {
        let file = format!(
            r#"{{"head":{{"children":[{{"callFrame":{{"functionName":"f","lineNumber":{}}},"selfSize":1}}]}}}}"#,
            u64::MAX
        );
        assert_eq!(read(file.as_bytes()).unwrap().locations[0].frames[0].line, 0);
    }

    #[test]
    fn damage_is_told() {
        assert_eq!(read(b"{\"head\":{").unwrap_err().offset, 9);
        assert!(read(b"{}").unwrap_err().reason.contains("no `head`"));
    }
}
