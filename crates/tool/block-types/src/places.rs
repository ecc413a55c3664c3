//! The places of a stack.

use std::sync::Arc;

use heapledger_symbols::ModuleRef;

use crate::frame::TypedFrame;

/// The functions at each place of a stack, innermost place first: the input of all rules.
pub(crate) type Places<'p> = &'p [Arc<[TypedFrame]>];

/// The properties of the innermost places of a stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnermostPlaces {
    /// The number of places that are in the C library or its loader.
    pub(crate) in_libc: usize,
    /// True if the code that asks the allocator is in a shared library: its functions are called by
    /// their exported names.
    pub(crate) is_shared: bool,
}

impl InnermostPlaces {
    pub(crate) fn of(stack: &[(ModuleRef<'_>, u64)], places: Places<'_>) -> Self {
        let starts = |name: &[u8]| {
            [&b"libc.so"[..], b"libc-", b"libc.musl-", b"libpthread", b"ld-"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let in_libc = stack.iter().take_while(|(module, _)| starts(file_name(module.path))).count();
        let asks = places.iter().position(|frames| frames.iter().any(|frame| !frame.is_allocator()));
        let is_shared = asks.is_some_and(|at| file_name(stack[at].0.path).windows(3).any(|part| part == b".so"));
        Self { in_libc, is_shared }
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
