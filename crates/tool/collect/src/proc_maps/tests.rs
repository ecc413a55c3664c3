use super::*;

#[test]
fn lines_are_parsed() {
    let text = b"55d0aa000000-55d0aa001000 r-xp 00001000 08:01 1234                       /usr/bin/a program\n\
7f0000000000-7f0000021000 rw-s 00000000 00:00 0 \n\
7ffc00000000-7ffc00021000 ---p 00000000 00:00 0                          [stack]\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n\
2000-1000 rw-p 00000000 00:00 0\n\
nonsense\n";
    let regions = parse(text);
    assert_eq!(regions.len(), 4);
    let [program, shared, stack, last] = &regions[..] else { panic!() };
    assert_eq!((program.start, program.end, program.offset), (0x55d0_aa00_0000, 0x55d0_aa00_1000, 0x1000));
    assert_eq!((program.protection.bits(), program.is_shared, program.inode), (5, false, 1234));
    assert_eq!(program.name, b"/usr/bin/a program");
    assert_eq!((shared.is_shared, shared.protection.bits(), &shared.name[..]), (true, 3, &b""[..]));
    assert_eq!((stack.protection.bits(), &stack.name[..]), (0, &b"[stack]"[..]));
    assert_eq!(last.end, 0xffff_ffff_ff60_1000);
}

#[test]
fn this_process_can_be_read() {
    let here = lines_are_parsed as *const () as u64;
    let regions = read(std::process::id()).unwrap();
    assert!(regions.iter().any(|region| (region.start..region.end).contains(&here)));
    assert_eq!(read(u32::MAX), None);
}
