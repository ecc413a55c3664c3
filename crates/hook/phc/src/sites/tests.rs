use std::ffi::CString;
use std::string::ToString;
use std::vec::Vec;

use super::matching::is_named;
use super::symbols::each_function;

#[test]
fn names_stand_for_functions_of_c_cxx_and_rust() {
    for (symbol, name) in [
        ("main", "main"),
        ("make.constprop.0", "make"),
        ("make@@VERSION_2", "make"),
        ("_Z9make_nodev", "make_node"),
        ("_ZN4Tree6insertEi", "Tree::insert"),
        ("_ZN4Tree6insertEi", "insert"),
        ("_ZN4Tree6insertEi", "Tree"),
        ("_ZN16heap_errors_rust4make17h0123456789abcdefE", "heap_errors_rust::make"),
        ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ("_RNvNtCs1234_7mycrate5inner3foo", "inner::foo"),
        ("_RNvCs1234_7mycrate4__ab", "mycrate::__ab"),
    ] {
        assert!(is_named(symbol.as_bytes(), name.as_bytes()), "{symbol} {name}");
    }
    for (symbol, name) in [
        ("mainly", "main"),
        ("domain", "main"),
        ("_Z9make_nodev", "make"),
        ("_Z14make_node_nextv", "make_node"),
        ("_ZN4Tree6insertEi", "Tree::remove"),
        ("_ZN4Tree6insertEi", "insert::Tree"),
        ("_ZN4Tree6insertEi", "Tree::insert::more"),
        ("_Z", "main"),
        ("_Z99999", "main"),
        ("_Z14make", "make"),
    ] {
        assert!(!is_named(symbol.as_bytes(), name.as_bytes()), "{symbol} {name}");
    }
}

/// The symbols of this test program: the function below is where it should be.
#[test]
fn functions_are_found_in_a_file() {
    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn heapledger_phc_sites_test() -> u32 {
        std::hint::black_box(7)
    }

    assert_eq!(heapledger_phc_sites_test(), 7);
    let mut found = Vec::new();
    let path = CString::new("/proc/self/exe").unwrap();
    let visit = |symbol: &[u8], start, bytes| {
        if symbol == b"heapledger_phc_sites_test" {
            found.push((start, bytes));
        }
    };
    // SAFETY: a C string.
    unsafe { each_function(path.as_ptr().cast(), visit) };
    let [(start, bytes)] = found[..] else { panic!("{found:?}") };
    let function = heapledger_phc_sites_test as *const () as u64;
    assert!(function.wrapping_sub(start).is_multiple_of(4096) && bytes < 4096, "{start:#x} {function:#x} {bytes}");
}

/// Files that are no ELF files, or damaged ones, have no functions, or some.
#[test]
fn damaged_files_are_no_danger() {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let directory = std::env::temp_dir().join(std::format!("heapledger-sites-{}", std::process::id()));
    let path = CString::new(directory.to_str().unwrap().to_string()).unwrap();
    let count = |content: &[u8]| {
        std::fs::write(&directory, content).unwrap();
        let mut count = 0;
        // SAFETY: a C string.
        unsafe { each_function(path.as_ptr().cast(), |_, _, _| count += 1) };
        count
    };
    assert_eq!((count(&[]), count(b"#!/bin/sh\n"), count(&bytes[..100])), (0, 0, 0));
    let mut random = heapledger_core::sample::Random::new(3);
    let head = 4096.min(bytes.len());
    for _ in 0..300 {
        // The header, and with it the place of the sections.
        let mut damaged = bytes[..head].to_vec();
        for _ in 0..4 {
            damaged[random.below(64) as usize] = random.word() as u8;
        }
        damaged.resize(head + 64 * 40, random.word() as u8);
        count(&damaged);
    }
    std::fs::remove_file(&directory).unwrap();
}
