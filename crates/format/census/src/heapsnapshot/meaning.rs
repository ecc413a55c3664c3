//! The meaning of V8's types and names in the words of the graph.

use crate::graph::CoarseType;

/// The class of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It is not an object.
    None,
    /// The node's name is the name of its constructor.
    Name,
    /// The class that all nodes of the type have.
    Fixed(&'static str),
}

/// Returns the coarse type and the class of a type. For `native` nodes the name decides.
pub(super) fn of_type(type_name: &str) -> (CoarseType, Class) {
    match type_name {
        "object" => (CoarseType::Object, Class::Name),
        "closure" => (CoarseType::Object, Class::Fixed("Function")),
        "regexp" => (CoarseType::Object, Class::Fixed("RegExp")),
        "string" | "concatenated string" | "sliced string" => (CoarseType::String, Class::None),
        "code" => (CoarseType::Script, Class::None),
        _ => (CoarseType::Other, Class::None),
    }
}

/// The prefix by which versions without a field for it name DOM nodes that are detached.
pub(super) const DETACHED: &str = "Detached ";

/// Returns true if a `native` node of this name, without [`DETACHED`], is a node of the DOM. Since
/// 2023 Chromium writes elements as tags, before by their interfaces.
pub(super) fn is_dom_node(name: &str) -> bool {
    const INTERFACES: [&str; 12] = [
        "Attr",
        "CDATASection",
        "Comment",
        "Document",
        "DocumentFragment",
        "DocumentType",
        "HTMLDocument",
        "ProcessingInstruction",
        "SVGDocument",
        "ShadowRoot",
        "Text",
        "XMLDocument",
    ];
    let is_tag = name.starts_with('<') && name.ends_with('>');
    let is_element = ["HTML", "SVG", "MathML"].iter().any(|it| name.starts_with(it)) && name.ends_with("Element");
    is_tag || is_element || matches!(name, "#text" | "#document" | "#comment") || INTERFACES.contains(&name)
}

/// Returns the id of the table in the name of an edge from the table of a `WeakMap`, or from a key,
/// to a value, such as `3 / part of key (A @11) -> value (B @13) pair in WeakMap (table @15)`.
pub(super) fn weak_map_table(edge_name: &str) -> Option<u64> {
    // Most strings are other names: they are told by their ends.
    let named = edge_name.strip_suffix(')').filter(|it| it.starts_with(|it: char| it.is_ascii_digit()))?;
    let (number, rest) = named.split_once(" / part of key (")?;
    let (_, table) = rest.rsplit_once(") pair in WeakMap (table @")?;
    if number.is_empty() || !number.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    table.bytes().all(|it| it.is_ascii_digit()).then(|| table.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_weak_maps_have_a_table() {
        let table = |name: &str| weak_map_table(name);
        assert_eq!(table("3 / part of key (A @11) -> value (B) @13) pair in WeakMap (table @15))"), None);
        assert_eq!(table("3 / part of key (A @11) -> value (B @13) pair in WeakMap (table @15)"), Some(15));
        assert_eq!(table("x / part of key (A @11) -> value (B @13) pair in WeakMap (table @15)"), None);
        assert_eq!(table("3 / part of key (A @11) -> value (B @13) pair in WeakMap (table @+5)"), None);
        assert_eq!(table("weak_map"), None);
    }

    #[test]
    fn dom_nodes_are_known_in_all_versions() {
        for name in ["HTMLDivElement", "SVGPathElement", "<div id=\"a\">", "Text", "#document"] {
            assert!(is_dom_node(name), "{name}");
        }
        for name in ["HTMLCollection", "system / JSArrayBufferData", "Window", "Element", "", "Node / BindingData"] {
            assert!(!is_dom_node(name), "{name}");
        }
    }
}
