use super::*;

#[test]
fn the_message_has_sixteen_digits() {
    let text = |size| String::from_utf8(message(size).to_vec()).unwrap().trim_end_matches('\0').to_owned();
    assert_eq!(text(0), "out of memory: 0x0000000000000000 bytes requested");
    assert_eq!(text(0x12_abcd), "out of memory: 0x000000000012abcd bytes requested");
    assert_eq!(text(u64::MAX as usize), "out of memory: 0xffffffffffffffff bytes requested");
}
