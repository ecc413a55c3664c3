//! Declarations of the program about its stacks: the named scopes that a thread was in, and the
//! program's own heaps.

use std::collections::HashMap;

use heapledger_recording::{Node, Recording, TextId};

use crate::calls::Direction;
use crate::names::{Frame, Names};
use crate::profile::Site;
use crate::rank::{Key, RankBy, group};
use crate::stacks::{ContextId, NodeId, Scope, Stacks};

/// The texts of a recording, with equal texts merged.
#[derive(Debug)]
pub(crate) struct Texts {
    /// The first of the texts that are equal to this one.
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

    /// Returns the merged text of a scope, a value, a heap or a stamp.
    pub(crate) fn merged(&self, node: &Node) -> TextId {
        node.text().and_then(|text| self.first.get(&text).copied()).unwrap_or(TextId::UNKNOWN)
    }
}

/// The source of some levels of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The frames of the stack.
    Stack,
    /// The scopes of the context.
    Context,
    /// The group of the stack: its owner, its heap, or the type of its blocks.
    Group(RankBy),
    /// The part of a site in a [profile by parts](crate::Profile::load_split); no level in another
    /// profile.
    Part,
}

impl Stacks {
    /// Returns the innermost scope that is a task.
    pub fn task(&self, names: &Names<'_, '_>, context: ContextId) -> Option<Scope> {
        let is_task = |scope: &Scope| names.recording().text(scope.name).is_some_and(|text| text.is_task);
        self.scopes(context).into_iter().rfind(is_task)
    }
}

impl Names<'_, '_> {
    /// Returns a text of the program; `?` if it is not known.
    pub fn text(&self, text: TextId) -> String {
        let text = self.recording().text(text);
        text.map_or("?".to_owned(), |text| String::from_utf8_lossy(&text.bytes).into_owned())
    }

    /// Returns the name of a scope: `name`, or `name{value}`.
    pub fn scope(&self, scope: Scope) -> String {
        match scope.value {
            None => self.text(scope.name),
            Some(value) => format!("{}{{{}}}", self.text(scope.name), self.text(value)),
        }
    }

    /// Returns the name of a context: `outer > inner{value}`.
    pub fn context(&self, stacks: &Stacks, context: ContextId) -> String {
        let scopes: Vec<String> = stacks.scopes(context).into_iter().map(|scope| self.scope(scope)).collect();
        if scopes.is_empty() { "(no context)".to_owned() } else { scopes.join(" > ") }
    }

    /// Returns the name of the innermost scope of a context, without its value.
    pub fn innermost(&self, scope: Option<TextId>) -> String {
        scope.map_or("(no context)".to_owned(), |name| self.text(name))
    }

    /// Returns the name of a task.
    pub fn task(&self, task: Option<Scope>) -> String {
        task.map_or("(no task)".to_owned(), |task| self.scope(task))
    }

    /// Returns the name of a heap.
    pub fn heap(&self, heap: Option<TextId>) -> String {
        heap.map_or("(no heap)".to_owned(), |heap| self.text(heap))
    }

    /// Returns a site's levels in these layers, as if all were frames: within each layer from the
    /// outermost to the innermost, or the other way round. Never empty, unless no layer is asked
    /// for.
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

    /// Returns the group of a stack as a frame, to be shown in place of a function.
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

    /// Returns the scopes of a context, from the innermost to the outermost.
    fn context_frames(&mut self, stacks: &Stacks, context: ContextId) -> Vec<Frame> {
        let mut labels: Vec<String> = stacks.scopes(context).into_iter().rev().map(|scope| self.scope(scope)).collect();
        if labels.is_empty() {
            labels.push(self.context(stacks, context));
        }
        labels.iter().map(|label| self.label(label)).collect()
    }
}
