use super::*;

#[test]
fn mappings_are_distinguished() {
    let maps = b"564b018f1000-564b018f2000 rw-p 00002000 fe:00 247282   /usr/bin/a b\n\
                 564b01a00000-564b01a21000 rw-p 00000000 00:00 0        [heap]\n\
                 7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
                 7f2000000000-7f2000003000 rw-p 00000000 00:00 0        [anon:arena]\n\
                 7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0        [stack]\n";
    let is_other: Vec<bool> = Mapping::parse_list(maps).iter().map(is_for_other_use).collect();
    assert_eq!(is_other, [true, false, false, false, true]);
}
