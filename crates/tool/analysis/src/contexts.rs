//! What the program said of its stacks: the named scopes that a thread was in, and the heaps of the program's own.

use std::collections::HashMap;

use heapledger_recording::{Node, Recording, TextId};

use crate::calls::Direction;
use crate::names::{Frame, Names};
use crate::profile::Site;
use crate::rank::{Key, RankBy, group};
use crate::stacks::{ContextId, NodeId, Scope, Stacks};

/// The texts of a recording: equal ones are one.
#[derive(Debug)]
pub(crate) struct Texts {
    /// The first one of those that are equal.
    first: HashMap<TextId, TextId>,
}

impl Texts {
    pub(crate) fn new(recording: &Recording<'_>) -> Texts {
        let mut known = HashMap::new();
        let first = |text: &heapledger_recording::Text| {
            (text.text, *known.entry((text.bytes.clone(), text.is_task)).or_insert(text.text))
        };
        Texts { first: recording.texts().iter().map(first).collect() }
    }

    /// The text of a scope, a value, a heap or a stamp.
    pub(crate) fn merged(&self, node: &Node) -> TextId {
        node.text().and_then(|text| self.first.get(&text).copied()).unwrap_or(TextId::UNKNOWN)
    }
}

/// What a line of a tree may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The frames of the stack.
    Stack,
    /// The scopes of the context.
    Context,
    /// The group that the stack is in: its owner, its heap, the type of its blocks.
    Group(RankBy),
    /// The part that the stack is one of, in a [profile by parts](crate::Profile::load_apart);
    /// nothing in another.
    Part,
}

impl Stacks {
    /// The innermost scope that is a task.
    pub fn task(&self, names: &Names<'_, '_>, context: ContextId) -> Option<Scope> {
        let is_task = |scope: &Scope| names.recording().text(scope.name).is_some_and(|text| text.is_task);
        self.scopes(context).into_iter().rfind(is_task)
    }
}

impl Names<'_, '_> {
    /// A text of the program's; `?` if it is not known.
    pub fn text(&self, text: TextId) -> String {
        let text = self.recording().text(text);
        text.map_or("?".to_owned(), |text| String::from_utf8_lossy(&text.bytes).into_owned())
    }

    /// How a scope is called: `name`, or `name{value}`.
    pub fn scope(&self, scope: Scope) -> String {
        match scope.value {
            None => self.text(scope.name),
            Some(value) => format!("{}{{{}}}", self.text(scope.name), self.text(value)),
        }
    }

    /// How a context is called: `outer > inner{value}`.
    pub fn context(&self, stacks: &Stacks, context: ContextId) -> String {
        let scopes: Vec<String> = stacks.scopes(context).into_iter().map(|scope| self.scope(scope)).collect();
        if scopes.is_empty() { "(no context)".to_owned() } else { scopes.join(" > ") }
    }

    /// How the innermost scope of a context is called, whatever its value is.
    pub fn innermost(&self, scope: Option<TextId>) -> String {
        scope.map_or("(no context)".to_owned(), |name| self.text(name))
    }

    /// How a task is called.
    pub fn task(&self, task: Option<Scope>) -> String {
        task.map_or("(no task)".to_owned(), |task| self.scope(task))
    }

    /// How a heap is called.
    pub fn heap(&self, heap: Option<TextId>) -> String {
        heap.map_or("(no heap)".to_owned(), |heap| self.text(heap))
    }

    /// What a stack is in these layers, as if all were frames: each from the outermost to the innermost, or the other
    /// way round. Never empty, unless no layer is asked for.
    pub fn layers(&mut self, stacks: &Stacks, site: &Site, layers: &[Layer], direction: Direction) -> Vec<Frame> {
        let (stack, mut all) = (site.stack, Vec::new());
        for layer in layers {
            let mut frames = match layer {
                Layer::Stack => self.useful_frames(stacks, stack),
                Layer::Context => self.context_frames(stacks, stacks.context(stack)),
                Layer::Part => site.part.map(Frame::named).into_iter().collect(),
                Layer::Group(by) => vec![self.group_frame(stacks, stack, *by)],
            };
            if direction == Direction::TopDown {
                frames.reverse();
            }
            all.append(&mut frames);
        }
        all
    }

    /// Returns the group of a stack, as it stands where there could be a function.
    fn group_frame(&mut self, stacks: &Stacks, stack: NodeId, by: RankBy) -> Frame {
        match group(self, stacks, (stack, None), by) {
            (Key::Line(function) | Key::File(function), _) => Frame::named(function),
            (Key::Module(module), _) => {
                let path = self.module_path(module);
                self.label(if path.is_empty() { "(unknown module)" } else { &path })
            }
            (_, frame) => frame,
        }
    }

    /// The scopes of a context from the innermost to the outermost.
    fn context_frames(&mut self, stacks: &Stacks, context: ContextId) -> Vec<Frame> {
        let mut labels: Vec<String> = stacks.scopes(context).into_iter().rev().map(|scope| self.scope(scope)).collect();
        if labels.is_empty() {
            labels.push(self.context(stacks, context));
        }
        labels.iter().map(|label| self.label(label)).collect()
    }
}
