use proptest::prelude::*;

use super::*;

const FILE: &str = "\
report
Error=use-after-free
Address=140183345012709
Access=read
Process=31949
Program=server
Thread=31950
Stack=94024000000001,94024000000002
PHCKind=FreedPage
PHCBaseAddress=140183345012704
PHCUsableSize=32
RequestedSize=32
AllocThread=31949
AllocContext=request{17} > parse
PHCAllocStack=94024000000003
FreeThread=31951
PHCFreeStack=94024000000004,94024000000005
Later=what another version says
maps
55a0-55b0 r-xp 00001000 08:01 77 /usr/bin/server
7f00-7f10 rw-p 00000000 00:00 0 

report
Error=overwritten
Address=100
Access=call
Overwritten=-3,22
Process=1
Program=a=b
Thread=1
PHCKind=InUsePage
PHCBaseAddress=100
PHCUsableSize=20
RequestedSize=20
AllocThread=1
maps

end 12 1
off memory
end 30 0
";

#[test]
fn a_file_is_read() {
    let file = parse(FILE).unwrap();
    assert_eq!((file.blocks_sampled, file.blocks_refused, &file.off[..]), (30, 0, &[OffReason::Memory][..]));
    let [first, second] = &file.reports[..] else { panic!("{file:?}") };
    let freed = PhcCall { thread: 31951, stack: vec![94_024_000_000_004, 94_024_000_000_005], ..PhcCall::default() };
    let expected = PhcBlock {
        base: 140_183_345_012_704,
        bytes_usable: 32,
        bytes_requested: 32,
        allocated: PhcCall {
            thread: 31949,
            stack: vec![94_024_000_000_003],
            context: "request{17} > parse".to_owned(),
        },
        freed: Some(freed),
    };
    assert_eq!(first.block, Some(expected));
    assert_eq!((first.error, first.access, first.kind), ("use-after-free", "read", "FreedPage"));
    assert_eq!((first.process, first.at.thread, first.maps.len()), (31949, 31950, 2));
    assert_eq!((second.overwritten, second.program, second.maps.len()), (Some([-3, 22]), "a=b", 0));
    let block = second.block.as_ref().unwrap();
    assert_eq!((&block.freed, &block.allocated.stack[..]), (&None, &[][..]));
}

#[test]
fn errors_say_where_and_why() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(error(""), "line 1: this is no line of a report of the heap checker");
    assert_eq!(error("end 1 2\nELF"), "line 2: this is no line of a report of the heap checker");
    assert_eq!(error("report\nAddress=0x12\n"), "line 2: the value of Address makes no sense");
    assert_eq!(error("report\nStack=1,,2\n"), "line 2: the value of Stack makes no sense");
    assert_eq!(error("end 1\n"), "line 1: the value of end makes no sense");
    assert_eq!(error("off hours\n"), "line 1: the value of off makes no sense");
    assert_eq!(error("report\nError=overflow\nmaps\na\n"), "line 4: the file ends within a report");
    let many = "report\nmaps\n\n".repeat(REPORTS_MAX + 1);
    assert_eq!(error(&many), "line 12289: the file has more than 4096 reports");
}

proptest! {
    #[test]
    fn damaged_files_are_no_danger(
        changes in prop::collection::vec((0..FILE.len(), any::<u8>()), 0..20),
        length in 0..=FILE.len(),
    ) {
        let mut bytes = FILE.as_bytes().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(length);
        fuzzing::reports(&bytes);
    }

    #[test]
    fn nor_is_anything_else(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzzing::reports(&bytes);
    }
}
