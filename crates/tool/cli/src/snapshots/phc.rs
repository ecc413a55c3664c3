//! `heapledger phc` for three files: of a server with three errors, of a program without any, and
//! of one in which the checker did not run. The frames are in no mapping of a file, so that they
//! are shown as addresses.

use std::fs;

use super::{answered, golden_of};

const REPORTS: &str = "\
report
Error=use-after-free
Address=140183345012709
Access=read
Process=31949
Program=server
Thread=31950
Stack=94150238892034,94150238892100
PHCKind=FreedPage
PHCBaseAddress=140183345012704
PHCUsableSize=32
RequestedSize=32
AllocThread=31949
PHCAllocStack=94150238892200
FreeThread=31951
PHCFreeStack=94150238892300,94150238892400
maps
55a11ffff000-55a130000000 r-xp 00001000 08:01 77 /nonexistent/server

report
Error=overwritten
Address=140183345020880
Access=call
Overwritten=-3,22
Process=31949
Program=server
Thread=31949
PHCKind=InUsePage
PHCBaseAddress=140183345020880
PHCUsableSize=20
RequestedSize=20
AllocThread=31949
maps

report
Error=unknown
Address=140183345029000
Access=write
Process=31949
Program=server
Thread=31949
PHCKind=Unknown
maps

end 120 3
";

#[test]
fn reports_of_the_heap_checker_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let files = [("REPORTS", REPORTS), ("CLEAN", "end 12 0\n"), ("OFF", "off memory\n")].map(|(name, text)| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        (name, path)
    });
    golden_of("phc", |line| answered(line, &files));
}
