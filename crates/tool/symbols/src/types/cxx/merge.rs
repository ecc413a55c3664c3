//! Functions with the same code: compilers and linkers merge those that differ in a type only. The
//! debug information of the one that is left has its own type, but what is inlined into its callers
//! is theirs.
//!
//! The callers of a container's function are of two kinds. Functions of the same container call it
//! for the same elements: what they say counts. Functions that make an object call its constructor,
//! and say of which class the object is. Of a container within another one, all callers farther out
//! are the outer one's, and say nothing about the inner one.

use super::super::cxx_name::{Segment, Type};
use super::{Frame, is_asked, is_node};

/// Containers within containers that are looked into.
const NESTING_MAX: usize = 8;

/// What a stack says that an allocator is asked for.
pub(super) struct Told {
    pub(super) of: Type,
    /// Whether no function on the way could be another one with the same code.
    pub(super) is_certain: bool,
}

/// Containers that are made of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Vector,
    Deque,
    Text,
    List,
    ForwardList,
    Tree,
    Hash,
    Shared,
}

/// What the allocator that the first frame is of is asked for, by its name and those of its
/// callers.
pub(super) fn told(named: Type, frames: &[Frame<'_>]) -> Told {
    // The functions of allocators call each other for the same type, and no others.
    let std = frames.iter().take_while(|frame| frame.is_in_std()).count();
    let asked =
        frames[..std].iter().take(8).enumerate().filter_map(|(at, frame)| Some((at, is_asked(frame)?))).next_back();
    let (mut at, mut of) = asked.unwrap_or((0, named));
    let is_optimised = frames[..frames.len().min(std + 1)].iter().any(|frame| frame.frame.inlined);
    let mut is_alone = true;
    loop {
        let place = frames[at].place;
        let Some(next) = frames.iter().position(|frame| frame.place > place) else {
            return Told { of, is_certain: is_alone && !is_optimised };
        };
        let physical = &frames[next - 1];
        // The two names of a constructor are spelled the same.
        is_alone &= physical.frame.aliases.windows(2).all(|pair| pair[0] == pair[1]);
        if !is_generic(physical) {
            return Told { of, is_certain: is_alone };
        }
        // There is but one string of characters.
        if holds(physical).is_some_and(|(family, _)| family == Family::Text) {
            return Told { of, is_certain: true };
        }
        let caller = Some(&frames[next]).filter(|caller| caller.is_in_std());
        let said = caller.and_then(|caller| said_by(caller, physical, &of));
        let Some(of_caller) = said.or_else(|| mentions(caller?, &of).then(|| of.clone())) else {
            return Told { of, is_certain: is_alone && !is_optimised };
        };
        // It has been called for this type, whatever else has the same code.
        is_alone = true;
        (at, of) = (next, of_caller);
    }
}

/// True if what a function of the library works on is of this type, or has nothing else in it.
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

/// True if a function is a container's. Shared pointers make what they hold.
pub(super) fn is_of_container(frame: &Frame<'_>) -> bool {
    holds(frame).is_some_and(|(family, _)| family != Family::Shared)
}

/// True if there may be others like this one, for other types.
fn is_generic(frame: &Frame<'_>) -> bool {
    frame.path.0.iter().any(|segment| segment.arguments.is_some())
}

/// What the caller of a container's function says that this is asked for; `None`: nothing.
fn said_by(caller: &Frame<'_>, callee: &Frame<'_>, of: &Type) -> Option<Type> {
    let (family, held) = holds(callee)?;
    let held_by_caller = match made(caller) {
        Some(object) => {
            let class = callee.class()?;
            let is_constructor = callee.function() == class.name;
            let (made_family, held) = is_constructor.then(|| held_by(object.path.last()?)).flatten()?;
            (made_family == family).then_some(held)
        }
        None => holds(caller).filter(|(other, _)| *other == family).map(|(_, held)| held),
    }?;
    if held_by_caller == held {
        return Some(of.clone());
    }
    with(of, &held, &held_by_caller)
}

/// The same type with what the caller holds in the place of what the callee does: `_List_node<A>`
/// with `B`.
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

/// The class of the object that a function of the library makes at a place that it is given.
fn made<'f>(frame: &'f Frame<'_>) -> Option<&'f Type> {
    let makes =
        matches!(frame.function(), "_Construct" | "construct_at" | "construct" | "_S_construct" | "__construct");
    frame.path.last().filter(|_| makes)?.arguments.as_ref()?.first()
}

/// The container that a function is of, and what that holds.
fn holds(frame: &Frame<'_>) -> Option<(Family, Type)> {
    let (function, around) = frame.path.0.split_last()?;
    if matches!(&*function.name, "make_shared" | "allocate_shared") {
        return Some((Family::Shared, function.arguments.as_ref()?.first()?.clone()));
    }
    if function.name == "__shared_count" {
        return Some((Family::Shared, function.arguments.as_ref()?.first()?.clone()));
    }
    around.iter().rev().find_map(held_by)
}

fn held_by(class: &Segment) -> Option<(Family, Type)> {
    let argument = |at: usize| class.arguments.as_ref()?.get(at);
    let first = |family| Some((family, argument(0)?.clone()));
    let pair = |family| {
        let (key, value) = (argument(0)?, argument(1)?);
        Some((family, Type::parse(&format!("std::pair<{} const, {}>", key.full(), value.full()))?))
    };
    match &*class.name {
        "vector" | "_Vector_base" | "_Vector_impl" | "__vector_base" | "__split_buffer" => first(Family::Vector),
        "deque" | "_Deque_base" | "__deque_base" => first(Family::Deque),
        "basic_string" => first(Family::Text),
        "list" | "_List_base" | "__list_imp" => first(Family::List),
        "forward_list" | "_Fwd_list_base" => first(Family::ForwardList),
        "set" | "multiset" => first(Family::Tree),
        "map" | "multimap" => pair(Family::Tree),
        "_Rb_tree" => Some((Family::Tree, argument(1)?.clone())),
        "unordered_set" | "unordered_multiset" => first(Family::Hash),
        "unordered_map" | "unordered_multimap" => pair(Family::Hash),
        "_Hashtable" | "_Map_base" | "_Insert" | "_Insert_base" => Some((Family::Hash, argument(1)?.clone())),
        "shared_ptr" | "__shared_ptr" => first(Family::Shared),
        _ => None,
    }
}
