use std::vec::Vec;

use super::*;

fn encoded(regions: &[Region], jumps: &[Jump]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Plan::encode(regions, jumps, |word| bytes.extend(word.to_ne_bytes()));
    bytes
}

const REGION: Region = Region { address: 0x10_0000, length: 0x2000, offset: 0x1000 };

#[test]
fn plans_are_read_as_they_were_written() {
    let jumps =
        [Jump::new(0x20_0000, &[1, 2, 3, 4, 5], 0x10_0010).unwrap(), Jump::new(0x1000, &[9; 24], 0x10_1fff).unwrap()];
    let bytes = encoded(&[REGION], &jumps);
    assert_eq!(bytes.len(), Plan::length(1, 2));
    let plan = Plan::parse(&bytes).unwrap();
    assert_eq!(plan.regions().collect::<Vec<_>>(), [REGION]);
    assert_eq!(plan.jumps_of(&REGION).collect::<Vec<_>>(), jumps);
}

#[test]
fn jumps_reach_two_gibibytes() {
    assert!(Jump::new(0x1_0000_0000, &[0; 5], 0x1_0000_0005 + 0x7fff_ffff).is_some());
    assert!(Jump::new(0x1_0000_0000, &[0; 5], 0x1_0000_0005 + 0x8000_0000).is_none());
    assert!(Jump::new(0x1_0000_0000, &[0; 5], 0x1_0000_0005 - 0x8000_0000).is_some());
    assert!(Jump::new(0x1_0000_0000, &[0; 5], 0x1_0000_0004 - 0x8000_0000).is_none());
}

#[test]
fn all_displaced_bytes_are_expected() {
    let bytes: Vec<u8> = (1..=19).collect();
    assert_eq!(Jump::new(0x1000, &bytes, 0x2000).unwrap().expected(), bytes);
    assert!(Jump::new(0x1000, &[0; 4], 0x2000).is_none());
    assert!(Jump::new(0x1000, &[0; 25], 0x2000).is_none());
}

#[test]
fn impossible_plans_are_refused() {
    let whole = encoded(&[REGION], &[Jump::new(0x20_0000, &[0; 5], 0x10_0000).unwrap()]);
    for length in 0..whole.len() {
        assert!(Plan::parse(&whole[..length]).is_none(), "{length}");
    }
    for (regions, jumps) in [(REGIONS_MAX as u64 + 1, 0), (0, JUMPS_MAX as u64 + 1), (u64::MAX, u64::MAX)] {
        let mut bytes = whole.clone();
        bytes[..8].copy_from_slice(&regions.to_ne_bytes());
        bytes[8..16].copy_from_slice(&jumps.to_ne_bytes());
        bytes.resize(1 << 20, 0);
        assert!(Plan::parse(&bytes).is_none(), "{regions} {jumps}");
    }
    let impossible = [
        Region { address: 0x10_0001, ..REGION },
        Region { address: 0, ..REGION },
        Region { length: 0, ..REGION },
        Region { address: !0xfff, length: 0x2000, offset: 0 },
        Region { offset: PLAN_LENGTH_MAX as u64, ..REGION },
        Region { offset: !0xfff, ..REGION },
    ];
    let bytes = encoded(&impossible, &[]);
    assert_eq!(Plan::parse(&bytes).unwrap().regions().count(), 0);
}

#[test]
fn jumps_elsewhere_are_left_out() {
    let outside = Jump::new(0x20_0000, &[0; 5], 0x10_2000).unwrap();
    let other = Jump { jump: [0xe8, 0, 0, 0, 0], ..Jump::new(0x10_0000, &[0; 5], 0x10_0005).unwrap() };
    let last = Jump { address: u64::MAX - 1, ..outside };
    let none = Jump { expected_length: 0, ..Jump::new(0x10_0000, &[0; 5], 0x10_0005).unwrap() };
    let long = Jump { expected_length: 25, ..none };
    let bytes = encoded(&[REGION], &[outside, other, last, none, long]);
    assert_eq!(Plan::parse(&bytes).unwrap().jumps_of(&REGION).count(), 0);
}

#[test]
fn a_site_is_in_memory_as_its_bytes() {
    let site = Site { pass: 1, original: 2, nothrow: 3, usable: 4, kind: 5, reserved: [0; 7] };
    let bytes = site.to_bytes();
    assert_eq!(bytes[offset_of!(Site, pass)], 1);
    assert_eq!(bytes[offset_of!(Site, original)], 2);
    assert_eq!(bytes[offset_of!(Site, nothrow)], 3);
    assert_eq!(bytes[offset_of!(Site, usable)], 4);
    assert_eq!(bytes[offset_of!(Site, kind)], 5);
}
