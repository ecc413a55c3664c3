//! Rust: type arguments of the functions of std.
//!
//! Below the code that asks for a `Vec`, there is nothing but functions of std, most of them inlined, and each has the types
//! in its name: `Vec<Token>::push`, `RawVec<Token>::grow_one`. The innermost one that has a type says what the block is, the
//! outermost one what the program called. Two things stand in the way. Functions with the same code are merged, so the
//! physical function may be that of another type; then the functions inlined into its caller know better. And a container
//! that is inside another one must not be taken for it.

mod name;
mod size;
mod view;

use std::sync::Arc;

pub(crate) use name::{Type, arguments};
pub(crate) use view::View;
use view::is_allocator;

use super::{Confidence, Evidence, Language, Places, SiteSizes, SiteType, SizeCheck, TypeName, TypedFrame};

/// How an allocation is made of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One of it: `Box`, and all nodes.
    One,
    /// A number of it: `Vec`, `VecDeque`, strings.
    Buffer,
    /// One or a slice behind two counters, in `Arc` and `Rc`; the name of what has them.
    Counted(&'static str, Sliced),
    /// A hash table of it.
    Table,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sliced {
    Yes,
    No,
}

impl Shape {
    /// Whether one may be part of making the other.
    fn family(self) -> u8 {
        match self {
            Self::One | Self::Counted(..) => 0,
            Self::Buffer => 1,
            Self::Table => 2,
        }
    }
}

/// What a function says that it allocates.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    shape: Shape,
    of: Type,
    size: Option<u64>,
    /// The place, and the frame in it.
    place: usize,
    frame: usize,
}

/// The type of the blocks that a stack allocates whose innermost function, allocators aside, is Rust.
pub(crate) fn site_type(places: Places<'_>, sizes: SiteSizes) -> SiteType {
    let Some(first) = first(places) else { return SiteType::unknown() };
    let decided = decide(places, first.clone());
    let mut chosen = decided.unwrap_or_else(|| first.clone());
    let mut check = check(&chosen, sizes);
    // The one that was overridden may be the right one all the same.
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
            Shape::Buffer => name.buffer(),
            Shape::Table => around("hashbrown::raw::RawTable", "RawTable", &name),
            Shape::Counted(full, Sliced::Yes) => around(full, last(full), &name.buffer()),
            Shape::Counted(full, Sliced::No) => around(full, last(full), &name),
        }
    }
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// The first frame that says what it allocates, before any that is not of a library: whoever asks for memory himself does
/// not say for what.
fn first(places: Places<'_>) -> Option<Candidate> {
    for (place, frames) in places.iter().enumerate() {
        let found = first_in(place, frames);
        if found.is_some() || !frames.iter().all(is_library) {
            return found;
        }
    }
    None
}

/// The same of one place.
fn first_in(place: usize, frames: &[TypedFrame]) -> Option<Candidate> {
    let mut library = frames.iter().enumerate().take_while(|(_, frame)| is_library(frame));
    library.find_map(|(at, frame)| {
        let view = frame.view().filter(|_| !frame.is_allocator())?;
        let (mut shape, mut of, mut size) = allocates(view)?;
        let caller = frames.get(at + 1);
        if caller.is_some_and(|caller| !is_library(caller))
            && let Some(element) = begins_vec(view, &of)
        {
            (shape, size, of) = (Shape::Buffer, size::of(element), element.clone());
        }
        Some(Candidate { shape, of, size, place, frame: at })
    })
}

/// True for functions of Rust that allocate for themselves.
pub(crate) fn asks(frame: &TypedFrame) -> bool {
    frame.language == Language::Rust && !is_library(frame)
}

/// True for functions that allocate for their caller.
fn is_library(frame: &TypedFrame) -> bool {
    frame.is_allocator() || frame.view().is_some_and(|view| view.library)
}

/// The element of a vector that is written out: `vec![a, b]` in a program begins with a box of an array.
fn begins_vec<'t>(view: &View, of: &'t Type) -> Option<&'t Type> {
    match of {
        Type::Slice(element, Some(_)) if view.is_in("alloc::boxed") && view.function == "new_uninit" => Some(element),
        _ => None,
    }
}

/// What a function of a library allocates.
fn allocates(view: &View) -> Option<(Shape, Type, Option<u64>)> {
    // What is written inline for a callee says nothing about itself.
    if view.function.starts_with('{') {
        return None;
    }
    let bytes = || Type::parse("u8");
    // What `Self` says, and else the argument of this name or at this position.
    let of = |name: &str, position: usize| view.argument(name, position).map(|found| (found.of.clone(), found.size));
    let within = |wanted: &str| {
        let own = view.own.as_ref().filter(|own| own.path().ends_with(wanted))?;
        let inner = own.arguments().iter().find(|argument| !is_allocator(argument) && argument.path() != "_")?;
        Some((inner.clone(), view.size_of(inner)))
    };
    if view.is_in("alloc::raw_vec") {
        let (of, size) = of("T", 0)?;
        return Some((Shape::Buffer, of, size));
    }
    if view.is_in("alloc::vec") {
        let (of, size) = match &*view.function {
            // `<I, T>`
            "from_iter_in_place" => of("T", view.arguments.len().checked_sub(1)?),
            _ => within("Vec").or_else(|| of("T", 0)),
        }?;
        return Some((Shape::Buffer, of, size));
    }
    if view.is_in("alloc::slice") || view.is_in("alloc::collections::vec_deque") {
        // The elements of what these put together are not those of the result.
        if matches!(&*view.function, "concat" | "join") {
            return None;
        }
        let (of, size) = match &view.own {
            Some(Type::Slice(element, _)) => Some(((**element).clone(), view.size_of(element))),
            _ => within("VecDeque").or_else(|| of("T", 0)),
        }?;
        return Some((Shape::Buffer, of, size));
    }
    if view.is_in("alloc::boxed") {
        let (of, size) = within("Box").or_else(|| of("T", 0))?;
        return Some(match of {
            Type::Slice(element, None) => {
                let size = view.size_of(&element);
                (Shape::Buffer, *element, size)
            }
            of if view.function.ends_with("_slice") || view.function.ends_with("_slice_in") => {
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
                    let size = view.size_of(&element);
                    Some((Shape::Counted(inner, Sliced::Yes), *element, size))
                }
                Type::Bounds(..) => None,
                of if is_text(&of) => Some((Shape::Counted(inner, Sliced::Yes), bytes(), Some(1))),
                of if view.function.contains("slice") || view.function.contains("from_iter_exact") => {
                    Some((Shape::Counted(inner, Sliced::Yes), of, size))
                }
                // Layouts are not of any type.
                _ if view.function.contains("layout") => None,
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

/// True for types of any number of bytes.
fn is_text(of: &Type) -> bool {
    matches!(&*of.path(), "str" | "std::path::Path" | "std::ffi::os_str::OsStr" | "core::ffi::c_str::CStr")
}

/// The caller's word for it, where the physical function may have been merged with that of another type.
fn decide(places: Places<'_>, first: Candidate) -> Option<Candidate> {
    let mut chosen = None;
    let mut current = first;
    loop {
        let next = current.place + 1;
        let physical = places[current.place].last().and_then(TypedFrame::view).filter(|physical| physical.library);
        let caller = places.get(next).and_then(|frames| first_in(next, frames));
        let (Some(physical), Some(caller)) = (physical, caller) else { return chosen };
        // Only what the physical function was called for: the container that it is a part of, called by the innermost function
        // there, and not what has such containers in it.
        let direct = caller.frame == 0 && caller.shape.family() == current.shape.family();
        let same_container = physical.is_in("alloc::raw_vec") || physical.is_in("hashbrown::raw");
        if !direct || !same_container && is_elementwise(physical) {
            return chosen;
        }
        let caller = Candidate { shape: current.shape, ..caller };
        chosen = Some(caller.clone());
        current = caller;
    }
}

/// True for what containers do to each of their elements, which may be containers: the caller's element is then the whole
/// container of the callee.
fn is_elementwise(view: &View) -> bool {
    ["clone", "clone_from", "to_vec", "to_vec_in", "to_owned", "default", "from"].contains(&&*view.function)
}

/// Whether no other type could have the same code: what says so is inlined into a function that has no type arguments, and
/// that has its address for itself.
fn is_sure(frames: &[TypedFrame], chosen: &Candidate) -> bool {
    let physical = frames.last();
    let alone = physical.is_some_and(|physical| physical.aliases.len() <= 1);
    let generic = physical.and_then(TypedFrame::view).is_none_or(|view| view.generic || view.library);
    if frames[chosen.frame].view().is_some_and(|view| view.function == "new_uninit" && chosen.shape == Shape::Buffer) {
        return false;
    }
    let bytes = chosen.of.path() == "u8" && chosen.shape == Shape::Buffer;
    // Strings are of bytes whatever else is.
    let named =
        frames[chosen.frame].view().is_some_and(|view| !view.is_in("alloc::raw_vec") && !view.is_in("alloc::vec"));
    alone && (chosen.frame + 1 < frames.len() && !generic || bytes && named)
}

/// Other types that functions at the same address are for.
fn alternatives(frames: &[TypedFrame], chosen: &Candidate) -> Vec<Type> {
    let Some(physical) = frames.last() else { return Vec::new() };
    let mut others: Vec<Type> = Vec::new();
    for alias in physical.aliases.iter() {
        let symbol =
            TypedFrame { name: alias.clone(), plain: None, view: super::frame::Lazy::default(), ..physical.clone() };
        let view = View::new(&symbol);
        if let Some((_, of, _)) = allocates(&view)
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
    let SiteSizes { blocks, bytes } = sizes;
    if blocks == 0 {
        return SizeCheck::NotPossible;
    }
    let fits = match chosen.shape {
        Shape::One => size.checked_mul(blocks) == Some(bytes),
        Shape::Buffer => size > 0 && bytes % size == 0,
        Shape::Counted(_, sliced) => match size::counted(size, sliced == Sliced::Yes, sizes) {
            Some(fits) => fits,
            None => return SizeCheck::NotPossible,
        },
        Shape::Table => match size::table(size, sizes) {
            Some(fits) => fits,
            None => return SizeCheck::NotPossible,
        },
    };
    if fits {
        return SizeCheck::Consistent;
    }
    let plural = if blocks == 1 { "" } else { "s" };
    let name = chosen.of.name();
    SizeCheck::Inconsistent(format!("{bytes} bytes in {blocks} block{plural}, but {} has {size}", name.short()).into())
}

/// What the program called: the outermost function of the libraries around the allocation.
fn container(places: Places<'_>, chosen: &Candidate) -> Option<Arc<str>> {
    let inner = places.iter().enumerate().flat_map(|(place, frames)| frames.iter().map(move |frame| (place, frame)));
    let views = inner.map_while(|(place, frame)| {
        let view = frame.view()?;
        (view.library || frame.is_allocator()).then_some((place, view))
    });
    let named = views.filter(|(place, _)| *place >= chosen.place).filter_map(|(_, view)| called(view));
    named.last().map(Into::into)
}

/// `HashMap<K, V>::insert`
fn called(view: &View) -> Option<String> {
    /// Modules, what they define, and how many arguments of it are shown.
    const CONTAINERS: [(&str, &str, usize); 22] = [
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
    ];
    let &(_, name, count) = CONTAINERS.iter().find(|(module, ..)| view.is_in(module))?;
    let shown: Vec<String> = match &view.own {
        Some(own) if own.last().is_some_and(|last| last.name == name) => {
            own.arguments().iter().take(count).map(|argument| argument.spelled(false)).collect()
        }
        _ => {
            let all = view.arguments.iter().filter(|argument| !is_allocator(&argument.of));
            all.take(count).map(|argument| argument.of.spelled(false)).collect()
        }
    };
    let arguments = if shown.is_empty() { String::new() } else { format!("<{}>", shown.join(", ")) };
    Some(format!("{name}{arguments}::{}", view.function))
}

fn evidence(frame: &TypedFrame) -> Evidence {
    let name: Arc<str> = frame.view().and_then(called).map_or_else(|| frame.name.clone(), Into::into);
    match (frame.inlined, frame.plain.is_some()) {
        (true, _) => Evidence::Inlined(name),
        (false, true) => Evidence::Function(name),
        (false, false) => Evidence::SymbolName(name),
    }
}
