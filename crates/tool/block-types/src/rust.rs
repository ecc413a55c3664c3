//! Rust: type arguments of the functions of std.
//!
//! Below the code that asks for a `Vec`, there are only functions of std, most of them inlined, and
//! each has the types in its name: `Vec<Token>::push`, `RawVec<Token>::grow_one`. The innermost
//! function with a type tells the type of the block, the outermost one tells what the program
//! called. There are two difficulties. Functions with the same code are merged, so the physical
//! function may be that of another type; then the functions inlined into its caller are right. And
//! a container that is inside another one must not be taken for it.

mod allocated;
pub(crate) mod name;
pub(crate) mod parsed;
mod size;
mod view;

use std::sync::Arc;

use self::allocated::{Shape, Sliced, allocates};
use self::name::Type;
use self::parsed::{Details, View, is_allocator};
use crate::frame::{Lazy, TypedFrame};
use crate::language::Language;
use crate::places::Places;
use crate::site_type::{Confidence, Evidence, SiteType, SizeCheck};
use crate::sizes::SiteSizes;
use crate::type_name::TypeName;

/// A frame's evidence for what it allocates.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    shape: Shape,
    of: Type,
    size: Option<u64>,
    /// The place of the frame, and its position there.
    place: usize,
    frame: usize,
}

/// Returns the type of the blocks that a stack allocates if its innermost function, apart from
/// allocators, is Rust.
pub(crate) fn site_type(places: Places<'_>, sizes: SiteSizes) -> SiteType {
    let Some(first) = first(places) else { return SiteType::unknown() };
    let decided = decide(places, first.clone());
    let mut chosen = decided.unwrap_or_else(|| first.clone());
    let mut check = check(&chosen, sizes);
    // The candidate that was overridden may still be the right one.
    if matches!(check, SizeCheck::Inconsistent(_))
        && chosen != first
        && self::check(&first, sizes) == SizeCheck::Consistent
    {
        (chosen, check) = (first.clone(), SizeCheck::Consistent);
    }
    let frames = &places[chosen.place];
    let others = alternatives(frames, &chosen);
    let sure = is_sure(frames, &chosen);
    let confidence = match &check {
        SizeCheck::Inconsistent(_) => Confidence::Ambiguous,
        _ if sure => Confidence::Exact,
        _ if !others.is_empty() => Confidence::Ambiguous,
        SizeCheck::Consistent => Confidence::SizeConsistent,
        SizeCheck::NotPossible => Confidence::Probable,
    };
    let element = chosen.of.name();
    let block = chosen.block();
    let candidates = match confidence {
        Confidence::Ambiguous => {
            let mut all = vec![block.clone()];
            all.extend(others.into_iter().map(|of| Candidate { of, ..chosen.clone() }.block()));
            all
        }
        _ => Vec::new(),
    };
    SiteType {
        element: (element != block).then_some(element),
        block: Some(block),
        container: container(places, &chosen),
        confidence,
        evidence: evidence(&frames[chosen.frame]),
        candidates,
        size: chosen.size.or_else(|| size::of(&chosen.of)),
        size_check: check,
        module: Some(chosen.place),
    }
}

impl Candidate {
    fn block(&self) -> TypeName {
        let name = self.of.name();
        let around = |full: &str, short: &str, inner: &TypeName| {
            TypeName::spelled(&format!("{full}<{}>", inner.full()), &format!("{short}<{}>", inner.short()))
        };
        match self.shape {
            Shape::One => name,
            Shape::Buffer | Shape::Headed => name.buffer(),
            Shape::Table => around("hashbrown::raw::RawTable", "RawTable", &name),
            Shape::Counted(full, Sliced::Yes) => around(full, last(full), &name.buffer()),
            Shape::Counted(full, Sliced::No) => around(full, last(full), &name),
        }
    }
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Returns the first frame that tells what it allocates, before any frame that is not a library's:
/// code that asks for memory itself does not tell for what type.
fn first(places: Places<'_>) -> Option<Candidate> {
    // Functions before the one that the language calls are the program's own allocator.
    let asked = places.iter().position(|frames| frames.iter().any(is_entry)).unwrap_or(0);
    for (place, frames) in places.iter().enumerate().skip(asked) {
        let found = first_in(place, frames);
        if found.is_some() || !frames[entry(frames)..].iter().all(is_library) {
            return found;
        }
    }
    None
}

/// Returns the position, in a place, of the function that asks the allocator: functions inlined
/// before it are the allocator's.
fn entry(frames: &[TypedFrame]) -> usize {
    frames.iter().position(is_entry).unwrap_or(0)
}

/// Returns the first such frame of one place.
fn first_in(place: usize, frames: &[TypedFrame]) -> Option<Candidate> {
    let mut library = frames.iter().enumerate().skip(entry(frames)).take_while(|(_, frame)| is_library(frame));
    library.find_map(|(at, frame)| {
        let view = frame.view().filter(|_| !frame.is_allocator())?;
        let (mut shape, mut of, mut size) = allocates(view, frame)?;
        let caller = frames.get(at + 1);
        if caller.is_some_and(|caller| !is_library(caller))
            && let Some(element) = begins_vec(view, frame, &of)
        {
            (shape, size, of) = (Shape::Buffer, size::of(element), element.clone());
        }
        Some(Candidate { shape, of, size, place, frame: at })
    })
}

/// True for the functions through which Rust calls any allocator.
pub(crate) fn is_entry(frame: &TypedFrame) -> bool {
    const PREFIXES: [&str; 7] = [
        "alloc::alloc::",
        "<alloc::alloc::Global",
        "__rustc::__r",
        "__rust_",
        "__rg_",
        "alloc::raw_vec::RawVecInner",
        "<alloc::raw_vec::RawVecInner",
    ];
    PREFIXES.iter().any(|prefix| frame.name.starts_with(prefix))
}

/// True for Rust functions that allocate for themselves.
pub(crate) fn asks(frame: &TypedFrame) -> bool {
    frame.language == Language::Rust && !is_library(frame)
}

/// True for functions that allocate for their caller.
fn is_library(frame: &TypedFrame) -> bool {
    frame.is_allocator() || frame.view().is_some_and(|view| view.library)
}

/// Returns the element of a vector that is written out: `vec![a, b]` in a program begins with a box
/// of an array.
fn begins_vec<'t>(view: &View, frame: &TypedFrame, of: &'t Type) -> Option<&'t Type> {
    let begins = || view.is_in("alloc::boxed") && view.details(frame).function == "new_uninit";
    match of {
        Type::Slice(element, Some(_)) if begins() => Some(element),
        _ => None,
    }
}

/// Chooses the caller's type if the physical function may have been merged with that of another
/// type.
fn decide(places: Places<'_>, first: Candidate) -> Option<Candidate> {
    let mut chosen = None;
    let mut current = first;
    loop {
        let next = current.place + 1;
        let physical = places[current.place].last().and_then(TypedFrame::view).filter(|physical| physical.library);
        let caller = places.get(next).and_then(|frames| first_in(next, frames));
        let (Some(physical), Some(caller)) = (physical, caller) else { return chosen };
        // If the physical function is for another type, the block is inside it, as its elements.
        let is_inside = || {
            let frame = places[current.place].last()?;
            allocates(frame.view()?, frame).map(|(_, of, _)| of != current.of)
        };
        if is_inside() == Some(true) {
            return chosen;
        }
        // Only the container for which the physical function was called: called by the innermost
        // function there. A container of such containers does not count.
        let direct = caller.frame == 0 && caller.shape.group() == current.shape.group();
        let same_container = physical.is_in("alloc::raw_vec") || physical.is_in("hashbrown::raw");
        let elementwise = || places[current.place].last().is_some_and(|frame| is_elementwise(physical.details(frame)));
        if !direct || !same_container && elementwise() {
            return chosen;
        }
        let caller = Candidate { shape: current.shape, ..caller };
        chosen = Some(caller.clone());
        current = caller;
    }
}

/// True for functions that treat each element of a container, which may be a container itself: the
/// element of the caller is then the whole container of the callee.
fn is_elementwise(details: &Details) -> bool {
    ["clone", "clone_from", "to_vec", "to_vec_in", "to_owned", "default", "from"].contains(&&*details.function)
}

/// True if no other type could have the same code: the evidence is inlined into a function that has
/// no type arguments, and that has its address for itself.
fn is_sure(frames: &[TypedFrame], chosen: &Candidate) -> bool {
    let physical = frames.last();
    let alone = physical.is_some_and(|physical| physical.aliases.len() <= 1);
    let generic = |frame: &TypedFrame| frame.view().is_none_or(|view| view.library || view.details(frame).generic);
    let generic = physical.is_none_or(generic);
    let frame = &frames[chosen.frame];
    if chosen.shape == Shape::Buffer && frame.view().is_some_and(|view| view.details(frame).function == "new_uninit") {
        return false;
    }
    let bytes = chosen.of.path() == "u8" && chosen.shape == Shape::Buffer;
    // Strings consist of bytes in any case.
    let named =
        frames[chosen.frame].view().is_some_and(|view| !view.is_in("alloc::raw_vec") && !view.is_in("alloc::vec"));
    alone && (chosen.frame + 1 < frames.len() && !generic || bytes && named)
}

/// Returns the other types for which there are functions at the same address.
fn alternatives(frames: &[TypedFrame], chosen: &Candidate) -> Vec<Type> {
    let Some(physical) = frames.last() else { return Vec::new() };
    let mut others: Vec<Type> = Vec::new();
    for alias in physical.aliases.iter() {
        let symbol = TypedFrame { name: alias.clone(), plain: None, view: Lazy::default(), ..physical.clone() };
        let view = View::new(&symbol);
        if let Some((_, of, _)) = allocates(&view, &symbol)
            && of != chosen.of
            && !others.contains(&of)
        {
            others.push(of);
        }
    }
    others
}

fn check(chosen: &Candidate, sizes: SiteSizes) -> SizeCheck {
    let Some(size) = chosen.size.or_else(|| size::of(&chosen.of)) else { return SizeCheck::NotPossible };
    let fits = match chosen.shape {
        Shape::One => sizes.are(size),
        Shape::Buffer => sizes.are_several(size, 0),
        Shape::Headed => sizes.are_several(size, size::HEADER),
        Shape::Counted(_, sliced) => size::counted(size, sliced == Sliced::Yes, sizes),
        Shape::Table => size::table(size, sizes),
    };
    match fits {
        Some(true) => SizeCheck::Consistent,
        Some(false) => {
            let name = chosen.of.name();
            SizeCheck::Inconsistent(format!("{}, but {} has {size}", sizes.in_words(), name.short()).into())
        }
        None => SizeCheck::NotPossible,
    }
}

/// Returns what the program called: the outermost function of the libraries around the allocation.
fn container(places: Places<'_>, chosen: &Candidate) -> Option<Arc<str>> {
    let inner = places.iter().enumerate().skip(chosen.place);
    let inner = inner.flat_map(|(place, frames)| frames.iter().map(move |frame| (place, frame)));
    let views = inner.skip(chosen.frame).map_while(|(place, frame)| {
        let view = frame.view()?;
        (view.library || frame.is_allocator()).then_some((place, frame, view))
    });
    // From the outside, because parsing names takes time.
    let views: Vec<_> = views.collect();
    views.into_iter().rev().find_map(|(_, frame, view)| called(view, frame)).map(Into::into)
}

/// Returns a name such as `HashMap<K, V>::insert`.
fn called(view: &View, frame: &TypedFrame) -> Option<String> {
    /// Modules, the types that they define, and the number of type arguments that are shown.
    const CONTAINERS: [(&str, &str, usize); 26] = [
        ("std::collections::hash::map", "HashMap", 2),
        ("std::collections::hash::set", "HashSet", 1),
        ("hashbrown::map", "HashMap", 2),
        ("hashbrown::set", "HashSet", 1),
        ("alloc::collections::btree::map", "BTreeMap", 2),
        ("alloc::collections::btree::set", "BTreeSet", 1),
        ("alloc::collections::vec_deque", "VecDeque", 1),
        ("alloc::collections::binary_heap", "BinaryHeap", 1),
        ("alloc::collections::linked_list", "LinkedList", 1),
        ("alloc::vec", "Vec", 1),
        ("alloc::boxed", "Box", 1),
        ("alloc::sync", "Arc", 1),
        ("alloc::rc", "Rc", 1),
        ("alloc::string", "String", 0),
        ("alloc::ffi::c_str", "CString", 0),
        ("std::path", "PathBuf", 0),
        ("std::ffi::os_str", "OsString", 0),
        ("indexmap::map", "IndexMap", 2),
        ("indexmap::set", "IndexSet", 1),
        ("smallvec", "SmallVec", 1),
        ("std::sync::mpsc", "mpsc", 0),
        ("bytes::bytes_mut", "BytesMut", 0),
        ("thin_vec", "ThinVec", 1),
        ("bumpalo", "Bump", 0),
        ("crossbeam_channel", "channel", 0),
        ("tokio::sync::mpsc", "mpsc", 0),
    ];
    let &(_, name, count) = CONTAINERS.iter().find(|(module, ..)| view.is_in(module))?;
    let details = view.details(frame);
    let shown: Vec<String> = match &details.own {
        Some(own) if own.last().is_some_and(|last| last.name == name) => {
            own.arguments().iter().take(count).map(|argument| argument.spelled(false)).collect()
        }
        _ => {
            let all = details.arguments.iter().filter(|argument| !is_allocator(&argument.of));
            all.take(count).map(|argument| argument.of.spelled(false)).collect()
        }
    };
    let arguments = if shown.is_empty() { String::new() } else { format!("<{}>", shown.join(", ")) };
    Some(format!("{name}{arguments}::{}", details.function))
}

fn evidence(frame: &TypedFrame) -> Evidence {
    let name: Arc<str> =
        frame.view().and_then(|view| called(view, frame)).map_or_else(|| frame.name.clone(), Into::into);
    match (frame.inlined, frame.plain.is_some()) {
        (true, _) => Evidence::Inlined(name),
        (false, true) => Evidence::Function(name),
        (false, false) => Evidence::SymbolName(name),
    }
}
