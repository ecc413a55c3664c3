//! The types of blocks: what the code that allocates says about them.
//!
//! A block has no type of its own, but who allocates it does. The compiler leaves the type arguments of every function,
//! inlined ones too, in the debug information, and some of them in symbol names. [`Symbolizer::typed_frames`] reads them;
//! [`Symbolizer::site_type`] draws the conclusion. The rules are of the language of the code that allocates: one file each.

pub(crate) mod aftermath;
mod c;
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
    /// What the block has one or many of, where it is a buffer, a table or a node.
    pub element: Option<TypeName>,
    /// The container that the block belongs to: `Vec<Token>`, or what was called of it: `HashMap<Key, Token>::insert`.
    pub container: Option<Arc<str>>,
    /// How sure this is.
    pub confidence: Confidence,
    /// What says so.
    pub evidence: Evidence,
    /// What it may be, where that is ambiguous.
    pub candidates: Vec<TypeName>,
    /// Bytes of the element, or of the block if it has no element, where they are known.
    pub size: Option<u64>,
    /// Whether the sizes of the blocks agree.
    pub size_check: SizeCheck,
    /// Which place of the stack gave the type: whose binary it is from.
    pub module: Option<usize>,
}

impl SiteType {
    /// Nothing is known.
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

/// How sure a type is, surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// The evidence names the type, leaves no other, and no size contradicts.
    Exact,
    /// The evidence leaves room for another type, but sizes agree with this one.
    SizeConsistent,
    /// The evidence names several, or a size contradicts it.
    Ambiguous,
    /// A guess from what is around, such as source text or the name of a C function.
    Probable,
    /// Nothing is known.
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

/// What a type was concluded from. Displays as plain words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The type arguments of a function that the debug information has inlined there.
    Inlined(Arc<str>),
    /// The type arguments of a function that is there itself.
    Function(Arc<str>),
    /// A template parameter, by its name: `_Tp`.
    TemplateParameter(Arc<str>),
    /// The object is constructed right after the call.
    Constructor,
    /// The text of the source line.
    SourceText,
    /// A variable that the result is put into, by its name.
    Variable(Arc<str>),
    /// The name of the function in the symbol table.
    SymbolName(Arc<str>),
    /// The C function that allocates for its caller.
    CFunction(Arc<str>),
    /// Nothing.
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

/// Whether the sizes of blocks agree with a type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SizeCheck {
    /// They do.
    Consistent,
    /// They do not; why, in plain words: "40 bytes in 1 block, but Foo has 24".
    Inconsistent(Box<str>),
    /// The size of the type is not known, or says nothing.
    NotPossible,
}

/// What a stack's places know, innermost place first: what all rules are functions of.
pub(crate) type Places<'p> = &'p [Arc<[TypedFrame]>];

impl Symbolizer {
    /// What is at an address as far as types are concerned, innermost inlined function first; never empty. The last one is
    /// the physical function.
    ///
    /// `offset` is as for [`frames`](Self::frames). Answers are kept, and like names they come from the cache where a run
    /// before has left them.
    pub fn typed_frames(&self, module: ModuleRef<'_>, offset: u64) -> Arc<[TypedFrame]> {
        self.with(module, |module, finder| module.typed_frames(offset, finder))
    }

    /// The type of the blocks that a stack allocates.
    ///
    /// `stack` has the places innermost first, offsets as for [`frames`](Self::frames): inside the call. More than the
    /// innermost 64 places are not looked at. `sizes` is what was allocated there, if that is known.
    ///
    /// Conclusions are in the cache too: the same question in a later run takes a few microseconds.
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

    /// The type, and how many places were looked at for it.
    fn conclude(&self, stack: &[(ModuleRef<'_>, u64)], sizes: SiteSizes) -> (SiteType, usize) {
        let mut places: Vec<Arc<[TypedFrame]>> = Vec::new();
        let (mut is_asked, mut own) = (false, 0);
        for &(module, offset) in stack {
            let frames = self.typed_frames(module, offset);
            is_asked |= frames.iter().any(rust::is_entry);
            let asks = frames.last().is_some_and(rust::asks);
            places.push(frames);
            // In Rust, nothing beyond the function that asks a library for memory is of interest. Before the allocator has
            // been asked, it is the allocator's.
            own += usize::from(asks && !is_asked);
            if asks && is_asked || own > ALLOCATOR_MAX {
                break;
            }
        }
        (conclude(&places, Below::of(stack, &places), sizes), places.len())
    }

    /// What the modules of these places are made from: a hash. `None` if something stood in the way of better answers.
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

/// Where the innermost places of a stack are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Below {
    /// How many of them are in the C library or its loader.
    in_libc: usize,
    /// Whether what asks the allocator is a shared library: its functions are called by names that others know.
    is_shared: bool,
}

impl Below {
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

/// Places looked at.
const PLACES_MAX: usize = 64;
/// Functions of a program's own allocator that are looked through.
const ALLOCATOR_MAX: usize = 16;

/// Asks the rules of the language that allocates.
fn conclude(places: Places<'_>, below: Below, sizes: SiteSizes) -> SiteType {
    if let Some(found) = python::site_type(places, below, sizes) {
        return found;
    }
    let frames = places.iter().flat_map(|frames| frames.iter());
    let mut languages = frames.filter(|frame| !frame.is_allocator()).map(|frame| frame.language).peekable();
    // Functions without a name, between one that is known and the allocator, are a library's.
    let is_library = languages.peek() == Some(&Language::Other);
    let language = languages.find(|language| *language != Language::Other);
    // What the C library needs for itself is called the same, whether or not its debug information is at hand.
    let frames = places.iter().skip(below.in_libc).flat_map(|frames| frames.iter());
    let calls = frames.map(|frame| frame.language).find(|&language| language != Language::Other);
    let is_libcs = below.in_libc > 0;
    if (is_library || is_libcs)
        && let Some(found) = c::library_block(places, below, calls)
    {
        return found;
    }
    let mut found = match language {
        Some(Language::Rust) => rust::site_type(places, sizes),
        Some(Language::Cxx) => cxx::site_type(places, sizes),
        Some(Language::C) => c::site_type(places, below, sizes),
        _ => SiteType::unknown(),
    };
    // Nothing is consistent with sizes that are not known.
    if found.confidence == Confidence::SizeConsistent && found.size_check != SizeCheck::Consistent {
        found.confidence = Confidence::Probable;
    }
    found
}
