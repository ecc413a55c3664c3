//! `bytes`: buffers with several owners, or none.

use bytes::{Bytes as Buffer, BytesMut};
use heapledger_core::Bytes;

use crate::{HeapSize, Meter, SharedHeapSize};

macro_rules! buffer {
    ($type:ident: $buffer:ident => $room:expr, $is_owned:expr) => {
        /// The ledger knows which words of the value lead to blocks: the buffer, and the data
        /// beside it for several owners. Without a ledger the size is computed, as if the value
        /// owned its bytes: those of a static buffer count too, and bytes that several parts of a
        /// buffer share count more than once.
        impl SharedHeapSize for $type {
            type Shared = [u8];

            fn shallow_size_as_owner(&self, meter: &mut Meter) -> Bytes {
                let $buffer = self;
                all(self, $room, $is_owned, meter, |_, _| true)
            }

            fn heap_size_as_owner(&self, meter: &mut Meter) -> Bytes {
                self.shallow_size_as_owner(meter)
            }

            fn shallow_size_if_first(&self, meter: &mut Meter) -> Bytes {
                let $buffer = self;
                all(self, $room, $is_owned, meter, |meter, block| {
                    meter.is_first_visit(std::ptr::without_provenance::<u8>(block))
                })
            }

            fn heap_size_if_first(&self, meter: &mut Meter) -> Bytes
            where
                Self::Shared: HeapSize,
            {
                self.shallow_size_if_first(meter)
            }
        }
    };
}

// A buffer that is not unique may be static.
buffer!(Buffer: buffer => (buffer.len(), buffer.as_ptr()), buffer.is_unique());
buffer!(BytesMut: buffer => (buffer.capacity(), buffer.as_ptr()), true);

/// Returns the size of the wanted blocks that a value leads to; computed if there is no ledger.
fn all<T>(
    value: &T,
    (room, start): (usize, *const u8),
    is_owned: bool,
    meter: &mut Meter,
    mut is_wanted: impl FnMut(&mut Meter, usize) -> bool,
) -> Bytes {
    let (mut bytes, mut first) = (Bytes(0), None);
    // Two blocks at most: the buffer, to which two words may lead, and the data beside it.
    while let Some(extent) = meter.extent_in_words(value, |extent| first != Some(extent.address)) {
        if is_wanted(meter, extent.address as usize) {
            bytes += meter.known(extent);
        }
        if first.replace(extent.address).is_some() {
            break;
        }
    }
    if first.is_none() && room > 0 && (is_owned || !meter.has_ledger()) && is_wanted(meter, start.addr()) {
        bytes += meter.computed_around(start, room);
    }
    bytes
}
