//! Concludes the type of blocks from the stack that allocates them.

use crate::language::Language;
use crate::places::{InnermostPlaces, Places};
use crate::site_type::{Confidence, SiteType, SizeCheck};
use crate::sizes::SiteSizes;
use crate::{c, cxx, python, rust};

/// Applies the rules of the language that allocates.
pub(crate) fn conclude(places: Places<'_>, innermost: InnermostPlaces, sizes: SiteSizes) -> SiteType {
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
