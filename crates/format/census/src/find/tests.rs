use super::*;
use crate::dominators::Dominators;
use crate::graph::{
    About, CoarseType, Detachedness, EdgeData, EdgeKind, EdgeName, GraphBuilder, Location, NodeData, NodeId, NodeIndex,
    Origin,
};
use crate::random::plain_graph;

/// A node of a hand-made graph.
#[derive(Clone, Default)]
struct Draft {
    type_name: &'static str,
    size: u64,
    coarse_type: CoarseType,
    class: Option<&'static str>,
    label: Option<&'static str>,
    descriptive_name: Option<&'static str>,
    script_file: Option<&'static str>,
    location: Option<Location>,
    detachedness: Detachedness,
    edges: Vec<(u32, &'static str, EdgeKind)>,
}

fn draft(type_name: &'static str, size: u64, edges: &[(u32, &'static str)]) -> Draft {
    let edges = edges.iter().map(|&(target, name)| (target, name, EdgeKind::Internal)).collect();
    Draft { type_name, size, edges, ..Draft::default() }
}

fn built(origin: Origin, drafts: &[Draft]) -> Graph {
    let mut builder = GraphBuilder::new();
    builder.about = About { origin, ..About::default() };
    for (index, draft) in drafts.iter().enumerate() {
        let mut name = |text: Option<&str>| text.map(|text| builder.intern(text).unwrap());
        let type_name = name(Some(draft.type_name)).unwrap();
        let data = NodeData {
            coarse_type: draft.coarse_type,
            class: name(draft.class),
            label: name(draft.label),
            descriptive_name: name(draft.descriptive_name),
            script_file: name(draft.script_file),
            detachedness: draft.detachedness,
            ..NodeData::new(NodeId(index as u64 + 1), type_name, Some(draft.size))
        };
        let node = builder.add_node(data).unwrap();
        if let Some(location) = draft.location {
            builder.set_location(node, location).unwrap();
        }
        for &(target, name, kind) in &draft.edges {
            let name = Some(EdgeName::Name(builder.intern(name).unwrap()));
            builder.add_edge(NodeIndex(target), EdgeData { name, kind }).unwrap();
        }
    }
    builder.finish().unwrap()
}

fn string(label: &'static str, size: u64) -> Draft {
    Draft { coarse_type: CoarseType::String, label: Some(label), ..draft("string", size, &[]) }
}

#[test]
fn the_largest_retainers_come_first_without_the_root() {
    // Sizes are 1, 2, 4, 8, 16; 3 and 4 are held by 1 and 2.
    let graph = plain_graph(&[&[1, 2], &[3], &[4], &[], &[3]]);
    let dominators = Dominators::of(&graph);
    let largest = |count_max| largest_retainers(&graph, &dominators, count_max);
    let [a, b, c, d] = [(2, 20), (4, 16), (3, 8), (1, 2)].map(|(node, retained)| (NodeIndex(node), retained));
    assert_eq!(largest(9), [a, b, c, d]);
    assert_eq!(largest(4), [a, b, c, d]);
    assert_eq!(largest(2), [a, b]);
    assert_eq!(largest(0), []);
}

#[test]
fn a_class_retains_nothing_twice() {
    let of = |class, size, edges: &[(u32, &'static str)]| Draft { class, ..draft("object", size, edges) };
    let graph = built(
        Origin::V8,
        &[
            of(None, 1, &[(1, "a"), (2, "b")]),
            of(Some("List"), 10, &[(3, "next")]),
            of(Some("List"), 20, &[]),
            of(Some("List"), 30, &[(4, "data")]),
            of(Some("Data"), 500, &[]),
        ],
    );
    let totals = class_totals(&graph, &Dominators::of(&graph));
    let rows: Vec<_> = totals
        .iter()
        .map(|it| (graph.text(it.name), it.is_class, it.count, it.bytes, it.retained, it.largest.0))
        .collect();
    let expected = [("object", false, 1, 1, 561, 0), ("List", true, 3, 60, 560, 1), ("Data", true, 1, 500, 500, 4)];
    assert_eq!(rows, expected);
}

#[test]
fn equal_strings_are_duplicates_unless_they_are_composed() {
    let long: &'static str = Box::leak("é".repeat(STRING_UNITS_MAX).into_boxed_str());
    let sliced = Draft { type_name: "sliced string", ..string("a", 7) };
    let graph = built(
        Origin::V8,
        &[
            draft("synthetic", 0, &[]),
            string("a", 16),
            string("a", 24),
            sliced.clone(),
            sliced,
            string("b", 100),
            string("a", 16),
            string(long, 2000),
            string(long, 2000),
            string(long, 3000),
            Draft { label: Some("a"), ..draft("symbol", 5, &[]) },
        ],
    );
    let found = duplicate_strings(&graph).unwrap();
    let rows: Vec<_> = found.iter().map(|it| (it.is_cut, it.count, it.bytes, it.wasted, it.example.0)).collect();
    assert_eq!(rows, [(true, 2, 4000, 2000, 7), (false, 3, 56, 32, 1)]);
    assert_eq!(graph.text(found[1].text), "a");
    let firefox = built(Origin::Firefox, &[draft("JS::ubi::RootList", 1, &[])]);
    assert_eq!(duplicate_strings(&firefox), Err(NotAvailable::StringContents));
}

#[test]
fn only_shorter_texts_are_not_cut() {
    let lengths = [STRING_UNITS_MAX - 1, STRING_UNITS_MAX];
    for (length, is_cut) in lengths.into_iter().zip([false, true]) {
        let text: &'static str = Box::leak("x".repeat(length).into_boxed_str());
        let graph = built(Origin::V8, &[draft("synthetic", 0, &[]), string(text, 1), string(text, 1)]);
        assert_eq!(duplicate_strings(&graph).unwrap()[0].is_cut, is_cut);
    }
}

#[test]
fn strings_are_kept_by_their_parts_if_nothing_else_holds_them() {
    for (origin, edge) in [(Origin::V8, "parent"), (Origin::Firefox, "base")] {
        let part = |of| Draft { edges: vec![(of, edge, EdgeKind::Internal)], ..string("", 24) };
        let graph = built(
            origin,
            &[
                draft("root", 0, &[(4, "held"), (1, "x"), (2, "x"), (3, "x"), (7, "x")]),
                part(5),
                part(5),
                part(4),
                string("", 1000),
                string("", 900),
                string("", 20),
                part(6),
            ],
        );
        let kept: Vec<_> =
            kept_strings(&graph).iter().map(|it| (it.kept.0, it.bytes, it.parts, it.part_bytes)).collect();
        // Node 4 has another holder, and node 6 is smaller than its part.
        assert_eq!(kept, [(5, 900, 2, 48)], "{origin:?}");
        assert_eq!(kept_strings(&graph)[0].example, NodeIndex(1));
    }
}

#[test]
fn a_part_counts_once_even_if_its_edge_is_there_twice() {
    let part =
        Draft { edges: vec![(2, "parent", EdgeKind::Internal), (2, "parent", EdgeKind::Internal)], ..string("", 60) };
    let graph = built(Origin::V8, &[draft("root", 0, &[(1, "x")]), part, string("", 100)]);
    let kept: Vec<_> = kept_strings(&graph).iter().map(|it| (it.kept.0, it.parts, it.part_bytes)).collect();
    assert_eq!(kept, [(2, 1, 60)]);
}

#[test]
fn concatenations_keep_their_pieces() {
    for (origin, [left, right]) in [(Origin::V8, ["first", "second"]), (Origin::Firefox, ["left child", "right child"])]
    {
        let rope = |first, second| Draft {
            edges: vec![(first, left, EdgeKind::Internal), (second, right, EdgeKind::Internal)],
            ..string("", 24)
        };
        // 1 is 2 and 3, and 2 is 4 and 5. 6 is 7 and 7, which the root holds, too.
        let root = draft("root", 0, &[(1, "x"), (6, "y"), (7, "z"), (8, "w")]);
        let mut number = string("", 500);
        number.coarse_type = CoarseType::Other;
        let other = Draft { edges: vec![(9, left, EdgeKind::Internal)], ..string("", 24) };
        let drafts = [
            root,
            rope(2, 3),
            rope(4, 5),
            string("", 100),
            string("", 200),
            string("", 300),
            rope(7, 7),
            string("", 400),
            other,
            number,
        ];
        let graph = built(origin, &drafts);
        let found = concatenations(&graph, &Dominators::of(&graph));
        let rows: Vec<_> = found.iter().map(|it| (it.node.0, it.bytes, it.retained)).collect();
        assert_eq!(rows, [(1, 24, 24 + 24 + 600)], "{origin:?}");
    }
}

#[test]
fn v8_says_which_nodes_are_detached() {
    let dom = |label, detachedness, size| Draft {
        coarse_type: CoarseType::DomNode,
        label: Some(label),
        detachedness,
        ..draft("native", size, &[])
    };
    let [unknown, attached, detached] = Detachedness::ALL;
    let root = draft("synthetic", 0, &[(1, "a"), (2, "b"), (3, "c")]);
    let drafts = [
        root.clone(),
        dom("<div>", detached, 10),
        dom("<p>", attached, 10),
        dom("<span>", detached, 30),
        dom("Node / BindingData", detached, 10),
    ];
    let graph = built(Origin::V8, &drafts);
    let found = detached_dom(&graph, &Dominators::of(&graph)).unwrap();
    assert_eq!(found.iter().map(|it| (it.node.0, it.retained)).collect::<Vec<_>>(), [(3, 30), (1, 10)]);
    let graph = built(Origin::V8, &[root.clone(), dom("<p>", unknown, 1), root.clone(), root]);
    let found = detached_dom(&graph, &Dominators::of(&graph));
    assert_eq!(found, Err(NotAvailable::Detachedness));
    let graph = built(Origin::V8, &[draft("synthetic", 0, &[])]);
    assert_eq!(detached_dom(&graph, &Dominators::of(&graph)), Ok(vec![]));
}

#[test]
fn in_firefox_a_node_is_attached_by_its_parents() {
    let (up, down) = ("Parent Node", "Child Node");
    let dom = |name, edges: &[(u32, &'static str)]| Draft {
        coarse_type: CoarseType::DomNode,
        descriptive_name: Some(name),
        ..draft("nsIContent", 1, edges)
    };
    let graph = built(
        Origin::Firefox,
        &[
            draft("JS::ubi::RootList", 1, &[(1, "a"), (4, "b"), (6, "c"), (8, "d"), (9, "e")]),
            dom("#document", &[(2, down)]),
            // The document is no parent of its own children.
            dom("HTML", &[(3, down)]),
            dom("BODY", &[(2, up)]),
            dom("DIV", &[(5, down)]),
            dom("#text", &[(4, up)]),
            dom("#document-fragment", &[(7, down)]),
            dom("SLOT", &[(6, up)]),
            // A child that its parent does not list, as the browser makes for its own controls.
            dom("INPUT", &[(3, up)]),
            Draft { type_name: "Attr", ..dom("class", &[]) },
            // A cycle, as only a damaged file has.
            dom("A", &[(11, up)]),
            dom("B", &[(10, up)]),
        ],
    );
    let found = detached_dom(&graph, &Dominators::of(&graph)).unwrap();
    let mut nodes: Vec<u32> = found.iter().map(|it| it.node.0).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [4, 5, 10, 11]);
}

#[test]
fn closures_of_one_function_keep_their_contexts_together() {
    let location = Some(Location { script_id: 7, line: 1, column: 2 });
    let closure = |context| Draft {
        label: Some("onEvent"),
        script_file: Some("a.js"),
        location,
        ..draft("closure", 8, &[(context, "context")])
    };
    let context = |size, value| Draft {
        label: Some("system / Context"),
        edges: vec![(0, "previous", EdgeKind::Internal), (value, "payload", EdgeKind::Context)],
        ..draft("object", size, &[])
    };
    let global = Draft { label: Some("system / NativeContext"), ..draft("hidden", 1000, &[]) };
    let root = draft("synthetic", 0, &[(1, "a"), (2, "b"), (3, "c"), (8, "d"), (9, "e")]);
    let drafts = [
        root,
        closure(4),
        closure(4),
        closure(5),
        context(10, 6),
        Draft { label: Some("system / Context / handler"), ..context(20, 7) },
        draft("array", 300, &[]),
        draft("array", 50, &[]),
        closure(10),
        Draft { label: Some(""), location: None, ..closure(4) },
        global,
    ];
    let graph = built(Origin::V8, &drafts);
    let found = closures(&graph, &Dominators::of(&graph)).unwrap();
    assert_eq!(found.len(), 2);
    let first = &found[0];
    assert_eq!((first.count, first.contexts, first.retained), (3, 2, 10 + 300 + 20 + 50));
    assert_eq!((first.function.map(|it| graph.text(it)), first.location), (Some("onEvent"), location));
    assert_eq!((first.example, first.example_context), (NodeIndex(1), NodeIndex(4)));
    let variables = context_variables(&graph, &Dominators::of(&graph), first.example_context);
    let variables: Vec<_> = variables.iter().map(|it| (graph.text(it.name), it.value.0, it.retained)).collect();
    assert_eq!(variables, [("payload", 6, 300)]);
    assert_eq!((found[1].function, found[1].count, found[1].retained), (None, 1, 310));
}

#[test]
fn firefox_has_closures_by_script() {
    let environment = "**UNKNOWN SLOT 1**";
    let of =
        |class, size, edges: &[(u32, &'static str)]| Draft { class: Some(class), ..draft("JSObject", size, edges) };
    let closure = |context| of("Function", 8, &[(context, environment), (9, "JSFunction script")]);
    let drafts = [
        draft("JS::ubi::RootList", 1, &[(1, "a"), (2, "b"), (3, "c")]),
        closure(4),
        closure(5),
        closure(7),
        of("Call", 10, &[(6, "enclosing_environment"), (8, "payload"), (0, "callee_slot")]),
        of("LexicalEnvironment", 20, &[(6, "enclosing_environment")]),
        of("ModuleEnvironmentObject", 99, &[]),
        // The scope of all scripts of a window.
        of("LexicalEnvironment", 1000, &[(0, "enclosing_environment")]),
        of("Array", 300, &[]),
        Draft { script_file: Some("a.js"), ..draft("js::BaseScript", 5, &[]) },
    ];
    let graph = built(Origin::Firefox, &drafts);
    let found = closures(&graph, &Dominators::of(&graph)).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].count, found[0].contexts, found[0].retained), (2, 2, 330));
    assert_eq!(found[0].script_file.map(|it| graph.text(it)), Some("a.js"));
    let variables = context_variables(&graph, &Dominators::of(&graph), found[0].example_context);
    let variables: Vec<_> = variables.iter().map(|it| (graph.text(it.name), it.retained)).collect();
    assert_eq!(variables, [("payload", 300)]);
    assert_eq!(closures(&plain_graph(&[&[]]), &Dominators::of(&plain_graph(&[&[]]))), Err(NotAvailable::Contexts));
}

#[test]
fn unreachable_nodes_are_those_without_a_path_that_retains() {
    let [plain, weak] = [EdgeKind::Plain, EdgeKind::Weak];
    let edges = [vec![(1, plain), (2, weak)], vec![], vec![(3, plain)], vec![(2, plain)], vec![(1, plain)]];
    assert_eq!(unreachable(&crate::random::graph_of(&edges)), [NodeIndex(2), NodeIndex(3), NodeIndex(4)]);
}

/// Returns the global object of each node of a graph, or `None`.
fn globals_of(graph: &Graph) -> Vec<Option<u32>> {
    let globals = Globals::of(graph).unwrap();
    graph.nodes().map(|node| globals.global(node).map(|it| it.0)).collect()
}

#[test]
fn shapes_tell_the_global_object_in_firefox() {
    let graph = built(
        Origin::Firefox,
        &[
            draft("JS::ubi::RootList", 1, &[(1, "a"), (4, "b"), (6, "c")]),
            // Its own property `shape` is no shape.
            draft("JSObject", 10, &[(4, "shape"), (2, "shape"), (5, "Reflected Node")]),
            draft("js::Shape", 20, &[(3, "base")]),
            draft("js::BaseShape", 30, &[(6, "baseshape_global")]),
            draft("JSString", 40, &[]),
            draft("nsINode", 50, &[]),
            draft("JSObject", 60, &[(7, "shape")]),
            // Shapes that are a cycle, as only a damaged file has.
            draft("js::Shape", 70, &[(8, "shape")]),
            draft("js::Shape", 80, &[(7, "shape")]),
        ],
    );
    let window = Some(6);
    assert_eq!(globals_of(&graph), [None, window, window, window, None, window, window, None, None]);
    let globals = Globals::of(&graph).unwrap();
    let totals = globals.totals(&graph);
    assert_eq!(totals, [GlobalTotals { global: NodeIndex(6), count: 5, bytes: 170 }]);
    let of = globals.nodes_of(&[NodeIndex(6)]);
    assert_eq!(graph.nodes().filter(|&node| of.contains(node)).map(|it| it.0).collect::<Vec<_>>(), [1, 2, 3, 5, 6]);
    let none = built(Origin::Firefox, &[draft("JS::ubi::RootList", 1, &[])]);
    assert_eq!(Globals::of(&none).unwrap_err(), NotAvailable::Globals);
}

#[test]
fn maps_and_contexts_tell_the_global_object_in_v8() {
    let of =
        |label, type_name, edges: &[(u32, &'static str)]| Draft { label: Some(label), ..draft(type_name, 1, edges) };
    let graph = built(
        Origin::V8,
        &[
            of("", "synthetic", &[(1, "a"), (7, "b"), (8, "c"), (9, "d"), (10, "e")]),
            of("Leaf", "object", &[(2, "map")]),
            of("system / Map", "object shape", &[(3, "back_pointer"), (11, "map")]),
            of("system / Map", "object shape", &[(4, "constructor"), (11, "map")]),
            of("Leaf", "closure", &[(5, "context")]),
            of("system / Context", "object", &[(6, "previous")]),
            of("system / NativeContext", "hidden", &[(7, "extension")]),
            of("global", "object", &[(2, "map")]),
            of("a text", "string", &[(11, "map")]),
            // A map of newer versions.
            of("system / Map", "object shape", &[(6, "native_context")]),
            of("Other", "object", &[(9, "map")]),
            // The map of all maps.
            of("system / Map", "hidden", &[(11, "map")]),
        ],
    );
    let global = Some(7);
    let expected = [None, global, global, global, global, global, global, global, None, global, global, None];
    assert_eq!(globals_of(&graph), expected);
}

/// Returns the kinds of a graph with their numbers of nodes and bytes.
fn kinds_of(graph: &Graph) -> Vec<(Kind, u64, u64)> {
    let mut found: Vec<_> = kinds(graph).iter().map(|it| (it.kind, it.count, it.bytes)).collect();
    found.sort_unstable();
    found
}

#[test]
fn labels_tell_the_forms_of_code_in_v8() {
    let code = |label, size| Draft { coarse_type: CoarseType::Script, label: Some(label), ..draft("code", size, &[]) };
    let text = |type_name, size| Draft { type_name, ..string("a", size) };
    let graph = built(
        Origin::V8,
        &[
            // The root is no code, whatever its edges are called.
            draft("synthetic", 1, &[(2, "source")]),
            Draft { edges: vec![(3, "source", EdgeKind::Internal)], ..code("a.js", 10) },
            text("string", 20),
            text("string", 30),
            text("concatenated string", 40),
            text("sliced string", 50),
            code("system / BytecodeArray", 60),
            code("(constant pool)", 1),
            code("system / Code / x", 70),
            code("(BASELINE code)", 1),
            code("(code for f)", 1),
            code("system / FeedbackVector", 80),
            code("system / ScopeInfo", 90),
            // An object of that name is no code.
            Draft { label: Some("system / Code"), ..draft("object", 1000, &[]) },
        ],
    );
    let expected = [
        (Kind::Flat, 1, 20),
        (Kind::Concatenated, 1, 40),
        (Kind::Part, 1, 50),
        (Kind::Source, 1, 30),
        (Kind::Bytecode, 2, 61),
        (Kind::MachineCode, 3, 72),
        (Kind::InlineCaches, 1, 80),
        (Kind::Descriptions, 2, 100),
    ];
    assert_eq!(kinds_of(&graph), expected);
}

#[test]
fn edges_tell_the_kinds_of_strings_in_firefox() {
    let text = |edges: &[(u32, &'static str)], size| Draft {
        edges: edges.iter().map(|&(target, name)| (target, name, EdgeKind::Plain)).collect(),
        ..string("", size)
    };
    let script = |type_name, size, edges: &[(u32, &'static str)]| Draft {
        coarse_type: CoarseType::Script,
        ..draft(type_name, size, edges)
    };
    let graph = built(
        Origin::Firefox,
        &[
            draft("JS::ubi::RootList", 1, &[]),
            text(&[(2, "left child"), (3, "right child")], 10),
            text(&[], 20),
            text(&[(2, "base")], 30),
            script("js::BaseScript", 40, &[(5, "baseline-ic-stub-code"), (7, "sourceObject")]),
            script("js::jit::JitCode", 50, &[]),
            script("js::jit::JitCode", 60, &[]),
            Draft { class: Some("ScriptSource"), ..draft("JSObject", 70, &[]) },
            script("js::Scope", 80, &[]),
        ],
    );
    let expected = [
        (Kind::Flat, 1, 20),
        (Kind::Concatenated, 1, 10),
        (Kind::Part, 1, 30),
        (Kind::Source, 1, 70),
        (Kind::Bytecode, 1, 40),
        (Kind::MachineCode, 1, 60),
        (Kind::InlineCaches, 1, 50),
        (Kind::Descriptions, 1, 80),
    ];
    assert_eq!(kinds_of(&graph), expected);
}
