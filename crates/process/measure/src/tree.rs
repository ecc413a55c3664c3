//! Containers with their elements in nodes.

use std::collections::{BTreeMap, BTreeSet, LinkedList};
use std::mem::MaybeUninit;
use std::ptr;

use heapledger_core::Bytes;

use crate::{HeapContainer, HeapSize, Meter};

/// The number of elements that a node of the standard library's B-trees has room for.
const NODE_CAPACITY: usize = 11;
/// The maximal number of levels of a tree in this address space: a node has at least six children.
const LEVELS_MAX: usize = 24;

/// The layout of a leaf of a B-tree.
#[expect(dead_code, reason = "for its size")]
struct Leaf<K, V> {
    parent: *const u8,
    keys: [MaybeUninit<K>; NODE_CAPACITY],
    values: [MaybeUninit<V>; NODE_CAPACITY],
    numbers: [u16; 2],
}

/// The layout of an inner node of a B-tree.
#[repr(C)]
struct Internal<K, V> {
    leaf: Leaf<K, V>,
    children: [*const u8; NODE_CAPACITY + 1],
}

/// Measures the nodes of a B-tree, from the addresses of its elements in order.
///
/// In order, the elements of a leaf are followed by one element of an inner node, then come those
/// of the next leaf. The elements of a leaf are contiguous, and the one of the inner node is never
/// contiguous with them: there is other data between the elements of two nodes. An inner node is
/// met as often as it has elements. Only the inner nodes around the current position are
/// remembered, since only these can be met again.
pub(crate) struct Walk {
    /// The size of an element at these addresses.
    stride: usize,
    leaf_bytes: usize,
    internal_bytes: usize,
    is_in_leaf: bool,
    /// The address of the next element, if it is in the same leaf.
    next: usize,
    /// Inner nodes, each by the beginning and the length of its block or, if that is not known, of
    /// its elements.
    open: [(usize, usize); LEVELS_MAX],
    depth: usize,
    bytes: Bytes,
}

impl Walk {
    pub(crate) fn new<K, V>() -> Walk {
        Walk {
            stride: if size_of::<K>() > 0 { size_of::<K>() } else { size_of::<V>() },
            leaf_bytes: size_of::<Leaf<K, V>>(),
            internal_bytes: size_of::<Internal<K, V>>(),
            is_in_leaf: false,
            next: 0,
            open: [(0, 0); LEVELS_MAX],
            depth: 0,
            bytes: Bytes(0),
        }
    }

    #[inline]
    pub(crate) fn element<K, V>(&mut self, key: &K, value: &V, meter: &mut Meter) {
        let element = if size_of::<K>() > 0 { ptr::from_ref(key).addr() } else { ptr::from_ref(value).addr() };
        if !self.is_in_leaf || element != self.next {
            self.node(element, meter);
        }
        self.next = element.wrapping_add(self.stride);
    }

    /// Handles an element that is not in the same leaf as the one before it.
    fn node(&mut self, element: usize, meter: &mut Meter) {
        self.is_in_leaf = !self.is_in_leaf;
        let inside = ptr::without_provenance::<u8>(element);
        if self.is_in_leaf {
            self.bytes += meter.block_around_or(inside, self.leaf_bytes);
            return;
        }
        let open = self.open.get(..self.depth).unwrap_or(&[]);
        if let Some(at) = open.iter().rposition(|&(begin, length)| element.wrapping_sub(begin) < length) {
            self.depth = at + 1;
            return;
        }
        let node = match meter.extent_around(inside) {
            Some(extent) => {
                self.bytes += meter.known(extent);
                (extent.address as usize, extent.bytes_usable as usize)
            }
            None => {
                self.bytes += meter.computed_around(inside, self.internal_bytes);
                // The element is the node's first; the others are within this distance.
                (element, (NODE_CAPACITY - 1) * self.stride + 1)
            }
        };
        if let Some(place) = self.open.get_mut(self.depth) {
            *place = node;
            self.depth += 1;
        }
    }

    /// Returns the bytes of all nodes of the tree that lies at `tree`.
    pub(crate) fn end<T>(self, tree: &T, is_empty: bool, has_addresses: bool, meter: &mut Meter) -> Bytes {
        if is_empty {
            // An empty tree may have kept a leaf, to which no element leads.
            let leaf = meter.extent_in_words(tree, |extent| extent.bytes == self.leaf_bytes as u64);
            return leaf.map_or(Bytes(0), |extent| meter.known(extent));
        }
        // Elements without size are equal, so there is only one, in a leaf.
        if has_addresses { self.bytes } else { meter.computed(self.leaf_bytes) }
    }
}

fn map_nodes<'c, K, V, F>(map: &'c BTreeMap<K, V>, meter: &mut Meter, mut size: F) -> Bytes
where
    F: FnMut((&'c K, &'c V), &mut Meter) -> Bytes,
{
    let has_addresses = size_of::<(K, V)>() > 0;
    let mut walk = Walk::new::<K, V>();
    let mut owned = Bytes(0);
    for (key, value) in map {
        if has_addresses {
            walk.element(key, value, meter);
        }
        owned += size((key, value), meter);
    }
    owned + walk.end(map, map.is_empty(), has_addresses, meter)
}

fn set_nodes<'c, T, F>(set: &'c BTreeSet<T>, meter: &mut Meter, mut size: F) -> Bytes
where
    F: FnMut(&'c T, &mut Meter) -> Bytes,
{
    let has_addresses = size_of::<T>() > 0;
    let mut walk = Walk::new::<T, ()>();
    let mut owned = Bytes(0);
    for element in set {
        if has_addresses {
            walk.element(element, &(), meter);
        }
        owned += size(element, meter);
    }
    owned + walk.end(set, set.is_empty(), has_addresses, meter)
}

impl<K, V> HeapContainer for BTreeMap<K, V> {
    type Element<'c>
        = (&'c K, &'c V)
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        map_nodes(self, meter, |_, _| Bytes(0))
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, size: F) -> Bytes
    where
        F: FnMut((&'c K, &'c V), &mut Meter) -> Bytes,
    {
        map_nodes(self, meter, size)
    }
}

impl<K: HeapSize, V: HeapSize> HeapSize for BTreeMap<K, V> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        map_nodes(self, meter, |(key, value), meter| key.heap_size(meter) + value.heap_size(meter))
    }
}

impl<T> HeapContainer for BTreeSet<T> {
    type Element<'c>
        = &'c T
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        set_nodes(self, meter, |_, _| Bytes(0))
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, size: F) -> Bytes
    where
        F: FnMut(&'c T, &mut Meter) -> Bytes,
    {
        set_nodes(self, meter, size)
    }
}

impl<T: HeapSize> HeapSize for BTreeSet<T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        set_nodes(self, meter, |element, meter| element.heap_size(meter))
    }
}

impl<T> HeapContainer for LinkedList<T> {
    type Element<'c>
        = &'c T
    where
        Self: 'c;

    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        self.heap_size_with(meter, |_, _| Bytes(0))
    }

    fn heap_size_with<'c, F>(&'c self, meter: &mut Meter, mut size: F) -> Bytes
    where
        F: FnMut(&'c T, &mut Meter) -> Bytes,
    {
        let mut bytes = Bytes(0);
        let node = size_of::<(usize, usize, T)>();
        for element in self {
            // A zero-sized element may have its address right behind its node.
            let inside =
                if size_of::<T>() > 0 { ptr::from_ref(element) } else { ptr::from_ref(element).wrapping_byte_sub(1) };
            bytes += meter.block_around_or(inside, node) + size(element, meter);
        }
        bytes
    }
}

impl<T: HeapSize> HeapSize for LinkedList<T> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        self.heap_size_with(meter, |element, meter| element.heap_size(meter))
    }
}
