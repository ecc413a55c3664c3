//! Stamping what a value owns.

use heapledger_core::bridge::{self, BridgeRef};
pub use heapledger_core::stamp::Place;

use super::OwnsBlocks;

/// Stamps the blocks of a value; [`stamp!`](crate::stamp!) calls this.
#[inline(always)]
pub fn stamped<B: OwnsBlocks>(value: B, place: &'static Place) -> B {
    if let Some(observer) = bridge::find() {
        stamp(&value, place, observer);
    }
    value
}

#[cold]
#[inline(never)]
fn stamp<B: OwnsBlocks>(value: &B, place: &'static Place, observer: BridgeRef) {
    let Some(stamp) = observer.stamp() else { return };
    let name = B::type_name();
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
    value.blocks(&mut |block| {
        // SAFETY: name and place are static; of the block only the address is asked for, and any
        // will do.
        unsafe { stamp(block.addr() as u64, name.as_ptr(), length, place) };
    });
}
