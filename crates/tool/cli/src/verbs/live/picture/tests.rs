use heapledger_core::{Blocks, Bytes};

use super::*;

#[test]
fn stacks_without_a_further_caller_have_a_row_beside_those_with_one() {
    let amount = |blocks| Amount { bytes: Bytes(10 * blocks), blocks: Blocks(blocks), ..Amount::default() };
    let caller = LiveRow { bytes: 30, blocks: 3, allocations: 5, ..LiveRow::default() };
    let row = rest(std::slice::from_ref(&caller), amount(9), Some(amount(4))).unwrap();
    assert_eq!((row.bytes, row.blocks, row.allocations), (10, 1, 4));
    assert_eq!(row.name.name, "[no caller]");
    assert_eq!(rest(std::slice::from_ref(&caller), amount(5), Some(amount(3))), None);
    // A function at the end of all its stacks has no rows at all.
    assert_eq!(rest(&[], amount(9), Some(amount(4))), None);
}
