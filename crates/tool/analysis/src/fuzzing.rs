//! The bodies of fuzz targets, shared with property tests.

use heapledger_core::ThreadId;
use heapledger_recording::{Annotation, ImageId, Time};

use crate::allocator_event;
use crate::suppressions::{self, Suppressions};

/// Decodes bytes as an annotation about an arena or a purge: the first two are its code. Panics
/// only if the decoder does.
pub fn annotation(data: &[u8]) {
    let Some((code, payload)) = data.split_first_chunk() else { return };
    let (code, payload) = (u32::from(u16::from_le_bytes(*code)), payload.to_vec());
    let annotation = Annotation { image: ImageId(0), thread: ThreadId(0), time: Time(0), code, payload };
    let _ = allocator_event(&annotation);
}

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
