use super::*;

fn kinds(memory: &ResidentMemory) -> Vec<PartKind> {
    let mut kinds: Vec<PartKind> = memory.parts.iter().map(|part| part.kind).collect();
    kinds.dedup();
    kinds
}

/// The parts of this process are close to the kernel's figure, though other tests run meanwhile.
#[test]
fn this_process_is_accounted_for() {
    let block = std::hint::black_box(vec![1_u8; 8 << 20]);
    let memory = ResidentMemory::of_process(std::process::id()).unwrap();
    assert!(memory.difference().unsigned_abs() < 64 << 20, "{memory:#?}");
    let kinds = kinds(&memory);
    for kind in [PartKind::GlibcUsed, PartKind::GlibcMapped, PartKind::MainStack, PartKind::ThreadStack, PartKind::File]
    {
        assert!(kinds.contains(&kind), "{kind:?}: {memory:#?}");
    }
    assert!(kinds.is_sorted(), "{kinds:?}");
    // The block has a mapping of its own, and all of it is resident.
    let start = block.as_ptr().expose_provenance() as u64;
    assert_eq!(memory.present_pages().bytes_within(start..start + (8 << 20)), 8 << 20);
    let mapped = memory.parts.iter().find(|part| part.kind == PartKind::GlibcMapped).unwrap();
    assert!(mapped.resident >= 8 << 20, "{memory:#?}");
}

#[test]
fn a_process_that_is_not_there() {
    assert!(matches!(ResidentMemory::of_process(u32::MAX), Err(ResidentError::NoProcess(u32::MAX))));
}

#[test]
fn names_of_mappings() {
    assert_eq!(name_of("[anon: Go: heap]"), " Go: heap");
    assert_eq!(name_of("[heap]"), "[heap]");
    let shared = |name: &str, is_shared, inode| {
        let name = name.to_owned();
        is_shared_memory(&SystemMapping { name, is_shared, inode, ..SystemMapping::default() })
    };
    assert!(shared("/memfd:pool (deleted)", true, 5) && shared("/SYSV00000000 (deleted)", true, 1));
    assert!(shared("/dev/shm/x", true, 9) && shared("", true, 0));
    assert!(!shared("/usr/lib/libc.so.6", false, 7) && !shared("/var/lib/data", true, 7) && !shared("", false, 0));
}
