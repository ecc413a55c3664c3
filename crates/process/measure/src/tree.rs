//! What has its elements in nodes.

use std::collections::{BTreeMap, BTreeSet, LinkedList};
use std::mem::MaybeUninit;
use std::ptr;

use heapledger_core::Bytes;

use crate::{HeapContainer, HeapSize, Meter};

/// Elements that a node of the standard library's B-trees has room for.
const ROOM: usize = 11;
/// Levels of nodes that a tree in this address space can have: a node has at least six children.
const LEVELS_MAX: usize = 24;

/// What is in a leaf.
#[expect(dead_code, reason = "for its size")]
struct Leaf<K, V> {
    parent: *const u8,
    keys: [MaybeUninit<K>; ROOM],
    values: [MaybeUninit<V>; ROOM],
    numbers: [u16; 2],
}

/// What is in any other node.
#[repr(C)]
struct Internal<K, V> {
    leaf: Leaf<K, V>,
    children: [*const u8; ROOM + 1],
}

/// Measures the nodes of a B-tree, of which it is told the addresses of the elements in order.
///
/// In order, the elements of a leaf are followed by one of a node further up, then come those of the next leaf. The
/// elements of a leaf lie one right behind the other, and the one further up never right behind them: between the elements
/// of two nodes there is more than elements. A node further up is met as often as it has elements; of these nodes, those
/// are remembered that are around the place where the walk stands, since only they can be met again.
pub(crate) struct Walk {
    /// The size of what is at the addresses.
    stride: usize,
    leaf_bytes: usize,
    internal_bytes: usize,
    is_in_leaf: bool,
    /// Where the next element of the leaf would be.
    next: usize,
    /// Nodes further up, by where they, or their elements, begin and how many addresses that are.
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

    /// The element is not of the leaf that the one before it was of.
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
                // It is the node's first; the others are not further away than this.
                (element, (ROOM - 1) * self.stride + 1)
            }
        };
        if let Some(place) = self.open.get_mut(self.depth) {
            *place = node;
            self.depth += 1;
        }
    }

    /// What all nodes take, of a tree that lies here.
    pub(crate) fn end<T>(self, tree: &T, is_empty: bool, has_addresses: bool, meter: &mut Meter) -> Bytes {
        if is_empty {
            // It may have kept a leaf, to which no element leads.
            let leaf = meter.extent_in_words(tree, |extent| extent.bytes == self.leaf_bytes as u64);
            return leaf.map_or(Bytes(0), |extent| meter.known(extent));
        }
        // Elements that take no room are equal: there is one, in a leaf.
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
            // What takes no room may be said to lie right behind its node.
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
