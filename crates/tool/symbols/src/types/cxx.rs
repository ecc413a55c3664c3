//! C++: template parameters, constructors, source text.

use super::cxx_name::Type;
use super::{Places, SiteSizes, SiteType, TypeName};

/// The type of the blocks that a stack allocates whose innermost function, allocators aside, is C++.
pub(crate) fn site_type(_places: Places<'_>, _sizes: SiteSizes) -> SiteType {
    SiteType::unknown()
}

/// The normal spelling of a type.
pub(crate) fn name(spelled: &str) -> TypeName {
    match Type::parse(spelled) {
        Some(parsed) => TypeName::spelled(&parsed.full(), &parsed.short()),
        None => TypeName::plain(&spelled.replace("> >", ">>")),
    }
}
