//! The trait `HeapSize`.

use heapledger_core::Bytes;

use crate::Meter;

/// A type that owns memory of the heap, and can measure how much.
///
/// ```
/// # extern crate heapledger_measure as heapledger;
/// use heapledger::{Bytes, HeapSize, Meter};
///
/// struct Table {
///     name: String,
///     rows: Vec<Vec<f64>>,
///     width: usize,
/// }
///
/// impl HeapSize for Table {
///     fn heap_size(&self, meter: &mut Meter) -> Bytes {
///         // `width` owns nothing.
///         self.name.heap_size(meter) + self.rows.heap_size(meter)
///     }
/// }
///
/// let table = Table { name: "squares".to_owned(), rows: vec![vec![1.0, 4.0, 9.0]; 10], width: 3 };
/// # assert_eq!(table.width, 3);
/// assert!(table.heap_size(&mut Meter::new()).0 >= 7 + 10 * (24 + 3 * 8));
/// ```
///
/// `#[derive(HeapSize)]` writes the same.
///
/// References and raw pointers own nothing: 0. `Rc` and `Arc` are [shared](crate::SharedHeapSize),
/// and do not implement it: the compiler then asks which way of counting is meant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how much memory of the heap it owns",
    label = "`HeapSize` is not implemented for `{Self}`",
    note = "derive it: `#[derive(HeapSize)]`",
    note = "what `Rc` and `Arc` share is measured by `SharedHeapSize`: `#[heap(shared)]` on the field",
    note = "a field that is not to be measured has a reason: `#[heap(skip = \"reason\")]`"
)]
pub trait HeapSize {
    /// Returns the bytes of the blocks that the value alone owns, without the value itself: usable
    /// bytes, slop included.
    fn heap_size(&self, meter: &mut Meter) -> Bytes;

    /// True if no value of this type owns anything, so that collections need not look at each. The
    /// default is false.
    #[doc(hidden)]
    fn owns_nothing() -> bool
    where
        Self: Sized,
    {
        false
    }
}
