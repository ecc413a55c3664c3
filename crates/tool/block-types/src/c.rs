//! C: the source text, the variable that receives the result, and library functions by their names.
//!
//! C has no types at run time and few in its debug information, so nothing here is more than
//! probable.

use crate::cxx_name::Type;
use crate::frame::TypedFrame;
use crate::language::Language;
use crate::places::{InnermostPlaces, Places};
use crate::site_type::{Confidence, Evidence, SiteType, SizeCheck};
use crate::sizes::SiteSizes;
use crate::type_name::TypeName;

/// The maximum number of nested wrappers around an allocator that are followed.
const WRAPPERS_MAX: usize = 8;

/// Returns the type of the blocks that a stack allocates if its innermost function, apart from
/// allocators, is C.
pub(crate) fn site_type(places: Places<'_>, innermost: InnermostPlaces, sizes: SiteSizes) -> SiteType {
    let known = by_text(places, sizes);
    known.or_else(|| library_block(places, innermost, Some(Language::C))).unwrap_or_else(SiteType::unknown)
}

/// Returns the type according to the source text, variables and results of the innermost function,
/// or of its caller as long as functions return `void *`: those are allocators. The caller of any
/// other function does not know what that allocates.
pub(crate) fn by_text(places: Places<'_>, sizes: SiteSizes) -> Option<SiteType> {
    let frames = places.iter().enumerate().flat_map(|(place, frames)| frames.iter().map(move |frame| (place, frame)));
    let frames = frames.skip_while(|(_, frame)| is_allocator(frame));
    for (place, frame) in frames.take(WRAPPERS_MAX) {
        if !matches!(frame.language, Language::C | Language::Cxx) || frame.file.is_none() {
            return None;
        }
        let mut answers = named_type(frame, sizes).map(|(of, evidence)| answer(of, evidence, place, sizes));
        // The text may be from another version of the file, or the variable another one in the same
        // register.
        let fits = |found: &SiteType| !matches!(found.size_check, SizeCheck::Inconsistent(_));
        if let Some(found) = answers.find(fits) {
            return Some(found);
        }
        if !frame.is_wrapper() {
            return None;
        }
    }
    None
}

/// A type according to some text or variable.
struct NamedType<'f> {
    type_name: &'f TypeName,
    size: Option<u64>,
    is_array: Option<bool>,
    is_more: bool,
}

/// Returns the evidence in a function, the most certain first.
fn named_type(frame: &TypedFrame, sizes: SiteSizes) -> impl Iterator<Item = (NamedType<'_>, Evidence)> {
    let exact = frame.written.iter().find(|written| !written.is_result).map(|written| {
        let is_array = Some(written.is_array).filter(|is_array| *is_array || written.is_more);
        let named_type =
            NamedType { type_name: &written.type_name, size: written.size, is_array, is_more: written.is_more };
        (named_type, Evidence::SourceText)
    });
    let guess = |type_name, size| NamedType { type_name, size, is_array: None, is_more: false };
    // If the block is smaller than the variable's type, the variable is another one in the same
    // register.
    let fits = move |size: Option<u64>| size.is_none_or(|size| sizes.are_at_least(size) != Some(false));
    let received = frame
        .received
        .as_ref()
        .filter(|received| fits(received.size))
        .map(|received| (guess(&received.type_name, received.size), Evidence::Variable(received.variable.clone())));
    let put = frame.written.iter().find(|written| written.is_result);
    let put = put.map(|written| (guess(&written.type_name, written.size), Evidence::SourceText));
    let returned = frame.result();
    let returned =
        returned.map(|returned| (guess(&returned.type_name, returned.size), Evidence::Function(frame.name.clone())));
    [exact, received, put, returned].into_iter().flatten()
}

fn answer(named_type: NamedType<'_>, evidence: Evidence, place: usize, sizes: SiteSizes) -> SiteType {
    let size =
        named_type.size.or_else(|| Type::parse(named_type.type_name.full())?.known_size()).filter(|&size| size > 0);
    let is_one = size.and_then(|size| sizes.are(size));
    let is_array = if named_type.is_more { false } else { named_type.is_array.unwrap_or(is_one == Some(false)) };
    let fits = size.and_then(|size| match () {
        () if named_type.is_more => sizes.are_at_least(size),
        () if is_array => sizes.are_several(size, 0),
        () => is_one,
    });
    let check = match (fits, size) {
        (Some(true), _) => SizeCheck::Consistent,
        (Some(false), Some(size)) => {
            let of = named_type.type_name.short();
            SizeCheck::Inconsistent(format!("{}, but {of} has {size}", sizes.in_words()).into())
        }
        _ => SizeCheck::NotPossible,
    };
    // If the sizes contradict it, the block is not shown as an array: it may have something behind
    // it, or be something else.
    let is_array = is_array && !matches!(check, SizeCheck::Inconsistent(_));
    let element = is_array.then(|| named_type.type_name.clone());
    SiteType {
        block: Some(if is_array { named_type.type_name.buffer() } else { named_type.type_name.clone() }),
        element,
        container: None,
        confidence: Confidence::Probable,
        evidence,
        candidates: Vec::new(),
        size,
        size_check: check,
        module: Some(place),
    }
}

/// Returns the type of a library's own block, "C: opendir". In the C library, the outermost
/// exported function names it; in other libraries the innermost exported function without debug
/// information. If a library has no symbol for it, the symbol that its caller called may name it.
/// Code in the program itself is not a library's, except below Rust.
pub(crate) fn library_block(
    places: Places<'_>,
    innermost: InnermostPlaces,
    caller: Option<Language>,
) -> Option<SiteType> {
    let is_rust = caller == Some(Language::Rust);
    if !innermost.is_shared && !is_rust {
        return None;
    }
    let in_libc = innermost.in_libc;
    // The function that the program calls says most about a library's own block; a tail call may
    // have removed its frame.
    let caller = places.get(in_libc).filter(|_| in_libc > 0).and_then(|frames| frames.last());
    let called = caller.and_then(|frame| frame.called.as_deref()).map(|name| (in_libc - 1, name));
    let outermost = places.iter().take(in_libc).enumerate().rev();
    let frames = outermost.filter_map(|(place, frames)| Some((place, frames.last()?)));
    let names = frames.filter(|(_, frame)| !is_allocator(frame));
    let mut names = called.into_iter().chain(names.filter_map(|(place, frame)| Some((place, public_name(frame)?))));
    if let Some((place, name)) = names.find(|(_, name)| !name.starts_with('_') && !name.contains("alloc")) {
        return Some(named_after(place, name));
    }
    let mut wrapper = None;
    for (place, frames) in places.iter().enumerate() {
        let frame = frames.last()?;
        if is_allocator(frame) {
            continue;
        }
        let is_library =
            place < in_libc || frame.file.is_none() && matches!(frame.language, Language::C | Language::Other);
        let called = || frame.called.as_deref().filter(|name| place > 0 && !name.starts_with('_'));
        let name = if is_library { public_name(frame) } else { called() };
        if let Some(name) = name {
            // A function that allocates for its callers does not tell for what.
            if !name.contains("alloc") {
                return Some(named_after(place, name));
            }
            wrapper = wrapper.or(Some((place, name)));
        }
        if !is_library {
            break;
        }
    }
    wrapper.map(|(place, name)| named_after(place, name))
}

fn named_after(place: usize, name: &str) -> SiteType {
    SiteType {
        block: Some(TypeName::plain(&format!("C: {name}"))),
        confidence: Confidence::Probable,
        evidence: Evidence::CFunction(name.into()),
        module: Some(place),
        ..SiteType::unknown()
    }
}

/// Returns the exported name of a function.
fn public_name(frame: &TypedFrame) -> Option<&str> {
    let names = std::iter::once(&*frame.name).chain(frame.aliases.iter().map(|alias| &**alias));
    names.filter(|name| !name.starts_with('_') && !name.is_empty()).min_by_key(|name| name.len())
}

fn is_allocator(frame: &TypedFrame) -> bool {
    frame.is_allocator() || frame.name.contains("::operator new")
}
