//! Closures, by function, and the memory that their contexts keep.

use std::cmp::Reverse;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::{NotAvailable, name_of};
use crate::dominators::Dominators;
use crate::graph::{EdgeKind, EdgeName, Graph, Location, Name, NodeIndex, Origin};

/// The closures of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closures {
    /// The function's name, if it has one.
    pub function: Option<Name>,
    /// Its file, if the source knows it.
    pub script_file: Option<Name>,
    /// The position of its definition, if the source knows it.
    pub location: Option<Location>,
    /// The number of closures.
    pub count: u64,
    /// The number of different contexts that they keep.
    pub contexts: u64,
    /// The bytes that the contexts retain together.
    pub retained: u64,
    /// The closure whose context retains the most.
    pub example: NodeIndex,
    /// The context of the example, for [`context_variables`].
    pub example_context: NodeIndex,
}

/// A variable in the context of closures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The variable's name.
    pub name: Name,
    /// Its value.
    pub value: NodeIndex,
    /// The retained size of the value in bytes. A value that something else holds, too, may be
    /// larger than the context.
    pub retained: u64,
}

/// Returns the closures that keep contexts, by function: those that retain the most first.
///
/// A context holds the variables of a call, or of a block, that closures have captured. V8's
/// closures of the same name, file and position are of one function, and SpiderMonkey's of the same
/// script. Contexts of whole scripts live as long as the program and are left out as far as the
/// source tells them apart.
///
/// # Errors
///
/// Fails if the source does not name the contexts of closures.
pub fn closures(graph: &Graph, dominators: &Dominators) -> Result<Vec<Closures>, NotAvailable> {
    let names = match graph.about().origin {
        Origin::V8 => Words::of_v8(graph),
        Origin::Firefox => Words::of_firefox(graph),
        Origin::Other => return Err(NotAvailable::Contexts),
    };
    let mut groups: HashMap<Function, Vec<Member>, RandomState> = HashMap::default();
    // Many closures may share a context that has many edges: each context is looked at once.
    let mut contexts: HashMap<NodeIndex, bool, RandomState> = HashMap::default();
    for closure in graph.nodes() {
        if let Some((function, context)) = names.captured(graph, closure, &mut contexts) {
            groups.entry(function).or_default().push(Member { closure, context });
        }
    }
    let groups = groups.into_iter();
    let mut all: Vec<Closures> = groups.map(|(function, members)| totals(dominators, function, &members)).collect();
    all.sort_by_key(|it| (Reverse(it.retained), it.example));
    Ok(all)
}

/// Returns the variables of a context, those whose values retain the most first.
pub fn context_variables(graph: &Graph, dominators: &Dominators, context: NodeIndex) -> Vec<Variable> {
    let variables = graph.edges(context).filter_map(|edge| match edge.name {
        Some(EdgeName::Name(name)) if is_variable(graph, edge.kind, name) => {
            let retained = dominators.retained(edge.target).unwrap_or(0);
            Some(Variable { name, value: edge.target, retained })
        }
        _ => None,
    });
    let mut variables: Vec<Variable> = variables.collect();
    variables.sort_by_key(|it| (Reverse(it.retained), it.value));
    variables
}

/// The function of closures.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Function {
    name: Option<Name>,
    script_file: Option<Name>,
    location: Option<Location>,
    /// SpiderMonkey's script.
    script: Option<NodeIndex>,
}

/// A closure, and the context that it keeps.
#[derive(Clone, Copy)]
struct Member {
    closure: NodeIndex,
    context: NodeIndex,
}

/// An engine's words for closures, their contexts and scripts, as far as the graph has them.
struct Words {
    origin: Origin,
    /// The type (V8) or the class (SpiderMonkey) of closures.
    closure: Option<Name>,
    /// The names of edges from closures to contexts.
    context_edges: Vec<Name>,
    /// The labels (V8) or classes (SpiderMonkey) of contexts.
    contexts: HashSet<Name, RandomState>,
    /// The name of edges from closures to their scripts.
    script_edge: Option<Name>,
    /// The name of edges from a context to that around it.
    outer_edge: Option<Name>,
    /// The classes of contexts around the contexts of calls and blocks.
    outer: Vec<Name>,
}

impl Words {
    fn of_v8(graph: &Graph) -> Words {
        Words {
            origin: Origin::V8,
            closure: name_of(graph, "closure"),
            context_edges: names_of(graph, &["context"]),
            contexts: graph.names().iter().filter(|(_, text)| is_v8_context(text)).map(|(name, _)| name).collect(),
            script_edge: None,
            outer_edge: None,
            outer: Vec::new(),
        }
    }

    fn of_firefox(graph: &Graph) -> Words {
        Words {
            origin: Origin::Firefox,
            closure: name_of(graph, "Function"),
            // Since the environment has become a slot of the function, the edge has no better name.
            context_edges: names_of(graph, &["fun_environment", "**UNKNOWN SLOT 1**"]),
            contexts: names_of(graph, &["Call", "LexicalEnvironment"]).into_iter().collect(),
            script_edge: name_of(graph, "JSFunction script"),
            outer_edge: name_of(graph, "enclosing_environment"),
            outer: names_of(graph, &["Call", "LexicalEnvironment", "ModuleEnvironmentObject"]),
        }
    }

    /// Returns the function and the context of a closure, or `None` if the node is not a closure or
    /// does not keep the context of a call. `contexts` has the contexts that were looked at before.
    fn captured(
        &self,
        graph: &Graph,
        node: NodeIndex,
        contexts: &mut HashMap<NodeIndex, bool, RandomState>,
    ) -> Option<(Function, NodeIndex)> {
        let is_v8 = self.origin == Origin::V8;
        let word = if is_v8 { Some(graph.type_name(node)) } else { graph.class(node) };
        word.filter(|_| word == self.closure)?;
        let context = self.context_edges.iter().find_map(|&name| target(graph, node, name))?;
        if !*contexts.entry(context).or_insert_with(|| self.is_context(graph, context)) {
            return None;
        }
        let script = self.script_edge.and_then(|name| target(graph, node, name));
        let function = Function {
            name: graph.label(node).filter(|&name| !graph.text(name).is_empty()),
            script_file: graph.script_file(node).or_else(|| graph.script_file(script?)),
            location: graph.location(node),
            script,
        };
        Some((function, context))
    }

    /// True if a node is the context of a call or of a block.
    fn is_context(&self, graph: &Graph, node: NodeIndex) -> bool {
        let word = if self.origin == Origin::V8 { graph.label(node) } else { graph.class(node) };
        let has_outer = self.outer_edge.is_none_or(|outer_edge| {
            let outer = target(graph, node, outer_edge).and_then(|outer| graph.class(outer));
            outer.is_some_and(|it| self.outer.contains(&it))
        });
        has_outer && word.is_some_and(|it| self.contexts.contains(&it))
    }
}

/// Adds up the closures of a function. There is at least one.
fn totals(dominators: &Dominators, function: Function, members: &[Member]) -> Closures {
    let contexts: HashSet<NodeIndex, RandomState> = members.iter().map(|it| it.context).collect();
    let contexts: Vec<NodeIndex> = contexts.into_iter().collect();
    let retained = |node| dominators.retained(node).unwrap_or(0);
    // The first one if several are equal, so that the result does not depend on anything else.
    let largest = members.iter().max_by_key(|it| (retained(it.context), Reverse(it.closure)));
    let &Member { closure: example, context: example_context } = largest.unwrap_or(&members[0]);
    let Function { name, script_file, location, .. } = function;
    Closures {
        function: name,
        script_file,
        location,
        count: members.len() as u64,
        contexts: contexts.len() as u64,
        retained: dominators.retained_together(&contexts),
        example,
        example_context,
    }
}

/// True if an edge of a context is a variable of the program.
fn is_variable(graph: &Graph, kind: EdgeKind, name: Name) -> bool {
    if graph.about().origin == Origin::V8 {
        return kind == EdgeKind::Context;
    }
    let text = graph.text(name);
    let is_internal = ["shape", "enclosing_environment", "callee_slot"].contains(&text);
    !is_internal && !text.starts_with(['*', '.'])
}

/// True if a label is that of a context. Newer versions of V8 add the function's name.
fn is_v8_context(label: &str) -> bool {
    label.strip_prefix("system / Context").is_some_and(|rest| rest.is_empty() || rest.starts_with(" / "))
}

/// Returns the target of the first edge of a name.
fn target(graph: &Graph, node: NodeIndex, name: Name) -> Option<NodeIndex> {
    graph.edges(node).find(|edge| edge.name == Some(EdgeName::Name(name))).map(|edge| edge.target)
}

/// Returns the names of texts, as far as the graph has them.
fn names_of(graph: &Graph, texts: &[&str]) -> Vec<Name> {
    texts.iter().filter_map(|text| name_of(graph, text)).collect()
}
