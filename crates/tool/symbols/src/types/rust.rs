//! Rust: type arguments of the functions of std.

use super::rust_name::Type;
use super::{Confidence, Evidence, Places, SiteSizes, SiteType};

/// The type of the blocks that a stack allocates whose innermost function, allocators aside, is Rust.
pub(crate) fn site_type(places: Places<'_>, _sizes: SiteSizes) -> SiteType {
    for (place, frame) in places.iter().enumerate().flat_map(|(place, frames)| frames.iter().map(move |f| (place, f))) {
        let function = Type::parse(&frame.name);
        if function.last().is_some_and(|last| last.name == "new")
            && function.path().starts_with("alloc::boxed::Box")
            && let Some(parameter) = frame.parameters.first()
        {
            return SiteType {
                block: Some(parameter.type_name.clone()),
                size: parameter.size,
                confidence: Confidence::SizeConsistent,
                evidence: Evidence::Inlined(function.spelled(false).into()),
                module: Some(place),
                ..SiteType::unknown()
            };
        }
    }
    SiteType::unknown()
}
