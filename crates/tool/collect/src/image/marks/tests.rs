use super::*;

#[test]
fn mappings_are_distinguished() {
    let maps = b"564b018f1000-564b018f2000 rw-p 00002000 fe:00 247282   /usr/bin/a b\n\
                 564b01a00000-564b01a21000 rw-p 00000000 00:00 0        [heap]\n\
                 7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
                 7f2000000000-7f2000003000 rw-p 00000000 00:00 0        [anon:arena]\n\
                 7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0        [stack]\n";
    let named = |address| mapping_around(maps, address).map(|mapping| mapping.is_named);
    assert_eq!(named(0x564b_018f_1010), Some(true));
    assert_eq!((named(0x564b_01a0_0000), named(0x564b_01a2_1000)), (Some(false), None));
    assert_eq!((named(0x7f00_0000_0001), named(0x7f20_0000_0000)), (Some(false), Some(false)));
    assert_eq!((named(0x7ffc_0000_0000), named(0)), (Some(true), None));
    assert_eq!(mapping_around(b"x\n1-\n", 1), None);
}
