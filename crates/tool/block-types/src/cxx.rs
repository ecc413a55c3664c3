//! C++: template parameters, constructors, source text.
//!
//! In order of strength: the template argument of the allocator that is asked for `T`s; functions
//! of the standard library that make one `T`; the constructor that runs right after the call; the
//! text of the line; names of functions in symbol tables.

mod identical_code;

use std::sync::Arc;

use crate::c;
use crate::cxx_name::{Path, Segment, Type};
use crate::frame::{Constructed, TypedFrame, Written};
use crate::places::Places;
use crate::site_type::{Confidence, Evidence, SiteType, SizeCheck};
use crate::sizes::SiteSizes;
use crate::type_name::TypeName;

/// The maximum number of frames that are examined.
const FRAMES_MAX: usize = 96;
/// Bytes that `new X[n]` puts in front of elements that have a destructor, for their number.
const COOKIE: u64 = 8;

/// A frame of the stack, with its parsed name.
struct Frame<'p> {
    place: usize,
    frame: &'p TypedFrame,
    path: Path,
}

impl Frame<'_> {
    fn is_in_std(&self) -> bool {
        self.path.is_in_std()
    }

    /// Returns the name of the enclosing class, without arguments.
    fn class(&self) -> Option<&Segment> {
        let (_, around) = self.path.0.split_last()?;
        around.last()
    }

    fn function(&self) -> &str {
        self.path.last().map_or("", |last| &last.name)
    }

    /// Returns the size of a type, if it is a template argument of this frame.
    fn size_of(&self, of: &Type) -> Option<u64> {
        let name = of.full();
        let known = self.frame.parameters.iter().find(|parameter| parameter.type_name.full() == name);
        known.and_then(|known| known.size).or_else(|| of.known_size())
    }
}

/// The type that the evidence names, before sizes are compared.
struct Claim {
    of: Type,
    size: Option<u64>,
    /// One, several, or either.
    shape: Shape,
    evidence: Evidence,
    confidence: Confidence,
    place: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Several,
    Either,
}

/// Returns the type of the blocks that a stack allocates if its innermost function, apart from
/// allocators, is C++.
pub(crate) fn site_type(places: Places<'_>, sizes: SiteSizes) -> SiteType {
    let all = places.iter().enumerate().flat_map(|(place, frames)| frames.iter().map(move |frame| (place, frame)));
    let frames: Vec<Frame<'_>> = all
        .take(FRAMES_MAX)
        .map(|(place, frame)| Frame { place, frame, path: Path::of_function(&frame.name).unwrap_or_default() })
        .collect();
    let is_new = |frame: &Frame<'_>| matches!(frame.function(), "operator new" | "operator new[]");
    let is_array = frames
        .iter()
        .take_while(|frame| frame.frame.is_allocator() || is_new(frame))
        .any(|frame| frame.function() == "operator new[]");
    let Some(first) = frames.iter().position(|frame| !frame.frame.is_allocator() && !is_new(frame)) else {
        return SiteType::unknown();
    };
    let frames = &frames[first..];

    // The objects that a container constructs and its variables are its own, and tell nothing about
    // its elements.
    let is_container = frames.first().is_some_and(|frame| frame.is_in_std() && identical_code::is_of_container(frame));
    let claim = by_allocator(frames)
        .or_else(|| by_maker(frames))
        .or_else(|| if is_container { None } else { by_expression(places, frames, sizes, is_array) })
        .or_else(|| by_symbol(frames));
    let found = claim.map(|claim| settle(claim, sizes));
    let found = match found {
        Some(found) => found,
        None if is_container => SiteType::unknown(),
        None => c::by_text(places, sizes).unwrap_or_else(SiteType::unknown),
    };
    SiteType { container: container(frames), ..found }
}

/// Finds evidence in `std::allocator<T>` and the like, and in allocators of the program's own that
/// a container calls.
fn by_allocator(frames: &[Frame<'_>]) -> Option<Claim> {
    // Frames between it and `operator new` are helpers: `__libcpp_allocate`, `Arena<T>::refill`.
    let asked = frames.iter().position(|frame| is_asked(frame).is_some())?;
    // If functions between them allocate for themselves, the block is not the one that the
    // allocator was asked for.
    let nearer_is_own = frames[..asked].iter().any(|frame| !frame.is_in_std() && frame.function() != "allocate");
    if nearer_is_own && !frames[..asked].iter().any(|frame| frame.function() == "allocate") {
        return None;
    }
    let frame = &frames[asked];
    let identical_code::RequestedType { of, is_certain } =
        identical_code::requested_type(is_asked(frame)?, &frames[asked..]);
    let standard = frame.class().is_some_and(|class| is_allocator_class(&class.name)) || frame.is_in_std();
    let size = frame.size_of(&of).or_else(|| {
        let others = frames[asked + 1..].iter().take_while(|frame| frame.is_in_std());
        others.filter_map(|other| other.size_of(&of)).next()
    });
    let size = size.or_else(|| frame.frame.result().filter(|to| to.type_name.full() == of.full())?.size);
    let node = is_node(&of);
    let buffer = frames[asked + 1..].iter().take_while(|frame| frame.is_in_std()).any(has_buffer);
    let shape = if node {
        Shape::One
    } else if buffer {
        Shape::Several
    } else {
        Shape::Either
    };
    Some(Claim {
        of,
        size,
        shape,
        evidence: Evidence::TemplateParameter("_Tp".into()),
        confidence: if standard && is_certain { Confidence::Exact } else { Confidence::SizeConsistent },
        place: frame.place,
    })
}

fn is_allocator_class(name: &str) -> bool {
    matches!(name, "new_allocator" | "__new_allocator" | "allocator" | "malloc_allocator")
}

/// Returns the type that an allocator is asked for, if the frame is its `allocate`.
fn is_asked(frame: &Frame<'_>) -> Option<Type> {
    let class = frame.class()?;
    if !matches!(frame.function(), "allocate" | "allocate_at_least" | "_S_allocate") {
        return None;
    }
    let first = class.arguments.as_ref()?.first()?;
    if is_allocator_class(&class.name) && frame.is_in_std() {
        return Some(first.clone());
    }
    if matches!(&*class.name, "allocator_traits" | "__alloc_traits") && frame.is_in_std() {
        // By contract, an allocator is asked for the type that `allocate` returns a pointer to.
        let allocator = first.path.last()?;
        let returned = frame.frame.result().and_then(|returned| Type::parse(returned.type_name.full()));
        if is_allocator_class(&allocator.name) || returned.is_none() {
            return allocator.arguments.as_ref()?.first().cloned();
        }
        return returned;
    }
    None
}

/// True for types of which a block has one, by their names: nodes, and the shared state of shared
/// pointers.
fn is_node(of: &Type) -> bool {
    let Some(last) = of.path.last() else { return false };
    of.path.is_in_std()
        && !of.is_pointer()
        && (last.name.ends_with("_node")
            || last.name.starts_with("_Sp_counted")
            || last.name.starts_with("__shared_ptr_"))
}

/// True if a function belongs to a container that stores its elements one after the other.
fn has_buffer(frame: &Frame<'_>) -> bool {
    const CLASSES: [&str; 14] = [
        "vector",
        "_Vector_base",
        "basic_string",
        "deque",
        "_Deque_base",
        "valarray",
        "_Hashtable",
        "_Hashtable_alloc",
        "__split_buffer",
        "__vector_base",
        "_Bvector_base",
        "priority_queue",
        "stack",
        "queue",
    ];
    frame.path.names().any(|name| CLASSES.contains(&name))
}

/// Finds evidence in functions of the standard library that make one object of a type that they
/// name.
fn by_maker(frames: &[Frame<'_>]) -> Option<Claim> {
    let maker = frames.first().filter(|frame| frame.is_in_std())?;
    let function = maker.path.last();
    let (arguments, parameter) = match (maker.class().map(|class| &*class.name), maker.function()) {
        (_, "make_unique" | "make_unique_for_overwrite") => (function?.arguments.as_ref()?, "_Tp"),
        (Some("_Base_manager"), _) => (maker.class()?.arguments.as_ref()?, "_Functor"),
        (Some("_Manager_external"), _) => (maker.class()?.arguments.as_ref()?, "_Tp"),
        _ => return None,
    };
    let named = arguments.first()?;
    // The name in the debug information distinguishes closures, which names of functions may not.
    let known = maker.frame.parameters.iter().find(|known| &*known.name == parameter);
    let of = known.and_then(|known| Type::parse(known.type_name.full())).unwrap_or_else(|| named.clone());
    let (element, shape) = match of.array_element() {
        Some(element) => (element, Shape::Several),
        None => (of, Shape::One),
    };
    let size = known.filter(|_| shape == Shape::One).and_then(|known| known.size).or_else(|| {
        // For the element of an array: from a constructor, or from the type of a returned pointer.
        let named = frames.iter().take_while(|frame| frame.is_in_std()).find_map(|frame| frame.size_of(&element));
        let built = maker.frame.constructed.iter().find(|found| found.class.full() == element.full());
        named.or_else(|| built?.size)
    });
    Some(Claim {
        of: element,
        size,
        shape,
        evidence: Evidence::TemplateParameter(parameter.into()),
        confidence: Confidence::Exact,
        place: maker.place,
    })
}

/// Finds evidence in `new X` and `new X[n]`: the constructor that runs then, and the source text.
fn by_expression(places: Places<'_>, frames: &[Frame<'_>], sizes: SiteSizes, is_array: bool) -> Option<Claim> {
    let site = frames.first()?;
    let constructed = places.get(site.place)?.last().map(|last| &last.constructed[..]).unwrap_or_default();
    let shape = if is_array { Shape::Several } else { Shape::One };
    let fits = |size: Option<u64>| size.is_some_and(|size| agrees(size, shape, sizes) != Some(false));
    let is_here = |found: &&Constructed| {
        found.line.is_some() && (found.line, found.column) == (site.frame.line, site.frame.column)
    };
    let fitting: Vec<&Constructed> = constructed.iter().filter(|found| fits(found.size)).collect();
    let written = site.frame.written.iter().find(|written| !written.is_result);
    let shape_of = |written: &Written| if written.is_array || is_array { Shape::Several } else { Shape::One };
    let claim = |of: &TypeName, size, shape, evidence, confidence| {
        Some(Claim {
            of: Type::parse(of.full()).unwrap_or_else(|| Type::of_text(of.full())),
            size,
            shape,
            evidence,
            confidence,
            place: site.place,
        })
    };
    if let Some(written) = written {
        let last = |name: &TypeName| Type::parse(name.full()).and_then(|of| Some(of.path.last()?.name.clone()));
        // Values among the arguments of a template have several spellings.
        let can_be_called = |class: &TypeName| {
            let (class, written) = (Type::parse(class.full()), Type::parse(written.type_name.full()));
            class.zip(written).is_some_and(|(class, written)| class.can_be_called(&written))
        };
        let same = fitting.iter().find(|found| {
            can_be_called(&found.class) || is_here(found) && last(&found.class) == last(&written.type_name)
        });
        if let Some(same) = same {
            return claim(&same.class, same.size, shape_of(written), Evidence::Constructor, Confidence::Exact);
        }
        let fits = written.size.is_some_and(|size| agrees(size, shape_of(written), sizes) != Some(false));
        // The text may be from another version of the file; then the sizes would contradict it.
        if fits || fitting.is_empty() {
            let confidence = if fits { Confidence::SizeConsistent } else { Confidence::Probable };
            return claim(&written.type_name, written.size, shape_of(written), Evidence::SourceText, confidence);
        }
    }
    let here: Vec<&&Constructed> = fitting.iter().filter(|found| is_here(found)).collect();
    if let Some(found) = here.first() {
        let only = here.iter().all(|other| other.class == found.class);
        let confidence = if only { Confidence::Exact } else { Confidence::SizeConsistent };
        return claim(&found.class, found.size, shape, Evidence::Constructor, confidence);
    }
    if let Some(found) = fitting.first() {
        let only = fitting.iter().all(|other| other.class == found.class);
        let confidence = if only { Confidence::SizeConsistent } else { Confidence::Probable };
        return claim(&found.class, found.size, shape, Evidence::Constructor, confidence);
    }
    if let Some(received) =
        places.get(site.place)?.last().and_then(|last| last.received.as_ref()).filter(|to| fits(to.size))
    {
        let evidence = Evidence::Variable(received.variable.clone());
        return claim(&received.type_name, received.size, shape, evidence, Confidence::Probable);
    }
    if let Some(written) = site.frame.written.iter().find(|written| fits(written.size)) {
        return claim(&written.type_name, written.size, shape, Evidence::SourceText, Confidence::Probable);
    }
    if let Some(returned) = site.frame.result().filter(|returned| fits(returned.size)) {
        let evidence = Evidence::Function(site.frame.name.clone());
        return claim(&returned.type_name, returned.size, shape, evidence, Confidence::Probable);
    }
    None
}

/// Finds evidence in the name of a container's function if nothing is known of the functions
/// inlined into it: it allocates for the container, unless it makes elements, which may allocate
/// for themselves.
fn by_symbol(frames: &[Frame<'_>]) -> Option<Claim> {
    // Line tables have only the last names of inlined functions.
    let is_bare = |frame: &Frame<'_>| frame.frame.inlined && frame.frame.linkage.is_none() && frame.path.0.len() == 1;
    let frame = frames.iter().find(|frame| !is_bare(frame)).filter(|frame| frame.is_in_std())?;
    let (class, arguments) =
        frame.path.0.iter().rev().skip(1).find_map(|class| Some((class, class.arguments.as_ref()?)))?;
    let first = arguments.first()?;
    let of = match &*class.name {
        // Bits are stored in words.
        "vector" | "_Bvector_base" if first.full() == "bool" => Type::parse("unsigned long")?,
        "vector" | "_Vector_base" | "valarray" => first.clone(),
        "_Rb_tree" => node("_Rb_tree_node", arguments.get(1)?.clone()),
        "list" | "_List_base" => node("_List_node", first.clone()),
        name if name.starts_with("basic_") => first.clone(),
        _ => return None,
    };
    let held = if is_node(&of) { of.path.last()?.arguments.as_ref()?.first()? } else { &of };
    if !is_plain(held) && !only_moves(frame, held) {
        return None;
    }
    let shape = if is_node(&of) { Shape::One } else { Shape::Several };
    let size = frame.size_of(&of);
    Some(Claim {
        of,
        size,
        shape,
        evidence: Evidence::SymbolName(frame.path.clone().without_parameters().short().into()),
        confidence: if size.is_some() { Confidence::SizeConsistent } else { Confidence::Probable },
        place: frame.place,
    })
}

/// True if making a value of this type allocates nothing, or only in the type's own functions:
/// those of strings are in the library.
fn is_plain(of: &Type) -> bool {
    let inside = |last: &Segment| last.arguments.iter().flatten().all(|argument| is_plain(&argument.unqualified()));
    let of = of.unqualified();
    of.known_size().is_some()
        || of.path.is_in_std()
            && of.path.last().is_some_and(|last| match &*last.name {
                "basic_string" | "unique_ptr" | "shared_ptr" => true,
                "pair" | "tuple" | "optional" => inside(last),
                _ => false,
            })
}

/// True if a function of a container moves elements and makes none.
fn only_moves(frame: &Frame<'_>, element: &Type) -> bool {
    match frame.function() {
        "reserve" | "_M_default_append" | "_M_allocate" | "_M_create_storage" => true,
        "_M_realloc_insert" | "_M_realloc_append" | "emplace_back" => {
            let made_of = frame.path.last().and_then(|last| last.arguments.as_ref());
            made_of.is_some_and(|made_of| match &made_of[..] {
                // Few containers allocate before they have an element.
                [] => element.path.is_in_std() && element.path.last().is_some_and(|class| class.name != "deque"),
                [only] => only == element,
                _ => false,
            })
        }
        _ => false,
    }
}

fn node(name: &str, of: Type) -> Type {
    let plain = |name: &str, arguments| Segment { name: name.to_owned(), arguments, parameters: None };
    Type::named(Path(vec![plain("std", None), plain(name, Some(vec![of]))]))
}

/// True if the blocks consist of elements of this size. `None`: their sum does not tell.
fn agrees(size: u64, shape: Shape, sizes: SiteSizes) -> Option<bool> {
    let one = || sizes.are(size);
    let several = || either(sizes.are_several(size, 0), sizes.are_several(size, COOKIE));
    match shape {
        Shape::One => one(),
        Shape::Several => several(),
        Shape::Either => either(one(), several()),
    }
}

fn either(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// Makes the answer from a claim and the sizes of the blocks.
fn settle(claim: Claim, sizes: SiteSizes) -> SiteType {
    let Claim { of, size, shape, evidence, mut confidence, place } = claim;
    let check = match size.and_then(|size| Some((size, agrees(size, shape, sizes)?))) {
        Some((_, true)) => SizeCheck::Consistent,
        Some((size, false)) => {
            SizeCheck::Inconsistent(format!("{}, but {} has {size}", sizes.in_words(), of.short()).into())
        }
        None => SizeCheck::NotPossible,
    };
    let is_one = match shape {
        Shape::One => true,
        Shape::Several => false,
        Shape::Either => sizes.blocks > 0 && size.is_some_and(|size| sizes.are(size) != Some(false)),
    };
    // A single object may also be an array with one element.
    if shape == Shape::Either && is_one {
        confidence = confidence.max(Confidence::SizeConsistent);
    }
    let of_name = of.name();
    let mut candidates = Vec::new();
    if matches!(check, SizeCheck::Inconsistent(_)) && confidence < Confidence::Ambiguous {
        confidence = Confidence::Ambiguous;
        candidates.push(if is_one { of_name.clone() } else { of_name.buffer() });
    }
    let held = if is_one && is_node(&of) {
        of.path.last().and_then(|last| last.arguments.as_ref()?.first()).map(Type::name)
    } else {
        None
    };
    let (block, element) = if is_one { (of_name, held) } else { (of_name.buffer(), Some(of_name)) };
    SiteType {
        block: Some(block),
        element,
        container: None,
        confidence,
        evidence,
        candidates,
        size,
        size_check: check,
        module: Some(place),
    }
}

/// Returns the function of the standard library that was called:
/// `std::map<int, app::Point>::operator[]`.
fn container(frames: &[Frame<'_>]) -> Option<Arc<str>> {
    let outermost = frames.iter().take_while(|frame| frame.is_in_std()).last()?;
    let mut path = outermost.path.clone().without_parameters();
    let is_member = path.0.len() > 2;
    if let Some(last) = path.0.last_mut().filter(|_| is_member) {
        last.arguments = None;
    }
    Some(path.short().into())
}
