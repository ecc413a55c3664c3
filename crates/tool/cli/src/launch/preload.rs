//! The libraries that are loaded into programs: `build.rs` builds them, and this binary contains
//! them.

/// The bytes of `libheapledger_preload.so`.
pub(crate) static LIBRARY: &[u8] = include_bytes!(env!("HEAPLEDGER_PRELOAD_LIBRARY"));

/// The bytes of `libheapledger_placed.so`, which is placed into statically linked programs.
pub(crate) static PLACED: &[u8] = include_bytes!(env!("HEAPLEDGER_PLACED_LIBRARY"));

/// The bytes of `libheapledger_memcheck_preload.so`.
pub(crate) static CHECKER: &[u8] = include_bytes!(env!("HEAPLEDGER_MEMCHECK_LIBRARY"));

/// The bytes of `libheapledger_replay_player.so`.
pub(crate) static PLAYER: &[u8] = include_bytes!(env!("HEAPLEDGER_PLAYER_LIBRARY"));

/// The bytes of `libheapledger_log_preload.so`.
pub(crate) static LOGGER: &[u8] = include_bytes!(env!("HEAPLEDGER_LOG_LIBRARY"));

/// The bytes of `libheapledger_allocator.so`.
pub(crate) static ALLOCATOR: &[u8] = include_bytes!(env!("HEAPLEDGER_ALLOCATOR_LIBRARY"));
/// The bytes of `libheapledger_phc_preload.so`.
pub(crate) static HEAP_CHECKER: &[u8] = include_bytes!(env!("HEAPLEDGER_PHC_LIBRARY"));

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_a_shared_library() {
        assert!(super::LIBRARY.starts_with(b"\x7fELF"));
        let has = |name: &[u8]| super::LIBRARY.windows(name.len()).any(|window| window == name);
        assert!(has(b"heapledger_bridge_v1") && has(b"posix_memalign"));
    }
}
