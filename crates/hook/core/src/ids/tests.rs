extern crate std;

use std::format;
use std::string::ToString;

use super::*;

#[test]
fn bytes_are_shown_with_their_unit() {
    let sizes = [0, 1, 1023, 1024, 1536, 1_048_524, 1_048_550, 432_642_458, u64::MAX].map(Bytes);
    let shown = sizes.map(|bytes| bytes.to_string());
    let expected = ["0 B", "1 B", "1023 B", "1.0 KiB", "1.5 KiB", "1023.9 KiB", "1.0 MiB", "412.6 MiB", "16.0 EiB"];
    assert_eq!(shown, expected);
    assert_eq!(format!("{:>9}|{:<6}|", Bytes(1536), Bytes(7)), "  1.5 KiB|7 B   |");
}
