//! Names of functions, frames, owners and groups, for JSON.

use heapledger_analysis::{ContextId, Frame, FunctionId, Key, NodeId, Scope, Stacks, Stamp};
use serde::Serialize;

use crate::label::Labels;

impl Labels<'_, '_> {
    /// A function, for JSON.
    pub(crate) fn label(&self, function: FunctionId) -> LabelJson {
        let name = self.names.function(function);
        LabelJson {
            function: name.short.to_string(),
            full: (name.full != name.short).then(|| name.full.to_string()),
            module: Some(self.names.module_path(name.module)).filter(|path| !path.is_empty()),
            declared: name.is_label,
        }
    }

    /// A frame, for JSON.
    pub(crate) fn frame(&self, frame: &Frame) -> FrameJson {
        FrameJson {
            label: self.label(frame.function),
            file: frame.location.as_ref().map(|location| location.file.to_string()),
            line: frame.location.as_ref().map(|location| location.line).filter(|&line| line > 0),
            inlined: frame.inlined,
        }
    }

    /// Returns the useful frames of a stack, for JSON, innermost first.
    pub(crate) fn stack(&mut self, stacks: &Stacks, stack: NodeId) -> Vec<FrameJson> {
        let frames = self.names.useful_frames(stacks, stack);
        frames.iter().map(|frame| self.frame(frame)).collect()
    }

    fn scope(&self, scope: Scope) -> ScopeJson {
        ScopeJson { name: self.names.text(scope.name), value: scope.value.map(|value| self.names.text(value)) }
    }
}

/// A function, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LabelJson {
    /// The name without type arguments and parameters.
    function: String,
    /// The name with type arguments and parameters, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    full: Option<String>,
    /// The path of the executable or library.
    module: Option<String>,
    /// True if this is not a function, but the name of something else, such as a scope or a line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    declared: bool,
}

/// The owner of a stack, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OwnerJson {
    owner: FrameJson,
    /// The function that it called to allocate; `null`: the allocator itself, or something without
    /// a name.
    via: Option<LabelJson>,
    /// Facts about an owner without a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    unnamed: Option<UnnamedJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnnamedJson {
    code_bytes: u64,
    /// The named functions on either side.
    after: Option<String>,
    before: Option<String>,
}

impl OwnerJson {
    pub(crate) fn new(labels: &mut Labels<'_, '_>, stacks: &Stacks, stack: NodeId) -> OwnerJson {
        let owner = labels.names.owner(stacks, stack);
        let unnamed = labels.names.unnamed(owner.frame.function).map(|unnamed| UnnamedJson {
            code_bytes: unnamed.code_bytes,
            after: unnamed.after,
            before: unnamed.before,
        });
        OwnerJson { owner: labels.frame(&owner.frame), via: owner.via.map(|via| labels.label(via)), unnamed }
    }
}

/// The program's declarations about blocks, for JSON: only the property by which the blocks were
/// grouped, and for stacks everything that the program declared. Blocks grouped by thread, process
/// or size have a part.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GroupNameJson {
    /// The name of the thread, process or size.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<String>,
    /// The scopes, the outermost first.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Vec<ScopeJson>>,
    /// `null` if the blocks are in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Option<String>>,
    /// `null` if the blocks are in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Option<ScopeJson>>,
    /// `null` if the blocks belong to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<Option<String>>,
    /// The stamp of the blocks; only for stacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    stamp: Option<StampJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StampJson {
    #[serde(rename = "type")]
    name: String,
    file: Option<String>,
    line: Option<u32>,
    label: Option<String>,
}

impl StampJson {
    fn new(stamp: Stamp) -> StampJson {
        StampJson {
            name: stamp.name.full().to_owned(),
            file: stamp.location.as_ref().map(|location| location.file.to_string()),
            line: stamp.location.map(|location| location.line).filter(|&line| line > 0),
            label: stamp.label,
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ScopeJson {
    name: String,
    value: Option<String>,
}

impl GroupNameJson {
    pub(crate) fn new(labels: &Labels<'_, '_>, stacks: &Stacks, key: Key) -> GroupNameJson {
        let context = |context| Some(stacks.scopes(context).into_iter().map(|scope| labels.scope(scope)).collect());
        let mut declared = GroupNameJson::default();
        match key {
            Key::Owner(_) | Key::Line(_) | Key::File(_) | Key::Function(_) | Key::Module(_) | Key::Type(_) => {}
            Key::Part(label) => declared.part = label.map(|label| labels.names.function(label).short.to_string()),
            Key::Context(id) => declared.context = context(id),
            Key::Scope(name) => declared.scope = Some(name.map(|name| labels.names.text(name))),
            Key::Task(task) => declared.task = Some(task.map(|task| labels.scope(task))),
            Key::Heap(heap) => declared.heap = Some(heap.map(|heap| labels.names.text(heap))),
            Key::Site(stack) => {
                let id = stacks.context(stack);
                declared.context = context(id).filter(|_| id != ContextId::NONE);
                declared.heap = stacks.heap(stack).map(|heap| Some(labels.names.text(heap)));
                declared.stamp = labels.names.stamp(stacks, stack).map(StampJson::new);
            }
        }
        declared
    }
}

/// A frame, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FrameJson {
    #[serde(flatten)]
    label: LabelJson,
    file: Option<String>,
    line: Option<u32>,
    /// True if the function was inlined into that of the next frame.
    inlined: bool,
}
