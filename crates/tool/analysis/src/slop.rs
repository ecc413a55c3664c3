//! The slop of blocks: the bytes that their allocator lets the program use beyond those it asked
//! for.

use std::fmt;

use heapledger_core::Bytes;
use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_recording::{EventsBuffer, ImageId, Recording};

use crate::error::Error;
use crate::replay::visitor::Origin;
use crate::size_rules::SizeRule;

/// The source of the usable sizes from which the slop of a recording's blocks follows. Formatted,
/// it is a text such as `asked` or `computed for glibc 2.36`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlopSource {
    /// True if the program's allocator was asked for each block (`record --usable`).
    pub is_asked: bool,
    /// The allocators by whose size classes it is computed otherwise, each once.
    pub allocators: Vec<(AllocatorKind, AllocatorVersion)>,
    /// The number of images whose allocator is not known, or has no known size classes. Their
    /// blocks count as if they had no slop, unless the allocator was asked.
    pub images_unknown: usize,
}

impl SlopSource {
    /// Returns the source for these images of a recording. Reads at most one chunk of events of
    /// each. Fails if nothing is known about the slop of any of them.
    pub fn of(recording: &Recording<'_>, images: &[ImageId]) -> Result<SlopSource, Error> {
        let mut source = SlopSource { is_asked: has_usable_sizes(recording, images), ..SlopSource::default() };
        for start in images.iter().filter_map(|&image| recording.image(image)) {
            let allocator = (start.allocator, start.allocator_version);
            match SizeRule::of(allocator.0, allocator.1) {
                None => source.images_unknown += 1,
                Some(_) if source.allocators.contains(&allocator) => {}
                Some(_) => source.allocators.push(allocator),
            }
        }
        let is_known = source.is_asked || !source.allocators.is_empty() || images.is_empty();
        if is_known { Ok(source) } else { Err(Error::NoUsableSizes) }
    }
}

impl fmt::Display for SlopSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_asked {
            return formatter.write_str("asked");
        }
        let names: Vec<String> =
            self.allocators.iter().map(|(kind, version)| allocator_name(*kind, *version)).collect();
        write!(formatter, "computed for {}", names.join(", "))?;
        match self.images_unknown {
            0 => Ok(()),
            1 => formatter.write_str("; not known for 1 program"),
            more => write!(formatter, "; not known for {more} programs"),
        }
    }
}

/// Returns the name of an allocator, with its version if that is known: `glibc 2.36`.
pub fn allocator_name(kind: AllocatorKind, version: AllocatorVersion) -> String {
    let name = match kind {
        AllocatorKind::Unknown => "an allocator that was not recorded",
        AllocatorKind::Other => "another allocator",
        AllocatorKind::Glibc => "glibc",
        AllocatorKind::Jemalloc => "jemalloc",
        AllocatorKind::Tcmalloc => "tcmalloc",
        AllocatorKind::Mimalloc => "mimalloc",
        AllocatorKind::Heapledger => "Heapledger's allocator",
    };
    match version.numbers() {
        (0, 0, 0) => name.to_owned(),
        (major, minor, 0) => format!("{name} {major}.{minor}"),
        (major, minor, patch) => format!("{name} {major}.{minor}.{patch}"),
    }
}

/// True if the first chunk of events of one of these images has usable sizes.
fn has_usable_sizes(recording: &Recording<'_>, images: &[ImageId]) -> bool {
    let mut buffer = EventsBuffer::default();
    images.iter().any(|&image| {
        let Some(chunk) = recording.event_chunks(image).next() else { return false };
        // Damage is reported where the events are needed.
        let Ok(events) = chunk.decode(&mut buffer) else { return false };
        !events.usable_sizes().is_empty() || events.all_extras().iter().any(|(_, extras)| extras.usable.is_some())
    })
}

/// The rules by which usable sizes are computed that were not recorded, for each image.
pub(crate) struct SlopRules {
    rules: Vec<Option<SizeRule>>,
}

impl SlopRules {
    /// Returns the rules for a recording.
    pub(crate) fn of(recording: &Recording<'_>) -> SlopRules {
        let mut rules = Vec::new();
        for start in recording.images() {
            let at = start.image.0 as usize;
            // Numbers of images are dense, except in damaged files.
            if at >= rules.len() && at <= recording.images().len() * 4 + 1024 {
                rules.resize(at + 1, None);
            }
            if let Some(rule) = rules.get_mut(at) {
                *rule = SizeRule::of(start.allocator, start.allocator_version);
            }
        }
        SlopRules { rules }
    }

    /// Returns the usable size of a block: recorded, or computed. `None` if it is not known.
    pub(crate) fn usable(&self, image: ImageId, size: Bytes, recorded: Option<Bytes>) -> Option<Bytes> {
        recorded.or_else(|| Some(self.rules.get(image.0 as usize)?.as_ref()?.usable(size)))
    }

    /// Returns the slop of a block; 0 if it is not known.
    pub(crate) fn slop(&self, origin: &Origin) -> Bytes {
        let usable = self.usable(origin.image, origin.size, origin.usable);
        Bytes(usable.map_or(0, |usable| usable.0.saturating_sub(origin.size.0)))
    }
}
