//! Identical code folding: compilers and linkers merge functions that differ in a type only. The
//! debug information of the remaining function has the type of that one, but the functions inlined
//! into its callers have the right type.
//!
//! A container's function has two kinds of callers. Functions of the same container call it for the
//! same elements: their types count. Functions that make an object call its constructor, and tell
//! the class of the object. If a container is within another one, all callers farther out are the
//! outer one's, and tell nothing about the inner one.

use super::{Frame, is_asked, is_node};
use crate::cxx_name::{Segment, Type};

/// The maximum nesting of containers that are examined.
const NESTING_MAX: usize = 8;

/// The type that an allocator is asked for, according to the stack.
pub(super) struct RequestedType {
    pub(super) of: Type,
    /// True if no function on the way could be another one with the same code.
    pub(super) is_certain: bool,
}

/// Containers that are built from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContainerKind {
    Vector,
    Deque,
    Text,
    List,
    ForwardList,
    Tree,
    Hash,
    Shared,
}

/// Returns the type that the allocator of the first frame is asked for, by its name and those of
/// its callers.
pub(super) fn requested_type(named: Type, frames: &[Frame<'_>]) -> RequestedType {
    // Functions of allocators call each other for the same type only.
    let std = frames.iter().take_while(|frame| frame.is_in_std()).count();
    let asked =
        frames[..std].iter().take(8).enumerate().filter_map(|(at, frame)| Some((at, is_asked(frame)?))).next_back();
    let (mut at, mut of) = asked.unwrap_or((0, named));
    let is_optimised = frames[..frames.len().min(std + 1)].iter().any(|frame| frame.frame.inlined);
    let mut is_alone = true;
    loop {
        let place = frames[at].place;
        let Some(next) = frames.iter().position(|frame| frame.place > place) else {
            return RequestedType { of, is_certain: is_alone && !is_optimised };
        };
        let physical = &frames[next - 1];
        // The two symbols of a constructor have the same spelling.
        is_alone &= physical.frame.aliases.windows(2).all(|pair| pair[0] == pair[1]);
        if !is_generic(physical) {
            return RequestedType { of, is_certain: is_alone };
        }
        // There is only one string of characters.
        if holds(physical).is_some_and(|(kind, _)| kind == ContainerKind::Text) {
            return RequestedType { of, is_certain: true };
        }
        let caller = Some(&frames[next]).filter(|caller| caller.is_in_std());
        let said = caller.and_then(|caller| said_by(caller, physical, &of));
        let Some(of_caller) = said.or_else(|| mentions(caller?, &of).then(|| of.clone())) else {
            return RequestedType { of, is_certain: is_alone && !is_optimised };
        };
        // The function has been called for this type, whatever else has the same code.
        is_alone = true;
        (at, of) = (next, of_caller);
    }
}

/// True if what a library function works on is of this type, or contains nothing else.
fn mentions(frame: &Frame<'_>, of: &Type) -> bool {
    let of = if is_node(of) { of.path.last().and_then(|node| node.arguments.as_ref()?.first()) } else { Some(of) };
    let Some(of) = of else { return false };
    let mut segments = frame.path.0.iter().rev().take(2);
    segments.any(|segment| {
        let mut next = held_by(segment).map(|(_, held)| held);
        next = next.or_else(|| segment.arguments.as_ref()?.first().cloned());
        for _ in 0..NESTING_MAX {
            let Some(at) = &next else { return false };
            if at == of || of.pointee().as_ref() == Some(at) {
                return true;
            }
            next = at.pointee().or_else(|| {
                let class = at.path.last()?;
                let held = held_by(class).map(|(_, held)| held);
                held.or_else(|| {
                    class.arguments.as_ref().filter(|_| class.name == "__normal_iterator")?.first().cloned()
                })
            });
        }
        false
    })
}

/// True if a function is a container's. Shared pointers make their objects themselves.
pub(super) fn is_of_container(frame: &Frame<'_>) -> bool {
    holds(frame).is_some_and(|(kind, _)| kind != ContainerKind::Shared)
}

/// True if the function may have instances for other types.
fn is_generic(frame: &Frame<'_>) -> bool {
    frame.path.0.iter().any(|segment| segment.arguments.is_some())
}

/// Returns the type that a container's function is asked for according to its caller; `None` if
/// that does not tell.
fn said_by(caller: &Frame<'_>, callee: &Frame<'_>, of: &Type) -> Option<Type> {
    let (kind, held) = holds(callee)?;
    let held_by_caller = match made(caller) {
        Some(object) => {
            let class = callee.class()?;
            let is_constructor = callee.function() == class.name;
            let (made_kind, held) = is_constructor.then(|| held_by(object.path.last()?)).flatten()?;
            (made_kind == kind).then_some(held)
        }
        None => holds(caller).filter(|(other, _)| *other == kind).map(|(_, held)| held),
    }?;
    if held_by_caller == held {
        return Some(of.clone());
    }
    with(of, &held, &held_by_caller)
}

/// Returns the type with the caller's element in place of the callee's: `_List_node<A>` with `B`.
fn with(of: &Type, held: &Type, other: &Type) -> Option<Type> {
    if of == held {
        return Some(other.clone());
    }
    if of.pointee().as_ref() == Some(held) {
        return Type::parse(&format!("{}*", other.full()));
    }
    let mut node = of.clone();
    let arguments = node.path.0.last_mut().filter(|_| is_node(of))?.arguments.as_mut()?;
    let first = arguments.first_mut().filter(|first| *first == held)?;
    *first = other.clone();
    Some(node)
}

/// Returns the class of the object that a library function constructs at a given address.
fn made<'f>(frame: &'f Frame<'_>) -> Option<&'f Type> {
    let makes =
        matches!(frame.function(), "_Construct" | "construct_at" | "construct" | "_S_construct" | "__construct");
    frame.path.last().filter(|_| makes)?.arguments.as_ref()?.first()
}

/// Returns the container of a function, and its element type.
fn holds(frame: &Frame<'_>) -> Option<(ContainerKind, Type)> {
    let (function, around) = frame.path.0.split_last()?;
    if matches!(&*function.name, "make_shared" | "allocate_shared") {
        return Some((ContainerKind::Shared, function.arguments.as_ref()?.first()?.clone()));
    }
    if function.name == "__shared_count" {
        return Some((ContainerKind::Shared, function.arguments.as_ref()?.first()?.clone()));
    }
    around.iter().rev().find_map(held_by)
}

fn held_by(class: &Segment) -> Option<(ContainerKind, Type)> {
    let argument = |at: usize| class.arguments.as_ref()?.get(at);
    let first = |kind| Some((kind, argument(0)?.clone()));
    let pair = |kind| {
        let (key, value) = (argument(0)?, argument(1)?);
        Some((kind, Type::parse(&format!("std::pair<{} const, {}>", key.full(), value.full()))?))
    };
    match &*class.name {
        "vector" | "_Vector_base" | "_Vector_impl" | "__vector_base" | "__split_buffer" => first(ContainerKind::Vector),
        "deque" | "_Deque_base" | "__deque_base" => first(ContainerKind::Deque),
        "basic_string" => first(ContainerKind::Text),
        "list" | "_List_base" | "__list_imp" => first(ContainerKind::List),
        "forward_list" | "_Fwd_list_base" => first(ContainerKind::ForwardList),
        "set" | "multiset" => first(ContainerKind::Tree),
        "map" | "multimap" => pair(ContainerKind::Tree),
        "_Rb_tree" => Some((ContainerKind::Tree, argument(1)?.clone())),
        "unordered_set" | "unordered_multiset" => first(ContainerKind::Hash),
        "unordered_map" | "unordered_multimap" => pair(ContainerKind::Hash),
        "_Hashtable" | "_Map_base" | "_Insert" | "_Insert_base" => Some((ContainerKind::Hash, argument(1)?.clone())),
        "shared_ptr" | "__shared_ptr" => first(ContainerKind::Shared),
        _ => None,
    }
}
