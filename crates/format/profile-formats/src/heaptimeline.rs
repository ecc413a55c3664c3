//! V8's `.heaptimeline`: a snapshot of its heap with the stacks of objects allocated while it was
//! tracked, as Chrome's DevTools (*Allocations on timeline*, with stacks) and
//! `HeapProfiler.startTrackingHeapObjects` write it.
//!
//! Objects, functions and stacks are lists of numbers; the meaning of each number in a row is given
//! at the beginning of the file.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::gather::Gather;
use crate::json::tokens::{Token, Tokens, count};
use crate::profile::{Amount, Frame, Known, Location, Profile};
use crate::read_error::ReadError;

/// True if a file may be one, or a snapshot without stacks: JSON that begins with the description
/// of a snapshot.
pub fn detects(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    let has = |text: &[u8]| head.windows(text.len()).any(|part| part == text);
    bytes.starts_with(b"{") && has(b"\"snapshot\"") && has(b"\"trace_node_fields\"")
}

/// Reads a file: the objects live when the snapshot was taken, and the allocations since tracking
/// began. Objects that were there before have no stack.
///
/// # Errors
///
/// Fails if it is not such a file, or has no stacks.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let mut tokens = Tokens::new(bytes);
    let mut reader = Reader::default();
    while let Some(token) = tokens.next()? {
        reader.take(token).map_err(|reason| tokens.error(reason))?;
    }
    reader.finish().map_err(|reason| tokens.error(reason))
}

/// The contents of an open bracket.
#[derive(Clone, Copy)]
enum Level {
    /// An object, by its name.
    Object(Part),
    /// A list of texts.
    Texts(Part),
    /// Rows of numbers: the part, and how many numbers of it have come.
    Rows(Part, usize),
    /// Stacks with the same caller, and how many numbers have come.
    Stacks {
        caller: Option<usize>,
        numbers: usize,
    },
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    File,
    Snapshot,
    Meta,
    NodeFields,
    FunctionFields,
    StackFields,
    Nodes,
    Functions,
    Strings,
}

/// An object: its size, and its stack.
#[derive(Clone, Copy, Default)]
struct Object {
    bytes: u64,
    stack: u64,
}

#[derive(Clone, Copy, Default)]
struct Function {
    name: u64,
    script: u64,
    line: u64,
}

#[derive(Clone, Copy, Default)]
struct Stack {
    id: u64,
    caller: Option<usize>,
    /// An index of the functions.
    function: u64,
    allocated: Amount,
}

#[derive(Default)]
struct Reader<'a> {
    levels: Vec<Level>,
    key: Cow<'a, str>,
    node_fields: Vec<Cow<'a, str>>,
    function_fields: Vec<Cow<'a, str>>,
    stack_fields: Vec<Cow<'a, str>>,
    object: Object,
    /// The live objects by stack.
    live: HashMap<u64, Amount>,
    functions: Vec<Function>,
    stacks: Vec<Stack>,
    strings: Vec<Cow<'a, str>>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, token: Token<'a>) -> Result<(), &'static str> {
        match token {
            Token::Object | Token::Array => {
                let level = self.begin(token == Token::Object);
                self.levels.push(level);
            }
            Token::End => _ = self.levels.pop(),
            Token::Key(key) => self.key = key,
            Token::Text(text) => match self.levels.last() {
                Some(Level::Texts(Part::NodeFields)) => self.node_fields.push(text),
                Some(Level::Texts(Part::FunctionFields)) => self.function_fields.push(text),
                Some(Level::Texts(Part::StackFields)) => self.stack_fields.push(text),
                Some(Level::Texts(Part::Strings)) => self.strings.push(text),
                _ => {}
            },
            Token::Number(number) => return self.number(number),
            Token::Word => {}
        }
        Ok(())
    }

    fn begin(&mut self, is_object: bool) -> Level {
        match (self.levels.last_mut(), &*self.key, is_object) {
            (None, _, true) => Level::Object(Part::File),
            (Some(Level::Object(Part::File)), "snapshot", true) => Level::Object(Part::Snapshot),
            (Some(Level::Object(Part::Snapshot)), "meta", true) => Level::Object(Part::Meta),
            (Some(Level::Object(Part::Meta)), "node_fields", false) => Level::Texts(Part::NodeFields),
            (Some(Level::Object(Part::Meta)), "trace_function_info_fields", false) => {
                Level::Texts(Part::FunctionFields)
            }
            (Some(Level::Object(Part::Meta)), "trace_node_fields", false) => Level::Texts(Part::StackFields),
            (Some(Level::Object(Part::File)), "nodes", false) => Level::Rows(Part::Nodes, 0),
            (Some(Level::Object(Part::File)), "trace_function_infos", false) => Level::Rows(Part::Functions, 0),
            (Some(Level::Object(Part::File)), "trace_tree", false) => Level::Stacks { caller: None, numbers: 0 },
            (Some(Level::Object(Part::File)), "strings", false) => Level::Texts(Part::Strings),
            // The stacks that are called from a stack are a list in its row.
            (Some(Level::Stacks { numbers, .. }), _, false) if *numbers > 0 => {
                *numbers += 1;
                Level::Stacks { caller: self.stacks.len().checked_sub(1), numbers: 0 }
            }
            _ => Level::Other,
        }
    }

    fn number(&mut self, number: &str) -> Result<(), &'static str> {
        let (Some(Level::Rows(_, numbers)) | Some(Level::Stacks { numbers, .. })) = self.levels.last_mut() else {
            return Ok(());
        };
        let at = *numbers;
        *numbers += 1;
        let value = count(number).ok_or("no number")?;
        let field = |fields: &[Cow<'a, str>]| -> Result<(usize, Cow<'a, str>), &'static str> {
            let column = at.checked_rem(fields.len()).ok_or("its rows come before what they are of")?;
            Ok((column, fields[column].clone()))
        };
        match self.levels.last() {
            Some(Level::Rows(Part::Nodes, _)) => {
                let (column, name) = field(&self.node_fields)?;
                match &*name {
                    "self_size" => self.object.bytes = value,
                    "trace_node_id" => self.object.stack = value,
                    _ => {}
                }
                if column + 1 == self.node_fields.len() {
                    let Object { bytes, stack } = std::mem::take(&mut self.object);
                    if bytes > 0 {
                        self.live.entry(stack).or_default().add(Amount { blocks: 1, bytes });
                    }
                }
            }
            Some(Level::Rows(Part::Functions, _)) => {
                let (column, name) = field(&self.function_fields)?;
                if column == 0 {
                    self.functions.push(Function::default());
                }
                let function = self.functions.last_mut().ok_or("a row without a beginning")?;
                match &*name {
                    "name" => function.name = value,
                    "script_name" => function.script = value,
                    "line" => function.line = value,
                    _ => {}
                }
            }
            Some(&Level::Stacks { caller, .. }) => {
                let (column, name) = field(&self.stack_fields)?;
                if column == 0 {
                    self.stacks.push(Stack { caller, ..Stack::default() });
                }
                let stack = self.stacks.last_mut().ok_or("a row without a beginning")?;
                match &*name {
                    "id" => stack.id = value,
                    "function_info_index" => stack.function = value,
                    "count" => stack.allocated.blocks = value,
                    "size" => stack.allocated.bytes = value,
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Profile, &'static str> {
        if self.stacks.len() < 2 {
            return Err("it has no stacks: it is a snapshot, or stacks were not asked for");
        }
        let (mut gather, mut live) = (Gather::default(), self.live);
        let text = |at: u64| usize::try_from(at).ok().and_then(|at| self.strings.get(at)).map_or("", |text| text);
        let functions: Vec<usize> = self
            .functions
            .iter()
            .map(|function| gather.location(location(text(function.name), text(function.script), function.line)))
            .collect();
        let place = |stack: &Stack| usize::try_from(stack.function).ok().and_then(|at| functions.get(at)).copied();
        for stack in &self.stacks {
            let live = live.remove(&stack.id).unwrap_or_default();
            if (live, stack.allocated) == (Amount::default(), Amount::default()) {
                continue;
            }
            let outwards = std::iter::successors(Some(stack), |stack| self.stacks.get(stack.caller?));
            // The outermost stands for all stacks, and is not a function.
            let functions = outwards.filter(|stack| stack.caller.is_some()).filter_map(place);
            let stack_places = gather.walk(functions)?;
            let amounts = gather.amounts(stack_places, Vec::new());
            amounts.live.add(live);
            amounts.allocated.add(stack.allocated);
        }
        for before in live.into_values() {
            let amounts = gather.amounts(Vec::new(), Vec::new());
            amounts.live.add(before);
            amounts.allocated.add(before);
        }
        gather.profile.known = Known { allocated: true, live: true, ..Known::NONE };
        Ok(gather.profile)
    }
}

fn location(function: &str, script: &str, line: u64) -> Location {
    let name = if function.is_empty() { "(anonymous)" } else { function };
    let frame = Frame {
        function: name.to_owned(),
        full_name: name.to_owned(),
        known: true,
        file: script.to_owned(),
        line: u32::try_from(line).unwrap_or(0),
    };
    Location { frames: vec![frame], ..Location::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"snapshot":{"meta":{"node_fields":["type","name","id","self_size","edge_count","trace_node_id"],
        "node_types":[["hidden"],"string"],"trace_function_info_fields":["function_id","name","script_name","script_id","line","column"],
        "trace_node_fields":["id","function_info_index","count","size","children"]},"node_count":3},
        "nodes":[0,0,1,40,0,0,0,0,3,16,0,3,0,0,5,16,0,3],"edges":[1,2,3],
        "trace_function_infos":[0,0,0,0,0,0,7,1,3,5,4,1,8,2,3,5,9,1],
        "trace_tree":[1,0,0,0,[2,1,0,0,[3,2,5,80,[]],4,2,1,8,[]]],"samples":[],"strings":["(root)","outer","inner","a.js"]}"#;

    #[test]
    fn objects_have_stacks() {
        assert!(detects(FILE.as_bytes()));
        let profile = read(FILE.as_bytes()).unwrap();
        let found = profile.samples.iter().map(|sample| {
            let frames = sample.locations.iter().map(|&at| &profile.locations[at].frames[0]);
            let names: Vec<_> = frames.map(|frame| format!("{}:{}", frame.function, frame.line)).collect();
            (names.join(" "), sample.amounts.live, sample.amounts.allocated)
        });
        let amount = |blocks, bytes| Amount { blocks, bytes };
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                ("inner:9 outer:4".to_owned(), amount(2, 32), amount(5, 80)),
                ("inner:9".to_owned(), amount(0, 0), amount(1, 8)),
                (String::new(), amount(1, 40), amount(1, 40)),
            ]
        );
    }

    #[test]
    fn a_snapshot_without_stacks_is_told() {
        let plain = FILE.replace("[1,0,0,0,[2,1,0,0,[3,2,5,80,[]],4,2,1,8,[]]]", "[]");
        assert!(read(plain.as_bytes()).unwrap_err().reason.contains("no stacks"));
        assert_eq!(read(br#"{"nodes":[1]}"#).unwrap_err().offset, 11);
    }
}
