use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::vec::Vec;

use heapledger_core::arch::nr;
use heapledger_core::sys::{call, check};
use heapledger_wire::redirection::{Jump, PAGE_LENGTH, Plan, Region};

use super::*;

const PAGE: usize = PAGE_LENGTH as usize;
const NO_OP: u8 = 0x90;

/// Returns the address of the region for a page of code. The kernel maps from the top down: so it
/// puts nothing there before it has filled a gibibyte.
fn region_of(code: usize) -> usize {
    code - (1 << 30)
}

/// Maps a page of code, and returns its address.
fn code() -> usize {
    const PRIVATE_ANONYMOUS: usize = 0x22;
    const READ_WRITE: usize = 3;
    const READ_EXECUTE: usize = 5;
    // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
    let address = check(unsafe { call(nr::MMAP, [0, PAGE, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]) }).unwrap();
    // SAFETY: the page is writable, and nothing else refers to it.
    unsafe { core::slice::from_raw_parts_mut(core::ptr::with_exposed_provenance_mut::<u8>(address), PAGE) }.fill(NO_OP);
    // SAFETY: the page is this test's own.
    check(unsafe { call(nr::MPROTECT, [address, PAGE, READ_EXECUTE, 0, 0, 0]) }).unwrap();
    address
}

/// Returns the file of a plan for one entry, at the beginning of a page of code, and the length of
/// the plan in it.
fn plan(code: usize) -> (File, usize) {
    let start = region_of(code) as u64;
    let length = Plan::length(1, 1);
    let before = length.next_multiple_of(PAGE);
    let region = Region { address: start, length: PAGE_LENGTH, offset: before as u64 };
    let jump = Jump::new(code as u64, &[NO_OP; 5], start).unwrap();
    let mut bytes = Vec::new();
    Plan::encode(&[region], &[jump], |word| bytes.extend(word.to_ne_bytes()));
    bytes.resize(before, 0);
    bytes.resize(before + PAGE, NO_OP);
    let mut file = tempfile();
    file.write_all(&bytes).unwrap();
    (file, length)
}

/// Returns an empty file that has no name any more.
fn tempfile() -> File {
    let thread = std::thread::current().id();
    let path = std::env::temp_dir().join(std::format!("heapledger-later-{}-{thread:?}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

/// True if the region of stubs for a page of code is mapped.
fn has_region(code: usize) -> bool {
    crate::install::is_there(region_of(code) as u64, &[NO_OP; 5])
}

/// Installs the plan for a page of code.
fn install(kept: &KeptPlans, code: usize, is_loaded: IsLoaded<'_>) {
    let (file, length) = plan(code);
    let mut modules = [(0, 0); MODULES_MAX];
    modules[0] = (1, code as u64);
    // SAFETY: nobody executes the code, and the table is this test's own; `is_loaded` says that the
    // modules of plans are loaded whose stubs are looked at afterwards.
    assert_eq!(unsafe { kept.install(code as u64, &modules, file.as_raw_fd(), length, is_loaded) }, 1);
}

/// Another tool writes a jump over ours, and goes on at ours behind it: the stubs stay as long as
/// the module is loaded.
#[test]
fn stubs_of_loaded_modules_stay() {
    let kept = KeptPlans::new();
    let pages: Vec<usize> = (0..KEPT_MAX).map(|_| code()).collect();
    pages.iter().for_each(|&page| install(&kept, page, &|_| unreachable!("there is room")));
    let overwritten = Jump::new(pages[3] as u64, &[NO_OP; 5], pages[3] as u64 + 64).unwrap();
    // SAFETY: nobody executes the code.
    assert!(unsafe { crate::install::Memory::open().write(&overwritten) });
    let last = code();
    install(&kept, last, &|_| true);
    assert!(has_region(last) && pages.iter().all(|&page| has_region(page)));
    // It is unloaded.
    let next = code();
    install(&kept, next, &|(file, bias)| (file, bias) != (1, pages[3] as u64));
    let gone: Vec<usize> = pages.iter().copied().filter(|&page| !has_region(page)).collect();
    assert_eq!((gone, has_region(next)), ([pages[3]].into(), true));
}
