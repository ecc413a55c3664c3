//! The types of blocks, inferred from the code that allocates them.
//!
//! A block has no type of its own, but the code that allocates it does. The compiler leaves the
//! type arguments of every function, inlined ones too, in the debug information, and some of them
//! in symbol names. [`Symbolizer::typed_frames`] reads them; [`Symbolizer::site_type`] draws the
//! conclusion. The rules depend on the language of the code that allocates: one file each.

mod c;
pub(crate) mod call_site;
mod cxx;
mod cxx_name;
mod entries;
mod frame;
mod lookup;
mod name;
mod python;
mod rust;
mod sizes;
mod source;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

pub(crate) use entries::{Entries, Facts};
pub use frame::{Constructed, Language, Parameter, Pointee, Received, TypedFrame, Written};
pub(crate) use frame::{Lazy, Rendering};
pub use name::TypeName;
pub use sizes::{EachSize, SiteSizes};
pub(crate) use source::Sources;

use crate::cache::{self, Concluded};
use crate::symbolizer::{ModuleRef, Symbolizer};

/// The type of the blocks that a site allocates.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteType {
    /// The exact type of a block; a buffer of `T` is spelled `[T]`. `None`: unknown.
    pub block: Option<TypeName>,
    /// The type of the elements if the block is a buffer, a table or a node.
    pub element: Option<TypeName>,
    /// The container that the block belongs to, `Vec<Token>`, or the function of it that was
    /// called: `HashMap<Key, Token>::insert`.
    pub container: Option<Arc<str>>,
    /// How certain the type is.
    pub confidence: Confidence,
    /// The evidence for the type.
    pub evidence: Evidence,
    /// The possible types if the evidence is ambiguous.
    pub candidates: Vec<TypeName>,
    /// Bytes of the element, or of the block if it has no element; `None` if unknown.
    pub size: Option<u64>,
    /// The result of comparing the blocks' sizes with the type's.
    pub size_check: SizeCheck,
    /// The index of the stack's place that gave the type, and so of the binary that it is from.
    pub module: Option<usize>,
}

impl SiteType {
    /// Returns the answer for an unknown type.
    pub fn unknown() -> Self {
        Self {
            block: None,
            element: None,
            container: None,
            confidence: Confidence::Unknown,
            evidence: Evidence::None,
            candidates: Vec::new(),
            size: None,
            size_check: SizeCheck::NotPossible,
            module: None,
        }
    }
}

/// The certainty of a type, the most certain first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// The evidence names the type and no other, and no size contradicts it.
    Exact,
    /// The evidence allows another type, but the sizes agree with this one.
    SizeConsistent,
    /// The evidence names several types, or a size contradicts it.
    Ambiguous,
    /// A guess from the surroundings, such as source text or the name of a C function.
    Probable,
    /// The type is unknown.
    Unknown,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exact => "exact",
            Self::SizeConsistent => "size-consistent",
            Self::Ambiguous => "ambiguous",
            Self::Probable => "probable",
            Self::Unknown => "unknown",
        })
    }
}

/// The evidence from which a type was concluded. Displays as plain words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The type arguments of a function that was inlined there, from the debug information.
    Inlined(Arc<str>),
    /// The type arguments of the physical function.
    Function(Arc<str>),
    /// A template parameter, by its name: `_Tp`.
    TemplateParameter(Arc<str>),
    /// The constructor that runs right after the call.
    Constructor,
    /// The text of the source line.
    SourceText,
    /// The variable that receives the result, by its name.
    Variable(Arc<str>),
    /// The name of the function in the symbol table.
    SymbolName(Arc<str>),
    /// The C function that allocates for its caller, by its name.
    CFunction(Arc<str>),
    /// No evidence.
    None,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inlined(function) => write!(f, "inlined {function}"),
            Self::Function(function) => write!(f, "function {function}"),
            Self::TemplateParameter(name) => write!(f, "template parameter {name}"),
            Self::Constructor => f.write_str("constructor after the call"),
            Self::SourceText => f.write_str("source text"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::SymbolName(name) => write!(f, "symbol {name}"),
            Self::CFunction(name) => write!(f, "C function {name}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// The result of comparing the sizes of blocks with a type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SizeCheck {
    /// The sizes agree with the type.
    Consistent,
    /// The sizes contradict the type; the reason in plain words: "40 bytes in 1 block, but Foo has
    /// 24".
    Inconsistent(Box<str>),
    /// The size of the type is unknown, or allows no conclusion.
    NotPossible,
}

/// The functions at each place of a stack, innermost place first: the input of all rules.
pub(crate) type Places<'p> = &'p [Arc<[TypedFrame]>];

impl Symbolizer {
    /// Returns the functions at an address with their types, innermost inlined function first;
    /// never empty. The last one is the physical function.
    ///
    /// `offset` is as for [`frames`](Self::frames). Answers are kept, and like names they come from
    /// the cache if an earlier run has left them there.
    pub fn typed_frames(&self, module: ModuleRef<'_>, offset: u64) -> Arc<[TypedFrame]> {
        self.with(module, |module, finder| module.typed_frames(offset, finder))
    }

    /// Returns the type of the blocks that a stack allocates.
    ///
    /// `stack` has the places innermost first, with offsets as for [`frames`](Self::frames): inside
    /// the call. Only the innermost 64 places are examined. `sizes` are those of the allocations
    /// there, if known.
    ///
    /// Conclusions are in the cache, too: the same question in a later run takes a few
    /// microseconds.
    pub fn site_type(&self, stack: &[(ModuleRef<'_>, u64)], sizes: SiteSizes) -> SiteType {
        let stack = &stack[..stack.len().min(PLACES_MAX)];
        let Some(&(innermost, _)) = stack.first().filter(|_| self.keeps()) else {
            return self.conclude(stack, sizes).0;
        };
        let key = cache::site_key(stack, sizes);
        let known = self.with(innermost, |module, finder| module.sites(finder).find(key));
        if let Some(known) = known
            && let Some(looked_at) = stack.get(..known.places as usize)
            && self.made_from(looked_at) == Some(known.made_from)
        {
            return known.site;
        }
        let (site, places) = self.conclude(stack, sizes);
        if let Some(made_from) = self.made_from(&stack[..places]) {
            let concluded = Concluded { site: site.clone(), places: places as u32, made_from };
            self.with(innermost, |module, finder| module.sites(finder).add(key, concluded));
        }
        site
    }

    /// Returns the type, and the number of places that were examined for it.
    fn conclude(&self, stack: &[(ModuleRef<'_>, u64)], sizes: SiteSizes) -> (SiteType, usize) {
        let mut places: Vec<Arc<[TypedFrame]>> = Vec::new();
        let (mut is_asked, mut own) = (false, 0);
        for &(module, offset) in stack {
            let frames = self.typed_frames(module, offset);
            is_asked |= frames.iter().any(rust::is_entry);
            let asks = frames.last().is_some_and(rust::asks);
            places.push(frames);
            // In Rust, the functions beyond the one that asks a library for memory do not matter.
            // Functions before the allocator's entry point belong to the allocator.
            own += usize::from(asks && !is_asked);
            if asks && is_asked || own > ALLOCATOR_MAX {
                break;
            }
        }
        (conclude(&places, InnermostPlaces::of(stack, &places), sizes), places.len())
    }

    /// Returns a hash of the files that the modules of these places are read from. `None` if better
    /// answers may be possible later.
    fn made_from(&self, places: &[(ModuleRef<'_>, u64)]) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        let mut last = None;
        for &(module, _) in places {
            if last.replace(module) != Some(module) {
                self.with(module, |module, _| module.made_from().map(|files| files.hash(&mut hasher)))?;
            }
        }
        Some(hasher.finish())
    }
}

/// The properties of the innermost places of a stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnermostPlaces {
    /// The number of places that are in the C library or its loader.
    in_libc: usize,
    /// True if the code that asks the allocator is in a shared library: its functions are called by
    /// their exported names.
    is_shared: bool,
}

impl InnermostPlaces {
    fn of(stack: &[(ModuleRef<'_>, u64)], places: Places<'_>) -> Self {
        let starts = |name: &[u8]| {
            [&b"libc.so"[..], b"libc-", b"libc.musl-", b"libpthread", b"ld-"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let in_libc = stack.iter().take_while(|(module, _)| starts(file_name(module.path))).count();
        let asks = places.iter().position(|frames| frames.iter().any(|frame| !frame.is_allocator()));
        let is_shared = asks.is_some_and(|at| file_name(stack[at].0.path).windows(3).any(|part| part == b".so"));
        Self { in_libc, is_shared }
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// The maximum number of places that are examined.
const PLACES_MAX: usize = 64;
/// The maximum number of functions of a program's own allocator that are skipped.
const ALLOCATOR_MAX: usize = 16;

/// Applies the rules of the language that allocates.
fn conclude(places: Places<'_>, innermost: InnermostPlaces, sizes: SiteSizes) -> SiteType {
    if let Some(found) = python::site_type(places, innermost, sizes) {
        return found;
    }
    let frames = places.iter().flat_map(|frames| frames.iter());
    let mut languages = frames.filter(|frame| !frame.is_allocator()).map(|frame| frame.language).peekable();
    // Functions without a name between a named one and the allocator are a library's.
    let is_library = languages.peek() == Some(&Language::Other);
    let language = languages.find(|language| *language != Language::Other);
    // Memory that the C library needs for itself is named the same, with or without its debug
    // information.
    let frames = places.iter().skip(innermost.in_libc).flat_map(|frames| frames.iter());
    let calls = frames.map(|frame| frame.language).find(|&language| language != Language::Other);
    let is_libcs = innermost.in_libc > 0;
    if (is_library || is_libcs)
        && let Some(found) = c::library_block(places, innermost, calls)
    {
        return found;
    }
    let mut found = match language {
        Some(Language::Rust) => rust::site_type(places, sizes),
        Some(Language::Cxx) => cxx::site_type(places, sizes),
        Some(Language::C) => c::site_type(places, innermost, sizes),
        _ => SiteType::unknown(),
    };
    // Without known sizes, nothing can be consistent with them.
    if found.confidence == Confidence::SizeConsistent && found.size_check != SizeCheck::Consistent {
        found.confidence = Confidence::Probable;
    }
    found
}
