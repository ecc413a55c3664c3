use std::vec::Vec;

use super::*;

/// The bytes are those that the structure has in memory: the library reads them as such.
#[test]
fn the_bytes_are_those_in_memory() {
    let module =
        |number: u64| PlacedModule { start: number, end: number + 1, bias: number + 2, eh_frame_hdr: number + 3 };
    let modules: Vec<PlacedModule> = (1..=MODULES_MAX as u64 + 2).map(|number| module(number * 10)).collect();
    let parameters = Parameters {
        stack_top: 1,
        entries_missed: 2,
        is_late: 3,
        allocator: 4,
        own_code: [5, 6],
        linker_state: 7,
        ..Parameters::new(b"name:token", &modules).unwrap()
    };
    assert_eq!((parameters.address(), parameters.modules()), (&b"name:token"[..], &modules[..MODULES_MAX]));
    let memory: [u8; Parameters::LENGTH] =
        // SAFETY: `Parameters` has no padding: all fields are words, or whole words of bytes, so
        // each byte is initialised.
        unsafe { core::mem::transmute(parameters) };
    assert_eq!(parameters.to_bytes(), memory);
}

#[test]
fn a_long_address_is_refused() {
    assert!(Parameters::new(&[b'x'; ADDRESS_LENGTH_MAX], &[]).is_some());
    assert_eq!(Parameters::new(&[b'x'; ADDRESS_LENGTH_MAX + 1], &[]), None);
}
