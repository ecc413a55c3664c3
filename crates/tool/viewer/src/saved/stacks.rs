//! Stacks that many answers have, kept once.
//!
//! Rows of tables have their stacks, and each table of a recording has much the same ones. In a
//! saved answer the list of frames is replaced by `{"saved":NODE}`: a node of a tree, whose way to
//! the root has the frames from the innermost one outwards.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;

/// The key whose value is a stack.
const KEY: &[u8] = b"\"stack\"";

/// The stacks of all answers, as a tree.
#[derive(Debug, Default, Serialize)]
pub(super) struct Stacks {
    /// The frames, as the answers have them.
    frames: Vec<Box<RawValue>>,
    /// The frame of each node.
    frame: Vec<u32>,
    /// The node of the frame outside of it; −1 for the outermost one.
    parent: Vec<i64>,
    #[serde(skip)]
    known_frames: HashMap<String, u32>,
    #[serde(skip)]
    known: HashMap<(i64, u32), i64>,
}

impl Stacks {
    /// Returns an answer with its stacks replaced, and without space between its tokens. `json` is
    /// valid JSON; otherwise it stays as it is.
    pub(super) fn replace(&mut self, json: &[u8]) -> Vec<u8> {
        let json = &compact(json);
        let mut short = Vec::with_capacity(json.len() / 4);
        let mut at = 0;
        while at < json.len() {
            let end = token_end(json, at);
            short.extend_from_slice(&json[at..end]);
            let is_key = &json[at..end] == KEY;
            at = end;
            if is_key && let Some((stack, end)) = stack_at(json, at) {
                let node = stack.iter().rev().fold(-1, |parent, frame| self.node(parent, frame));
                short.extend_from_slice(format!(":{{\"saved\":{node}}}").as_bytes());
                at = end;
            }
        }
        short
    }

    fn node(&mut self, parent: i64, frame: &RawValue) -> i64 {
        let frame = self.frame(frame);
        let next = self.frame.len() as i64;
        let node = *self.known.entry((parent, frame)).or_insert(next);
        if node == next {
            self.frame.push(frame);
            self.parent.push(parent);
        }
        node
    }

    fn frame(&mut self, frame: &RawValue) -> u32 {
        if let Some(&known) = self.known_frames.get(frame.get()) {
            return known;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.to_owned());
        self.known_frames.insert(frame.get().to_owned(), number);
        number
    }
}

/// Returns JSON without space between its tokens.
fn compact(json: &[u8]) -> Vec<u8> {
    let mut compact = Vec::with_capacity(json.len());
    let mut at = 0;
    while at < json.len() {
        let end = token_end(json, at);
        if !json[at].is_ascii_whitespace() {
            compact.extend_from_slice(&json[at..end]);
        }
        at = end;
    }
    compact
}

/// Returns where a string ends, or any other character.
fn token_end(json: &[u8], begin: usize) -> usize {
    if json[begin] != b'"' {
        return begin + 1;
    }
    let mut at = begin + 1;
    while at < json.len() && json[at] != b'"' {
        at += if json[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(json.len())
}

/// Returns the frames of the list that is the value of a key, and where it ends. `None` if the
/// value is not a list of objects.
fn stack_at(json: &[u8], key_end: usize) -> Option<(Vec<&RawValue>, usize)> {
    let rest = json.get(key_end..)?.strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Vec<&RawValue>>();
    let stack = values.next()?.ok()?;
    let is_stack = !stack.is_empty() && stack.iter().all(|frame| frame.get().starts_with('{'));
    is_stack.then(|| (stack, key_end + 1 + values.byte_offset()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns an answer with its stacks put back, as the page does it.
    fn restored(value: Value, table: &Value) -> Value {
        match value {
            Value::Array(list) => list.into_iter().map(|one| restored(one, table)).collect(),
            Value::Object(object) if object.len() == 1 && object.contains_key("saved") => {
                let mut frames = Vec::new();
                let mut node = object["saved"].as_i64().unwrap();
                while let Ok(at) = usize::try_from(node) {
                    frames.push(table["frames"][table["frame"][at].as_u64().unwrap() as usize].clone());
                    node = table["parent"][at].as_i64().unwrap();
                }
                frames.into()
            }
            Value::Object(object) => object.into_iter().map(|(key, one)| (key, restored(one, table))).collect(),
            other => other,
        }
    }

    #[test]
    fn stacks_are_kept_once_and_come_back() {
        let [a, b, c] = ["a", "\"stack\": [{", "</script>\\"].map(|name| json!({"function": name, "line": 1.25}));
        let answers = [
            json!({"rows": [{"stack": [a, b, c], "x": 0.1}, {"stack": [b, c]}], "stack": []}),
            json!({"rows": [{"stack": [a, b, c]}, {"stack": 7}], "\\\"stack\"": "\"stack\": [{}]", "stack": [1]}),
        ];
        let mut stacks = Stacks::default();
        let short: Vec<Vec<u8>> = answers
            .iter()
            .map(|answer| stacks.replace(serde_json::to_string_pretty(answer).unwrap().as_bytes()))
            .collect();
        let table = serde_json::to_value(&stacks).unwrap();
        assert_eq!((&table["frame"], &table["parent"]), (&json!([0, 1, 2]), &json!([-1, 0, 1])));
        for (answer, short) in answers.iter().zip(&short) {
            assert_eq!(&restored(serde_json::from_slice(short).unwrap(), &table), answer);
        }
        assert!(short[0].starts_with(br#"{"rows":[{"stack":{"saved":2},"x":0.1}"#), "{short:?}");
        // Broken JSON stays as it is.
        for broken in [&b"\"stack"[..], b"\"stack\"", b"\"stack\":", b"\"stack\":[{", b"\"a\\"] {
            assert_eq!(stacks.replace(broken), broken);
        }
    }
}
