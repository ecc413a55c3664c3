use super::*;

#[test]
fn runtimes_that_need_to_be_first() {
    let mut file = [0_u8; 512];
    file[..5].copy_from_slice(b"\x7fELF\x02");
    (file[18], file[32], file[54], file[56]) = (62, 64, 56, 2);
    // Everything is mapped at 0x1000; the dynamic section is at 0x100, the names are at 0x180.
    file[64] = 1;
    file[80..88].copy_from_slice(&0x1000_u64.to_le_bytes());
    file[96..104].copy_from_slice(&512_u64.to_le_bytes());
    file[120] = 2;
    file[128..136].copy_from_slice(&0x100_u64.to_le_bytes());
    file[152..160].copy_from_slice(&64_u64.to_le_bytes());
    for (index, (tag, value)) in [(1_u64, 8_u64), (1, 24), (5, 0x1180), (0, 0)].into_iter().enumerate() {
        file[0x100 + 16 * index..][..8].copy_from_slice(&tag.to_le_bytes());
        file[0x108 + 16 * index..][..8].copy_from_slice(&value.to_le_bytes());
    }
    file[0x188..0x193].copy_from_slice(b"libasan.so.");
    file[0x198..0x1a1].copy_from_slice(b"libc.so.6");
    let asks = |file: &[u8], head: usize| {
        needs_to_be_first(&file[..head], |from, to| {
            let from = file.get(usize::try_from(from).ok()?..)?;
            let count = from.len().min(to.len());
            to[..count].copy_from_slice(&from[..count]);
            Some(count)
        })
    };
    assert!(asks(&file, 256));
    file[0x18b] = b'b';
    assert!(!asks(&file, 256));
    for head in 0..256 {
        asks(&file, head);
    }
    // No access is out of bounds, even if the file is damaged.
    for at in 0..512 {
        let mut broken = file;
        broken[at] = 0xff;
        asks(&broken, 256);
    }
}

#[test]
fn scripts_name_their_interpreter() {
    assert_eq!(classify(b"#! /usr/bin/env python3\nprint()"), Program::Script(b"/usr/bin/env"));
    assert_eq!(classify(b"#!/bin/sh"), Program::Script(b"/bin/sh"));
    assert_eq!(classify(b"#!"), Program::Script(b""));
    assert_eq!(classify(b"echo hello"), Program::Unknown);
    assert_eq!(classify(b""), Program::Unknown);
}

#[test]
fn rights_are_gained_from_others_only() {
    assert!(gains_rights(0o104755, (0, 0), (1000, 1000)));
    assert!(!gains_rights(0o104755, (0, 0), (0, 0)));
    assert!(gains_rights(0o102755, (0, 42), (0, 0)));
    assert!(!gains_rights(0o102745, (0, 42), (0, 0)));
    assert!(!gains_rights(0o100755, (0, 0), (1000, 1000)));
}

#[test]
fn linkers_of_other_libraries_are_not_supported() {
    for path in [&b"/lib64/ld-linux-x86-64.so.2\0"[..], b"/nix/store/x-glibc-2.40/lib/ld-linux-aarch64.so.1"] {
        assert!(is_supported_linker(path));
    }
    for path in [&b"/lib/ld-musl-x86_64.so.1\0"[..], b"/system/bin/linker64", b"/lib/ld64-uClibc.so.1", b""] {
        assert!(!is_supported_linker(path));
    }
    let mut head = [0_u8; 200];
    head[..5].copy_from_slice(b"\x7fELF\x02");
    (head[18], head[32], head[54], head[56]) = (62, 64, 56, 1);
    (head[64], head[72], head[96]) = (3, 120, 25);
    head[120..147].copy_from_slice(b"/lib64/ld-linux-x86-64.so.2");
    assert_eq!(classify(&head), Program::Dynamic);
    head[120..145].copy_from_slice(b"/lib/ld-musl-x86_64.so.1\0");
    assert_eq!(classify(&head), Program::Musl);
    head[120..145].copy_from_slice(b"/lib/ld-uclib-x86_64.so.1");
    assert_eq!(classify(&head), Program::Other(Obstacle::OtherLibrary));
}

#[test]
fn cut_headers_are_not_dynamic() {
    let mut head = [0_u8; 120];
    head[..5].copy_from_slice(b"\x7fELF\x02");
    head[18] = 62;
    head[32] = 64;
    head[54] = 56;
    head[56] = 1;
    assert!(matches!(classify(&head), Program::Other(_)));
    head[64] = 3;
    head[72..80].copy_from_slice(&5000_u64.to_le_bytes());
    head[96] = 20;
    assert_eq!(classify(&head), Program::Dynamic);
    for length in 4..68 {
        assert!(matches!(classify(&head[..length]), Program::Other(_)));
    }
}
