//! Containers of elements of any type.

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
/// For maps the closure gets pairs: `|(key, value), meter| …`.
pub trait HeapContainer {
    /// The argument that the closure gets for an element.
    type Element<'c>
    where
        Self: 'c;

    /// Returns the bytes of the container's own blocks, without the memory that its elements own.
    fn shallow_size(&self, meter: &mut Meter) -> Bytes;

    /// Returns the same and, for each element, the result of the closure: the memory that the
    /// element owns, without the element itself.
    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, size: F) -> Bytes
    where
        F: FnMut(Self::Element<'c>, &mut Meter) -> Bytes;
}
