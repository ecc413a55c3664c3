//! Starts that fail, in a program whose allocator calls no hooks, and a fork afterwards.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::ffi::c_int;

use heapledger_core::hooks::HookError;
use heapledger_phc::{PhcOptions, PhcStartError, is_running, start};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: c_int) -> !;
}

/// Returns the bytes of addresses of this process.
fn addresses() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn starts_that_fail_leave_forks_as_they_were() {
    let options = PhcOptions { memory_min: 0, ..PhcOptions::default() };
    let fail = || assert_eq!(start(&options), Err(PhcStartError::Hooks(HookError::NoAllocator)));
    fail();
    let before = addresses();
    (0..10).for_each(|_| fail());
    let grown = addresses().saturating_sub(before);
    assert!(grown < heapledger_phc::RESERVE as u64, "each start has reserved addresses: {grown} bytes");
    assert!(!is_running());
    // SAFETY: the C library's functions; the child does nothing but end. A wait for ever is a
    // failure.
    unsafe {
        alarm(60);
        let child = fork();
        if child == 0 {
            _exit(0);
        }
        let mut status = -1;
        assert_eq!((waitpid(child, &raw mut status, 0), status), (child, 0));
        alarm(0);
    }
}
