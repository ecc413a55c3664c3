use super::*;

#[test]
fn system_calls_are_found_and_led_to_the_thunk() {
    let mut code = vec![0x90; 40];
    code[7..14].copy_from_slice(&CALL);
    code[30..36].copy_from_slice(&CALL[..6]);
    let found = sites(&code, 0x1000);
    assert_eq!(found, [0x1007]);
    let (stubs, jumps) = stubs(&found, 0x8000, 0x7fff_1234_5678);
    assert_eq!((stubs.len(), length(1)), (8 + STUB, 8 + STUB));
    assert_eq!(stubs[..8], 0x7fff_1234_5678_u64.to_le_bytes());
    let [jump] = &jumps[..] else { panic!("{jumps:?}") };
    assert_eq!((jump.address, jump.expected(), jump.target()), (0x1007, &CALL[..], 0x8008));
    // `call [rip + distance]` reads the address before the stubs.
    let distance = i32::from_le_bytes(stubs[15..19].try_into().unwrap());
    assert_eq!(8 + 11 + i64::from(distance), 0);
    // The last jump leads behind the system call.
    let distance = i32::from_le_bytes(stubs[28..32].try_into().unwrap());
    assert_eq!(0x8000 + 32 + i64::from(distance), 0x100e);
}

#[test]
fn what_is_too_far_away_is_left_out() {
    let (code, jumps) = stubs(&[0x1000, 0x10_0000_0000], 0x8000, 1);
    assert_eq!((code.len(), jumps.len()), (length(1), 1));
}
