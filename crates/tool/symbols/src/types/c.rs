//! C: the function that allocates for its caller.

use super::{Places, SiteSizes, SiteType};

/// The type of the blocks that a stack allocates whose innermost function, allocators aside, is C.
pub(crate) fn site_type(_places: Places<'_>, _sizes: SiteSizes) -> SiteType {
    SiteType::unknown()
}
