//! Declarations of the program about its stacks: the named scopes that a thread was in, and the
//! program's own heaps.

use heapledger_recording::TextId;

use crate::names::Names;
use crate::stacks::{ContextId, Scope, Stacks};

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
}
