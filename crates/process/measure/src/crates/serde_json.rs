//! `serde_json`: values.

use std::collections::BTreeMap;
use std::ptr;

use heapledger_core::Bytes;
use serde_json::{Map, Number, Value};

use crate::hash::{is_table, table_bytes};
use crate::tree::Walk;
use crate::{HeapSize, Meter};

impl HeapSize for Value {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        match self {
            Value::Null | Value::Bool(_) => Bytes(0),
            Value::Number(number) => number.heap_size(meter),
            Value::String(text) => text.heap_size(meter),
            Value::Array(values) => values.heap_size(meter),
            Value::Object(values) => values.heap_size(meter),
        }
    }
}

/// With the feature `arbitrary_precision` of `serde_json` a number is a text that it keeps to
/// itself.
impl HeapSize for Number {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        if size_of::<Number>() != size_of::<String>() {
            return Bytes(0);
        }
        match meter.extent_in_words(self, |_| true) {
            Some(extent) => meter.known(extent),
            None => meter.computed(self.to_string().len()),
        }
    }
}

/// A B-tree, or with the feature `preserve_order` of `serde_json` an `IndexMap`: it is one of them
/// by its size.
impl HeapSize for Map<String, Value> {
    fn heap_size(&self, meter: &mut Meter) -> Bytes {
        let is_tree = const { size_of::<Map<String, Value>>() == size_of::<BTreeMap<String, Value>>() };
        let mut walk = Walk::new::<String, Value>();
        let mut owned = Bytes(0);
        for (key, value) in self {
            if is_tree {
                walk.element(key, value, meter);
            }
            owned += key.heap_size(meter) + value.heap_size(meter);
        }
        owned + if is_tree { walk.end(self, self.is_empty(), true, meter) } else { index_map(self, meter) }
    }
}

/// The entries, known by one of them, and the hash table of their numbers.
fn index_map(map: &Map<String, Value>, meter: &mut Meter) -> Bytes {
    let Some((first, _)) = map.iter().next() else {
        // It may have room, which nothing leads to.
        return Bytes(0);
    };
    let numbers = table_bytes(map.len(), size_of::<usize>());
    let entries = meter.extent_around(ptr::from_ref(first));
    let beside = |address: u64| entries.is_none_or(|entries| entries.address != address);
    let table = meter
        .extent_in_words(map, |extent| beside(extent.address) && is_table(extent.bytes, numbers, size_of::<usize>()));
    let mut known_or = |known, bytes| match known {
        Some(extent) => meter.known(extent),
        None => meter.computed(bytes),
    };
    known_or(entries, map.len() * size_of::<(usize, String, Value)>()) + known_or(table, numbers)
}
