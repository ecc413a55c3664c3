use super::*;

/// The bytes of `_dl_debug_state` in glibc 2.36 of Debian, and as they are with `-fcf-protection`.
const PLAIN: [u8; LENGTH] =
    [0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x1f, 0x40, 0x00];
const PROTECTED: [u8; LENGTH] =
    [0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00];

#[test]
fn only_a_return_with_padding_is_replaced() {
    assert_eq!(replaceable(&PLAIN), Some((0, &PLAIN[..5])));
    assert_eq!(replaceable(&PROTECTED), Some((4, &PROTECTED[4..9])));
    let breakpoints = [0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0x48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(replaceable(&breakpoints), Some((0, &breakpoints[..5])));
    // Another function begins behind, a debugger was first, or the function does something.
    for (at, byte) in [(4, 0x55), (0, 0xcc), (0, 0x55), (2, 0xe9)] {
        let mut other = breakpoints;
        other[at] = byte;
        assert_eq!(replaceable(&other), None, "{at}");
    }
}

/// The dynamic linker of this machine has a function that can be replaced.
#[test]
fn the_linker_of_this_machine() {
    #[repr(C)]
    struct RDebug {
        version: i32,
        map: usize,
        breakpoint: u64,
    }
    unsafe extern "C" {
        static _r_debug: RDebug;
    }
    // SAFETY: the dynamic linker's own variable, which nobody changes after the start.
    let breakpoint = unsafe { (&raw const _r_debug.breakpoint).read() };
    let mut words = [0_u64; LENGTH / 8];
    assert_eq!(heapledger_core::sys::read_own_pieces(&[[breakpoint, LENGTH as u64]], &mut words), LENGTH);
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
    assert!(replaceable(&bytes).is_some(), "{bytes:x?}");
}
