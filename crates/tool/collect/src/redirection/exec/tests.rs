use super::*;

#[test]
fn system_calls_are_found_and_led_to_the_thunk() {
    let mut code = vec![0x90; 40];
    code[7..14].copy_from_slice(&CALLS[0]);
    code[20..27].copy_from_slice(&CALLS[1]);
    code[30..36].copy_from_slice(&CALLS[0][..6]);
    let found = sites(&code, 0x1000, false);
    assert_eq!(found, [(0x1007, CALLS[0]), (0x1014, CALLS[1])].map(|(address, call)| Site { address, call }));
    let (stubs, jumps) = stubs(&found, 0x8000, 0x7fff_1234_5678);
    assert_eq!(stubs.len(), 8 + 2 * STUB);
    assert_eq!(stubs[..8], 0x7fff_1234_5678_u64.to_le_bytes());
    for (index, (site, jump)) in found.iter().zip(&jumps).enumerate() {
        let start = 8 + index * STUB;
        assert_eq!((jump.address, jump.expected()), (site.address, &site.call[..]));
        assert_eq!(jump.target(), 0x8000 + start as u64);
        assert!(is_stub(&stubs[start..]) && !is_stub(&stubs[start + 1..]));
        assert_eq!(stubs[start + 5..start + 10], site.call[..5], "the number");
        // `call [rip + distance]` reads the address before the stubs.
        let distance = i32::from_le_bytes(stubs[start + 12..start + 16].try_into().unwrap());
        assert_eq!(start as i64 + 16 + i64::from(distance), 0);
        // The last jump leads behind the system call.
        let end = start + STUB;
        let distance = i32::from_le_bytes(stubs[end - 4..end].try_into().unwrap());
        assert_eq!(0x8000 + end as i64 + i64::from(distance), site.address as i64 + 7);
    }
}

/// A program's exit is left alone: exit_group as glibc and musl call it, and a call of a function
/// with the same numbers, which has the beginning of glibc's `_exit`.
#[test]
fn exits_are_left_alone() {
    let exit_group = [0xb8, 231, 0, 0, 0, 0x0f, 0x05];
    let glibc = [0xbe, 231, 0, 0, 0, 0xba, 60, 0, 0, 0];
    let line_number = [0xbe, 231, 0, 0, 0, 0xba, 60, 1, 0, 0];
    let code = [&exit_group[..], &glibc, &line_number].concat();
    assert_eq!(sites(&code, 0x1000, true), []);
}

#[test]
fn calls_that_change_mappings_are_found_if_they_are_wanted() {
    let munmap = [0xb8, 11, 0, 0, 0, 0x0f, 0x05];
    let getpid = [0xb8, 39, 0, 0, 0, 0x0f, 0x05];
    let code = [&munmap[..], &getpid, &CALLS[0]].concat();
    let addresses = |with| sites(&code, 0x1000, with).iter().map(|site| site.address).collect::<Vec<_>>();
    assert_eq!((addresses(false), addresses(true)), (vec![0x100e], vec![0x1000, 0x100e]));
    let (stubs, jumps) = stubs(&sites(&code, 0x1000, true), 0x8000, 1);
    assert_eq!((stubs.len(), jumps.len()), (length(2), 2));
    assert_eq!(stubs[13..18], munmap[..5], "the number");
}

#[test]
fn calls_that_may_enter_a_sandbox_are_found() {
    for number in [157_u32, 317] {
        let call = [&[0xb8][..], &number.to_le_bytes(), &[0x0f, 0x05]].concat();
        assert_eq!(sites(&call, 0x1000, false).len(), 1, "{number}");
    }
}

/// A thread that unmaps its own stack makes the call itself: the first code is that of musl's
/// `__unmapself`. Code of another function may come after a munmap, too.
#[test]
fn a_thread_that_unmaps_its_own_stack_is_left_alone() {
    let found = |between: &[u8]| {
        let code = [&MUNMAP[..], between, &SET_EXIT, &[0x0f, 0x05]].concat();
        sites(&code, 0x1000, true).len()
    };
    assert_eq!(found(&[0x48, 0x31, 0xff]), 0);
    assert_eq!(found(&[0x90; BEFORE_EXIT_MAX]), 0);
    assert_eq!(found(&[0x90; BEFORE_EXIT_MAX + 1]), 1);
    assert_eq!(sites(&MUNMAP, 0x1000, true).len(), 1);
}

#[test]
fn what_is_too_far_away_is_left_out() {
    let far = [0x1000, 0x10_0000_0000].map(|address| Site { address, call: CALLS[0] });
    let (code, jumps) = stubs(&far, 0x8000, 1);
    assert_eq!((code.len(), jumps.len()), (length(1), 1));
}
