//! The bodies of fuzz targets, shared with property tests.

use crate::suppressions::{self, Suppressions};

/// Reads the bytes before the first zero byte as a file of suppressions, and matches them against
/// the name that follows it. Panics only if one of these steps does.
pub fn suppressions(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0).map(String::from_utf8_lossy);
    let (file, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut known = Suppressions::default();
    // The lines before an invalid one have been added.
    let _ = known.add(&file);
    known.iter().for_each(|it| _ = suppressions::matches(&it.pattern, &name));
}
