//! The bodies of fuzz targets, shared with property tests.

use crate::suppressions::{self, Suppressions};

/// Reads what comes before the first zero byte as a file of suppressions, and looks for them in the name that comes after
/// it. Panics only if that does.
pub fn suppressions(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0).map(String::from_utf8_lossy);
    let (file, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut known = Suppressions::default();
    // Lines before an unsound one are there.
    let _ = known.add(&file);
    known.iter().for_each(|it| _ = suppressions::matches(&it.pattern, &name));
}
