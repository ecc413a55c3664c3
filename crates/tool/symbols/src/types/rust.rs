//! Rust: type arguments of the functions of std.
//!
//! Below the code that asks for a `Vec`, there are only functions of std, most of them inlined, and
//! each has the types in its name: `Vec<Token>::push`, `RawVec<Token>::grow_one`. The innermost
//! function with a type tells the type of the block, the outermost one tells what the program
//! called. There are two difficulties. Functions with the same code are merged, so the physical
//! function may be that of another type; then the functions inlined into its caller are right. And
//! a container that is inside another one must not be taken for it.

mod name;
mod size;
mod view;

use std::sync::Arc;

pub(crate) use name::{Type, arguments};
pub(crate) use view::View;
use view::{Details, is_allocator};

use super::{Confidence, Evidence, Language, Places, SiteSizes, SiteType, SizeCheck, TypeName, TypedFrame};

/// The way in which an allocation consists of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A single value: `Box`, and all nodes.
    One,
    /// Several values: `Vec`, `VecDeque`, strings.
    Buffer,
    /// Several values behind a length and a capacity.
    Headed,
    /// One value or a slice behind two counters, as in `Arc` and `Rc`, with the name of the counted
    /// struct.
    Counted(&'static str, Sliced),
    /// A hash table of values.
    Table,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sliced {
    Yes,
    No,
}

impl Shape {
    /// Returns a number that two shapes share if one may be part of making the other.
    fn group(self) -> u8 {
        match self {
            Self::One | Self::Counted(..) => 0,
            Self::Buffer | Self::Headed => 1,
            Self::Table => 2,
        }
    }
}

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

/// Returns what a function of a library allocates.
fn allocates(view: &View, frame: &TypedFrame) -> Option<(Shape, Type, Option<u64>)> {
    /// The modules with such functions; they are compared before the name is parsed.
    const ALLOCATING: [&str; 9] = [
        "alloc",
        "hashbrown",
        "std",
        "smallvec",
        "allocator_api2",
        "thin_vec",
        "bumpalo",
        "crossbeam_channel",
        "tokio",
    ];
    if !ALLOCATING.iter().any(|module| view.is_in(module)) {
        return None;
    }
    let details = view.details(frame);
    // Code inlined for a callee tells nothing about itself.
    if details.function.starts_with('{') {
        return None;
    }
    let bytes = || Type::parse("u8");
    // The type in `Self`, or else the argument of this name or at this position.
    let of = |name: &str, position: usize| details.argument(name, position).map(|found| (found.of.clone(), found.size));
    let within = |wanted: &str| {
        let own = details.own.as_ref().filter(|own| own.path().ends_with(wanted))?;
        let inner = own.arguments().iter().find(|argument| !is_allocator(argument) && argument.path() != "_")?;
        Some((inner.clone(), details.size_of(inner)))
    };
    if view.is_in("alloc::raw_vec") || view.is_in("allocator_api2::stable::raw_vec") {
        let (of, size) = of("T", 0)?;
        return Some((Shape::Buffer, of, size));
    }
    if view.is_in("alloc::vec") {
        let (of, size) = match &*details.function {
            // `<I, T>`
            "from_iter_in_place" => of("T", details.arguments.len().checked_sub(1)?),
            _ => within("Vec").or_else(|| of("T", 0)),
        }?;
        return Some((Shape::Buffer, of, size));
    }
    if view.is_in("alloc::slice") || view.is_in("alloc::collections::vec_deque") {
        // The elements of the joined values are not those of the result.
        if matches!(&*details.function, "concat" | "join") {
            return None;
        }
        let (of, size) = match &details.own {
            Some(Type::Slice(element, _)) => Some(((**element).clone(), details.size_of(element))),
            _ => within("VecDeque").or_else(|| of("T", 0)),
        }?;
        return Some((Shape::Buffer, of, size));
    }
    if view.is_in("alloc::boxed") {
        let (of, size) = within("Box").or_else(|| of("T", 0))?;
        return Some(match of {
            Type::Slice(element, None) => {
                let size = details.size_of(&element);
                (Shape::Buffer, *element, size)
            }
            of if details.function.ends_with("_slice") || details.function.ends_with("_slice_in") => {
                (Shape::Buffer, of, size)
            }
            of if is_text(&of) => (Shape::Buffer, bytes(), Some(1)),
            Type::Bounds(..) => return None,
            of => (Shape::One, of, size),
        });
    }
    for (module, owner, inner) in
        [("alloc::sync", "Arc", "alloc::sync::ArcInner"), ("alloc::rc", "Rc", "alloc::rc::RcInner")]
    {
        if view.is_in(module) {
            let (of, size) = within(owner).or_else(|| of("T", 0))?;
            return match of {
                Type::Slice(element, None) => {
                    let size = details.size_of(&element);
                    Some((Shape::Counted(inner, Sliced::Yes), *element, size))
                }
                Type::Bounds(..) => None,
                of if is_text(&of) => Some((Shape::Counted(inner, Sliced::Yes), bytes(), Some(1))),
                of if details.function.contains("slice") || details.function.contains("from_iter_exact") => {
                    Some((Shape::Counted(inner, Sliced::Yes), of, size))
                }
                // A layout has no type.
                _ if details.function.contains("layout") => None,
                of => Some((Shape::Counted(inner, Sliced::No), of, size)),
            };
        }
    }
    if view.is_in("hashbrown::raw") {
        let (of, size) = within("RawTable").or_else(|| of("T", 0))?;
        return Some((Shape::Table, of, size));
    }
    let is_map = ["hashbrown::map", "hashbrown::rustc_entry", "std::collections::hash::map"];
    if is_map.iter().any(|module| view.is_in(module)) {
        let ((key, _), (value, _)) = (of("K", 0)?, of("V", 1)?);
        return Some((Shape::Table, Type::Tuple(vec![key, value]), None));
    }
    if view.is_in("hashbrown::set") || view.is_in("std::collections::hash::set") {
        let (key, size) = of("T", 0)?;
        return Some((Shape::Table, Type::Tuple(vec![key, Type::Tuple(Vec::new())]), size));
    }
    if view.is_in("allocator_api2::stable::vec") || view.is_in("thin_vec") {
        let (of, size) = within("Vec").or_else(|| within("ThinVec")).or_else(|| of("T", 0))?;
        let shape = if view.is_in("thin_vec") { Shape::Headed } else { Shape::Buffer };
        return Some((shape, of, size));
    }
    // An arena holds any types.
    if view.is_in("bumpalo") {
        return Some((Shape::Buffer, bytes(), Some(1)));
    }
    // Channels ask the allocator for blocks of messages.
    let is_block = ["crossbeam_channel::flavors::list", "tokio::sync::mpsc::block"];
    if is_block.iter().any(|module| view.is_in(module)) && details.function == "new" {
        let own = details.own.clone().filter(|own| own.last().is_some_and(|last| last.name == "Block"));
        let module = is_block.iter().find(|module| view.is_in(module))?;
        let named = || Some(Type::parse(&format!("{module}::Block<{}>", of("T", 0)?.0.spelled(true))));
        return Some((Shape::One, own.filter(|own| !own.arguments().is_empty()).or_else(named)?, None));
    }
    if view.is_in("smallvec") {
        let (of, size) = of("A", 0)?;
        return Some(match of {
            Type::Slice(element, Some(_)) => (Shape::Buffer, *element, None),
            of => (Shape::Buffer, of, size),
        });
    }
    let of_bytes = [
        "alloc::string",
        "alloc::fmt",
        "alloc::str",
        "alloc::ffi::c_str",
        "alloc::bstr",
        "std::path",
        "std::ffi::os_str",
        "std::sys::os_str",
    ];
    of_bytes.iter().any(|module| view.is_in(module)).then(|| (Shape::Buffer, bytes(), Some(1)))
}

/// True for types of a variable number of bytes.
fn is_text(of: &Type) -> bool {
    matches!(&*of.path(), "str" | "std::path::Path" | "std::ffi::os_str::OsStr" | "core::ffi::c_str::CStr")
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
        let symbol =
            TypedFrame { name: alias.clone(), plain: None, view: super::frame::Lazy::default(), ..physical.clone() };
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
