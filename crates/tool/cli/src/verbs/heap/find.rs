//! `heapledger heap find`: nodes that often are too many, or held for too long.

use std::collections::HashMap;

use clap::ValueEnum;
use heapledger_census::dominators::Dominators;
use heapledger_census::find::{
    self, ClassTotals, Closures, DuplicateString, GlobalTotals, Globals, KeptString, Kind, KindTotals, NotAvailable,
    Variable, class_totals, context_variables, duplicate_strings, kept_strings,
};
use heapledger_census::graph::{Graph, NodeIndex};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use super::json::NodeJson;
use super::{begin, names, snapshot};
use crate::args::{Finding, HeapFind};
use crate::error::Result;
use crate::format::{bytes, count, counted};
use crate::json::document::{Document, Form};
use crate::output::Output;
use crate::views::table::limit;

/// The most variables of a context that are shown.
const VARIABLES_MAX: usize = 3;
/// The most variables of a context in JSON. Many functions may have the same context.
const VARIABLES_JSON_MAX: usize = 100;

/// The answer of `heap find --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapFindingsJson {
    findings: Vec<FindingJson>,
}

impl Document for HeapFindingsJson {
    const SCHEMA: &'static str = "heap-findings";
    const ROWS: Option<&'static str> = None;
}

/// The nodes of one kind.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FindingJson {
    /// The kind, as on the command line.
    what: String,
    /// The reason why the snapshot cannot tell; `null` if it can.
    not_available: Option<String>,
    rows_all: usize,
    rows: Vec<FindingRowJson>,
}

/// A node, or a group of nodes with an example.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FindingRowJson {
    node: NodeJson,
    /// The class or type, the characters, or the name of the function, of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The number of nodes in the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// The sum of their own sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// The bytes that would be freed with the node or with the group; of closures, with their
    /// contexts.
    #[serde(skip_serializing_if = "Option::is_none")]
    retained: Option<u64>,
    /// The bytes that equal strings take beyond one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    wasted: Option<u64>,
    /// The number of different contexts that closures keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    contexts: Option<u64>,
    /// The context of the example.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<u64>,
    /// The variables of that context, the largest first: at most 100. They are in the first row
    /// with the context, and empty in others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<VariableJson>,
    /// A string that is a part of the string.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<NodeJson>,
}

/// A variable that a closure keeps.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct VariableJson {
    name: String,
    id: u64,
    retained: u64,
}

/// Nodes of one kind, for both forms of the answer.
struct Found {
    /// The title, if there are any.
    title: String,
    headings: Vec<&'static str>,
    rows_all: usize,
    rows: Vec<(Row, FindingRowJson)>,
}

pub(super) fn run(arguments: &HeapFind, out: &mut Output) -> Result<()> {
    begin(&arguments.answer.written, &[&arguments.file], out)?;
    let graph = snapshot::read(&arguments.file)?;
    let dominators = Dominators::of(&graph);
    let finder = Finder { graph: &graph, dominators: &dominators, rows_max: limit(arguments.rows) };
    let kinds = if arguments.what.is_empty() { Finding::value_variants() } else { &arguments.what[..] };
    if arguments.answer.json {
        let findings = kinds.iter().map(|kind| FindingJson::new(*kind, finder.find(*kind))).collect();
        return out.document(&HeapFindingsJson { findings }, Form::Json);
    }
    for (at, kind) in kinds.iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        let found = match finder.find(*kind) {
            Ok(found) => found,
            Err(why) => {
                out.dim_line(format_args!("{}: {why}", name(*kind)))?;
                continue;
            }
        };
        if found.rows_all == 0 {
            out.dim_line(format_args!("{}: none", name(*kind)))?;
            continue;
        }
        out.title(format_args!("{}: {}", name(*kind), found.title))?;
        out.line("")?;
        let rest = found.rows_all - found.rows.len();
        let mut table = Tree::new(found.headings);
        found.rows.into_iter().for_each(|(row, _)| table.push(0, row));
        out.tree(&table)?;
        if rest > 0 {
            out.dim_line(format_args!("and {} more: -n 0 shows them", count(rest as u64)))?;
        }
    }
    Ok(())
}

/// Returns the name of a kind of strings or code.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Flat => "strings",
        Kind::Concatenated => "concatenated strings",
        Kind::Part => "parts of strings",
        Kind::Source => "source",
        Kind::Bytecode => "bytecode",
        Kind::MachineCode => "machine code",
        Kind::InlineCaches => "inline caches",
        Kind::Descriptions => "scopes and descriptions of functions",
    }
}

/// Returns the kind as it is written on the command line.
fn name(kind: Finding) -> String {
    kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl FindingJson {
    fn new(kind: Finding, found: std::result::Result<Found, NotAvailable>) -> FindingJson {
        match found {
            Ok(found) => FindingJson {
                what: name(kind),
                not_available: None,
                rows_all: found.rows_all,
                rows: found.rows.into_iter().map(|(_, row)| row).collect(),
            },
            Err(why) => {
                FindingJson { what: name(kind), not_available: Some(why.to_string()), rows_all: 0, rows: Vec::new() }
            }
        }
    }
}

impl FindingRowJson {
    fn new(graph: &Graph, node: NodeIndex) -> FindingRowJson {
        FindingRowJson {
            node: NodeJson::new(graph, node),
            name: None,
            count: None,
            bytes: None,
            retained: None,
            wasted: None,
            contexts: None,
            context: None,
            variables: Vec::new(),
            part: None,
        }
    }
}

/// A heap in which nodes are looked for.
#[derive(Clone, Copy)]
struct Finder<'g> {
    graph: &'g Graph,
    dominators: &'g Dominators,
    rows_max: usize,
}

impl Finder<'_> {
    fn find(self, kind: Finding) -> std::result::Result<Found, NotAvailable> {
        Ok(match kind {
            Finding::Retainers => self.retainers(),
            Finding::Classes => self.classes(&class_totals(self.graph, self.dominators)),
            Finding::Strings => self.strings(&duplicate_strings(self.graph)?),
            Finding::Slices => self.slices(&kept_strings(self.graph)),
            Finding::Concatenations => self.concatenations(),
            Finding::Closures => self.closures(&find::closures(self.graph, self.dominators)?),
            Finding::Kinds => self.kinds(&find::kinds(self.graph)),
            Finding::Detached => self.detached(&find::detached_dom(self.graph, self.dominators)?),
            Finding::Globals => self.globals(&Globals::of(self.graph)?.totals(self.graph)),
            Finding::Unreachable => self.unreachable(),
        })
    }

    fn row(self, node: NodeIndex, cells: Vec<String>) -> (Row, FindingRowJson) {
        (Row::new(names::node(self.graph, node)).cells(cells), FindingRowJson::new(self.graph, node))
    }

    /// Returns nodes with their retained and own sizes.
    fn nodes(self, title: String, all: usize, nodes: impl Iterator<Item = (NodeIndex, Option<u64>)>) -> Found {
        let rows = nodes.take(self.rows_max).map(|(node, retained)| {
            let cells = vec![retained.map_or_else(String::new, bytes), bytes(self.graph.size(node))];
            let (row, json) = self.row(node, cells);
            (row, FindingRowJson { retained, ..json })
        });
        Found { title, headings: vec!["retained", "size"], rows_all: all, rows: rows.collect() }
    }

    /// V8's nodes for groups of roots retain nearly everything, and say nothing.
    fn retainers(self) -> Found {
        let is_group = |node: NodeIndex| self.graph.text(self.graph.type_name(node)) == "synthetic";
        let all = find::largest_retainers(self.graph, self.dominators, usize::MAX);
        let chosen = all.iter().filter(|(node, _)| !is_group(*node)).map(|(node, retained)| (*node, Some(*retained)));
        let whole = self.dominators.retained(self.dominators.root()).unwrap_or_default();
        self.nodes(format!("{} in all", bytes(whole)), chosen.clone().count(), chosen)
    }

    fn kinds(self, all: &[KindTotals]) -> Found {
        let rows = all.iter().take(self.rows_max).map(|of| {
            let (_, json) = self.row(of.largest, Vec::new());
            let name = kind_name(of.kind);
            let row = Row::new(name).note(format!("the largest: @{}", self.graph.id(of.largest).0));
            let row = row.cells([bytes(of.bytes), count(of.count)]);
            (row, FindingRowJson { name: Some(name.to_owned()), count: Some(of.count), bytes: Some(of.bytes), ..json })
        });
        let sum = all.iter().map(|of| of.bytes).sum();
        let title = format!("{} in strings and code", bytes(sum));
        Found { title, headings: vec!["size", "nodes"], rows_all: all.len(), rows: rows.collect() }
    }

    fn globals(self, all: &[GlobalTotals]) -> Found {
        let rows = all.iter().take(self.rows_max).map(|of| {
            let retained = self.dominators.retained(of.global);
            let cells = vec![bytes(of.bytes), count(of.count), retained.map_or_else(String::new, bytes)];
            let (row, json) = self.row(of.global, cells);
            (row, FindingRowJson { count: Some(of.count), bytes: Some(of.bytes), retained, ..json })
        });
        let title = format!("{} to which nodes belong", counted(all.len() as u64, "global object", "global objects"));
        Found { title, headings: vec!["size", "nodes", "retained"], rows_all: all.len(), rows: rows.collect() }
    }

    fn classes(self, all: &[ClassTotals]) -> Found {
        let rows = all.iter().take(self.rows_max).map(|class| {
            let name = self.graph.text(class.name).to_owned();
            let (_, json) = self.row(class.largest, Vec::new());
            let row = Row::new(names::cut(&name)).note(format!("the largest: @{}", self.graph.id(class.largest).0));
            let row = row.cells([bytes(class.retained), bytes(class.bytes), count(class.count)]);
            let (retained, own) = (Some(class.retained), Some(class.bytes));
            (row, FindingRowJson { name: Some(name), count: Some(class.count), bytes: own, retained, ..json })
        });
        let title = counted(all.len() as u64, "class or type", "classes and types");
        Found { title, headings: vec!["retained", "size", "nodes"], rows_all: all.len(), rows: rows.collect() }
    }

    fn strings(self, all: &[DuplicateString]) -> Found {
        let rows = all.iter().take(self.rows_max).map(|string| {
            let text = self.graph.text(string.text).to_owned();
            let (row, json) = self.row(string.example, vec![bytes(string.wasted), count(string.count)]);
            let (number, sum, wasted) = (Some(string.count), Some(string.bytes), Some(string.wasted));
            (row, FindingRowJson { name: Some(text), count: number, bytes: sum, wasted, ..json })
        });
        let wasted = all.iter().map(|string| string.wasted).sum();
        let title = format!("{} beyond the first of each", bytes(wasted));
        Found { title, headings: vec!["wasted", "strings"], rows_all: all.len(), rows: rows.collect() }
    }

    fn slices(self, all: &[KeptString]) -> Found {
        let rows = all.iter().take(self.rows_max).map(|string| {
            let (row, json) = self.row(string.kept, vec![bytes(string.bytes), count(string.parts)]);
            let row = row.note(format!("kept by {}", names::node(self.graph, string.example)));
            let part = Some(NodeJson::new(self.graph, string.example));
            (row, FindingRowJson { count: Some(string.parts), bytes: Some(string.bytes), part, ..json })
        });
        let sum = all.iter().map(|string| string.bytes).sum();
        let title = format!("{} in strings of which only parts are used", bytes(sum));
        Found { title, headings: vec!["size", "parts"], rows_all: all.len(), rows: rows.collect() }
    }

    fn concatenations(self) -> Found {
        let all = find::concatenations(self.graph, self.dominators);
        let nodes: Vec<NodeIndex> = all.iter().map(|string| string.node).collect();
        let sum = self.dominators.retained_together(&nodes);
        let title = format!("{} in concatenations and their pieces", bytes(sum));
        self.nodes(title, all.len(), all.iter().map(|string| (string.node, Some(string.retained))))
    }

    fn closures(self, all: &[Closures]) -> Found {
        // Each context once: many functions may share one that has many variables.
        let mut known: HashMap<NodeIndex, Vec<Variable>> = HashMap::new();
        let rows = all.iter().take(self.rows_max).map(|closures| {
            let text = |name| self.graph.text(name);
            let (_, json) = self.row(closures.example, Vec::new());
            let function = closures.function.map_or("(anonymous)", text);
            let line = closures.location.map_or_else(String::new, |place| format!(":{}", u64::from(place.line) + 1));
            let file = closures.script_file.map_or_else(String::new, |file| format!("{}{line}", text(file)));
            let cells = [bytes(closures.retained), count(closures.count), count(closures.contexts)];
            let title = format!("{} @{}", names::cut(function), self.graph.id(closures.example).0);
            let row = Row::default().line(title, file).cells(cells);
            let context = closures.example_context;
            let is_first = !known.contains_key(&context);
            let variables = known.entry(context).or_insert_with(|| {
                let mut variables = context_variables(self.graph, self.dominators, context);
                variables.truncate(VARIABLES_JSON_MAX);
                variables
            });
            let shown = variables.iter().take(VARIABLES_MAX).map(|variable| {
                let value = names::node(self.graph, variable.value);
                format!("{} = {value}, {}", text(variable.name), bytes(variable.retained))
            });
            let row = shown.fold(row, |row, variable| row.line("", variable));
            let listed = if is_first { variables.len() } else { 0 };
            let variables = variables.iter().take(listed).map(|variable| VariableJson {
                name: text(variable.name).to_owned(),
                id: self.graph.id(variable.value).0,
                retained: variable.retained,
            });
            let json = FindingRowJson {
                name: closures.function.map(|name| text(name).to_owned()),
                count: Some(closures.count),
                retained: Some(closures.retained),
                contexts: Some(closures.contexts),
                context: Some(self.graph.id(context).0),
                variables: variables.collect(),
                ..json
            };
            (row, json)
        });
        let title = format!("{} whose closures keep contexts", counted(all.len() as u64, "function", "functions"));
        Found { title, headings: vec!["retained", "closures", "contexts"], rows_all: all.len(), rows: rows.collect() }
    }

    fn detached(self, all: &[find::DetachedNode]) -> Found {
        let title = format!("{} that no document contains", counted(all.len() as u64, "DOM node", "DOM nodes"));
        self.nodes(title, all.len(), all.iter().map(|found| (found.node, Some(found.retained))))
    }

    fn unreachable(self) -> Found {
        let mut all = find::unreachable(self.graph);
        all.sort_by_key(|node| std::cmp::Reverse(self.graph.size(*node)));
        let sum = all.iter().map(|node| self.graph.size(*node)).sum();
        let title = format!("{} that nothing retains", bytes(sum));
        self.nodes(title, all.len(), all.iter().map(|node| (*node, self.dominators.retained(*node))))
    }
}
