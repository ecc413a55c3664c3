//! Containers of anything.

use heapledger_core::Bytes;

use crate::Meter;

/// A container whose own blocks can be measured, whatever is in it.
///
/// ```
/// # extern crate heapledger_measure as heapledger;
/// use heapledger::{Bytes, HeapContainer, HeapSize, Meter};
/// use std::path::PathBuf;
///
/// /// From a crate that knows nothing of measuring.
/// struct Entry {
///     path: PathBuf,
/// }
///
/// let entries = vec![Entry { path: "a/path".into() }];
/// let mut meter = Meter::new();
/// let all = entries.heap_size_with(&mut meter, |entry, meter| entry.path.heap_size(meter));
/// let own = entries.shallow_size(&mut meter);
/// assert!(all.0 >= own.0 + 6);
/// ```
///
/// Of maps the closure gets pairs: `|(key, value), meter| …`.
pub trait HeapContainer {
    /// What the closure gets for an element.
    type Element<'c>
    where
        Self: 'c;

    /// Bytes of the container's own blocks, without what its elements own.
    fn shallow_size(&self, meter: &mut Meter) -> Bytes;

    /// The same and, for each element, what the closure says: memory that the element owns, itself not included.
    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, size: F) -> Bytes
    where
        F: FnMut(Self::Element<'c>, &mut Meter) -> Bytes;
}
