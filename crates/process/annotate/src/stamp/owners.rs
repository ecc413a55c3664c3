//! The types that own blocks, and their blocks.

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::ffi::{CString, OsString};
use std::path::PathBuf;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;

/// A type that owns blocks of the allocator, and can say where they are: [`stamp!`](crate::stamp!)
/// takes such values.
///
/// ```
/// # extern crate heapledger_annotate as heapledger;
/// use heapledger::{OwnsBlocks, stamp};
///
/// /// Rows of numbers, end to end.
/// struct Table {
///     numbers: Vec<f64>,
///     ends: Box<[usize]>,
/// }
///
/// impl OwnsBlocks for Table {
///     fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
///         self.numbers.blocks(visit);
///         self.ends.blocks(visit);
///     }
/// }
///
/// let table = stamp!(Table { numbers: vec![0.5; 100], ends: Box::new([40, 100]) }); // two blocks of `Table`
/// # let (mut count, mut first) = (0, std::ptr::null());
/// # table.blocks(&mut |block| (count, first) = (count + 1, if count == 0 { block } else { first }));
/// # assert_eq!((count, first), (2, table.numbers.as_ptr().cast()));
/// ```
///
/// | of | are blocks of |
/// |---|---|
/// | `Box<T>`, `Rc<T>`, `Arc<T>`, `Pin<Box<T>>` | `T` (of a trait object, the trait's: `dyn Shape`) |
/// | `Vec<T>`, `VecDeque<T>`, `BinaryHeap<T>` | `[T]` |
/// | `String`, `OsString`, `PathBuf`, `CString` | the type itself |
/// | `HashMap<K, V>`, `HashSet<T>`, `BTreeMap<K, V>`, `BTreeSet<T>`, `LinkedList<T>` | the type itself: its table, or its nodes |
/// | `&B`, `&mut B`, `Option<B>`, `Result<B, E>` | what `B` says |
/// | `*const T`, `*mut T`, `NonNull<T>` | `T`: the block at or around the address, whoever owns it |
///
/// The block of a hash table is found by an element, so the block of a table without elements is
/// not found. The nodes of B-trees and lists are visited one by one.
pub trait OwnsBlocks {
    /// Returns the type of the blocks: the name of the type itself, unless the implementation knows
    /// better.
    fn type_name() -> &'static str {
        type_name::<Self>()
    }

    /// Visits the blocks: each by its address, or any address within it. It need not be known to
    /// anybody; nothing is read through it.
    fn blocks(&self, visit: &mut dyn FnMut(*const u8));
}

/// The places of values of this type are in blocks: they take room.
const fn takes_room<T>() -> bool {
    size_of::<T>() > 0
}

fn address<T: ?Sized>(value: &T) -> *const u8 {
    ptr::from_ref(value).cast()
}

impl<T: ?Sized> OwnsBlocks for Box<T> {
    fn type_name() -> &'static str {
        type_name::<T>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if size_of_val(&**self) > 0 {
            visit(address(&**self));
        }
    }
}

impl<T: ?Sized> OwnsBlocks for Pin<Box<T>> {
    fn type_name() -> &'static str {
        type_name::<T>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if size_of_val(&**self) > 0 {
            visit(address(&**self));
        }
    }
}

impl<T: ?Sized> OwnsBlocks for Rc<T> {
    fn type_name() -> &'static str {
        type_name::<T>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        // The counts are in front of the value, which may take no room.
        visit(Rc::as_ptr(self).cast::<u8>().wrapping_sub(1));
    }
}

impl<T: ?Sized> OwnsBlocks for Arc<T> {
    fn type_name() -> &'static str {
        type_name::<T>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        // As for `Rc`.
        visit(Arc::as_ptr(self).cast::<u8>().wrapping_sub(1));
    }
}

impl<T> OwnsBlocks for Vec<T> {
    fn type_name() -> &'static str {
        type_name::<[T]>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if takes_room::<T>() && self.capacity() > 0 {
            visit(self.as_ptr().cast());
        }
    }
}

impl<T> OwnsBlocks for VecDeque<T> {
    fn type_name() -> &'static str {
        type_name::<[T]>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if takes_room::<T>() && self.capacity() > 0 {
            // Where it is empty, the place of the next element.
            visit(self.as_slices().0.as_ptr().cast());
        }
    }
}

impl<T> OwnsBlocks for BinaryHeap<T> {
    fn type_name() -> &'static str {
        type_name::<[T]>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if takes_room::<T>() && self.capacity() > 0 {
            visit(self.as_slice().as_ptr().cast());
        }
    }
}

impl OwnsBlocks for String {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if self.capacity() > 0 {
            visit(self.as_ptr());
        }
    }
}

impl OwnsBlocks for OsString {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if self.capacity() > 0 {
            visit(self.as_encoded_bytes().as_ptr());
        }
    }
}

impl OwnsBlocks for PathBuf {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if self.capacity() > 0 {
            visit(self.as_os_str().as_encoded_bytes().as_ptr());
        }
    }
}

impl OwnsBlocks for CString {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        visit(self.as_ptr().cast());
    }
}

impl<K, V, S> OwnsBlocks for HashMap<K, V, S> {
    fn type_name() -> &'static str {
        type_name::<HashMap<K, V>>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if let Some((key, value)) = self.iter().next().filter(|_| takes_room::<(K, V)>()) {
            visit(if takes_room::<K>() { address(key) } else { address(value) });
        }
    }
}

impl<T, S> OwnsBlocks for HashSet<T, S> {
    fn type_name() -> &'static str {
        type_name::<HashSet<T>>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if let Some(value) = self.iter().next().filter(|_| takes_room::<T>()) {
            visit(address(value));
        }
    }
}

impl<K, V> OwnsBlocks for BTreeMap<K, V> {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if takes_room::<K>() {
            visit_nodes(self.keys(), visit);
        } else if takes_room::<V>() {
            visit_nodes(self.values(), visit);
        }
    }
}

impl<T> OwnsBlocks for BTreeSet<T> {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if takes_room::<T>() {
            visit_nodes(self.iter(), visit);
        }
    }
}

/// Visits the nodes of a tree by elements in them. One that lies right behind that before it is in
/// the same node.
fn visit_nodes<'t, T: 't>(elements: impl Iterator<Item = &'t T>, visit: &mut dyn FnMut(*const u8)) {
    let mut next = ptr::null();
    for element in elements {
        if !ptr::eq(element, next) {
            visit(address(element));
        }
        next = ptr::from_ref(element).wrapping_add(1);
    }
}

impl<T> OwnsBlocks for LinkedList<T> {
    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if takes_room::<T>() {
            self.iter().for_each(|element| visit(address(element)));
        }
    }
}

impl<B: OwnsBlocks> OwnsBlocks for &B {
    fn type_name() -> &'static str {
        B::type_name()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        (**self).blocks(visit);
    }
}

impl<B: OwnsBlocks> OwnsBlocks for &mut B {
    fn type_name() -> &'static str {
        B::type_name()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        (**self).blocks(visit);
    }
}

impl<B: OwnsBlocks> OwnsBlocks for Option<B> {
    fn type_name() -> &'static str {
        B::type_name()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        self.iter().for_each(|owner| owner.blocks(visit));
    }
}

impl<B: OwnsBlocks, E> OwnsBlocks for Result<B, E> {
    fn type_name() -> &'static str {
        B::type_name()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        self.iter().for_each(|owner| owner.blocks(visit));
    }
}

impl<T: ?Sized> OwnsBlocks for *const T {
    fn type_name() -> &'static str {
        type_name::<T>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        if !self.is_null() {
            visit(self.cast());
        }
    }
}

impl<T: ?Sized> OwnsBlocks for *mut T {
    fn type_name() -> &'static str {
        type_name::<T>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        self.cast_const().blocks(visit);
    }
}

impl<T: ?Sized> OwnsBlocks for NonNull<T> {
    fn type_name() -> &'static str {
        type_name::<T>()
    }

    fn blocks(&self, visit: &mut dyn FnMut(*const u8)) {
        visit(self.as_ptr().cast_const().cast());
    }
}
