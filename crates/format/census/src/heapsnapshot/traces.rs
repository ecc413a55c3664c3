//! The stacks that allocated objects: functions, and a tree of calls.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::json::Json;
use super::meta::{Row, trace};
use super::raw::{narrow, rows};
use crate::graph::{Allocated, AllocationStack, Frame, FrameIndex, GraphBuilder, Name};
use crate::read_error::ReadError;

/// A function that is in a stack. The texts are positions in `strings`.
pub(super) struct Function {
    name: u32,
    script_name: u32,
    script_id: u32,
    line: u32,
    column: u32,
}

/// Takes the array of functions.
pub(super) fn functions(json: &mut Json<'_>, row: &Row<6>) -> Result<Vec<Function>, ReadError> {
    let mut functions = Vec::new();
    rows(json, row, |[_, name, script_name, script_id, line, column]| {
        functions.push(Function {
            name: narrow(name, "name")?,
            script_name: narrow(script_name, "script_name")?,
            script_id: narrow(script_id, "script_id")?,
            line: narrow(line, "line")?,
            column: narrow(column, "column")?,
        });
        Ok(())
    })?;
    Ok(functions)
}

/// A node of the tree of calls, after the one that calls it.
pub(super) struct Trace {
    id: u64,
    caller: Option<u32>,
    function: u64,
    allocated: Allocated,
}

/// An array of the tree that is open: its caller, and the row in it that is being read.
struct Level {
    caller: Option<u32>,
    column: usize,
    is_first: bool,
    id: u64,
    function: u64,
    allocated: Allocated,
}

impl Level {
    fn new(caller: Option<u32>) -> Level {
        Level { caller, column: 0, is_first: true, id: 0, function: 0, allocated: Allocated::default() }
    }
}

/// Takes the tree of calls: rows whose last field is an array of rows.
pub(super) fn tree(json: &mut Json<'_>, row: &Row<5>) -> Result<Vec<Trace>, ReadError> {
    json.expect(b'[')?;
    let mut traces: Vec<Trace> = Vec::new();
    let mut levels = vec![Level::new(None)];
    while let Some(level) = levels.last_mut() {
        if !json.has_next(level.is_first, b']')? {
            if level.column != 0 {
                return Err(json.input.error("a row of `trace_tree` is cut off"));
            }
            levels.pop();
            continue;
        }
        level.is_first = false;
        let Some(field) = row.fields.get(level.column) else {
            return Err(json.input.error("`trace_tree` has fields that `meta` does not name"));
        };
        level.column = (level.column + 1) % row.length;
        if *field == Some(trace::CHILDREN as u8) {
            json.expect(b'[')?;
            let new = u32::try_from(traces.len()).map_err(|_| json.input.error("there are too many stacks"))?;
            let Level { caller, id, function, allocated, .. } = *level;
            traces.push(Trace { id, caller, function, allocated });
            levels.push(Level::new(Some(new)));
            continue;
        }
        let value = json.number()?;
        match field.map(usize::from) {
            Some(trace::ID) => level.id = value,
            Some(trace::FUNCTION) => level.function = value,
            Some(trace::COUNT) => level.allocated.count = value,
            Some(trace::SIZE) => level.allocated.bytes = value,
            _ => {}
        }
    }
    Ok(traces)
}

/// The stacks of a file by their ids, and its scripts by theirs.
#[derive(Default)]
pub(super) struct Stacks {
    stacks: HashMap<u64, AllocationStack, RandomState>,
    scripts: HashMap<u32, Name, RandomState>,
}

impl Stacks {
    /// Adds the frames of all stacks to a graph. The outermost call is of V8's own root, which is
    /// no frame.
    pub(super) fn add(
        functions: &[Function],
        traces: &[Trace],
        names: &[Name],
        builder: &mut GraphBuilder,
    ) -> Result<Stacks, String> {
        let mut stacks = Stacks::default();
        let text = |at: u32| {
            let name = names.get(at as usize).copied();
            name.ok_or_else(|| format!("a function refers to string {at}, and there are {}", names.len()))
        };
        for function in functions {
            let file = text(function.script_name)?;
            if !builder.names().text(file).is_empty() {
                let known = stacks.scripts.entry(function.script_id);
                if let Entry::Vacant(new) = known {
                    new.insert(file);
                    builder.add_script(function.script_id, file).map_err(|error| error.to_string())?;
                }
            }
        }
        let mut frames: Vec<Option<FrameIndex>> = Vec::new();
        for Trace { id, caller, function, allocated } in traces {
            let frame = match caller {
                None => None,
                Some(caller) => {
                    let known = usize::try_from(*function).ok().and_then(|it| functions.get(it));
                    let known = known.ok_or_else(|| format!("a stack refers to function {function}"))?;
                    let is_named = |name: &Name| !builder.names().text(*name).is_empty();
                    let frame = Frame {
                        id: *id,
                        parent: frames[*caller as usize],
                        source: Some(text(known.script_name)?).filter(is_named),
                        line: known.line,
                        column: known.column,
                        function: Some(text(known.name)?).filter(is_named),
                        is_system: false,
                        is_self_hosted: false,
                    };
                    Some(builder.add_frame(frame).map_err(|error| error.to_string())?)
                }
            };
            frames.push(frame);
            let stack = frame.map_or(AllocationStack::Empty, AllocationStack::At);
            if *allocated != Allocated::default() {
                builder.add_allocated(stack, *allocated).map_err(|error| error.to_string())?;
            }
            if *id == 0 || stacks.stacks.insert(*id, stack).is_some() {
                return Err(format!("the id {id} of a stack is 0 or that of another"));
            }
        }
        Ok(stacks)
    }

    /// Returns the stack with the id that a node has.
    pub(super) fn stack(&self, id: u32) -> Result<Option<AllocationStack>, String> {
        if id == 0 {
            return Ok(None);
        }
        let stack = self.stacks.get(&u64::from(id)).copied();
        stack.map(Some).ok_or_else(|| format!("a node refers to stack {id}, which is not in `trace_tree`"))
    }

    /// Returns the name of a script, if it has one.
    pub(super) fn script(&self, id: u32) -> Option<Name> {
        self.scripts.get(&id).copied()
    }
}
