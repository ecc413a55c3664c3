//! Asks the recorder for the modules of a process whose C library cannot be asked about them.

use core::ptr::NonNull;

use heapledger_core::{sandbox, sys};
use heapledger_wire::module_table::TABLE_LENGTH_MAX;
use heapledger_wire::session::{PLAN_PENDING, Request, RequestKind, SessionPage};
use heapledger_wire::stall::Watchdog;

use super::{Address, RequestArguments, Socket, Timeout, has_free_descriptors, message};
use crate::session;

/// Asks for the table of the process's modules, because the module of an address is not known.
/// Returns the address and the length of the table in memory; `None` if the address is in no
/// module, or the recorder cannot tell.
pub(crate) fn request_modules(
    address: &Address,
    page: Option<&'static SessionPage>,
    unknown: u64,
) -> Option<(NonNull<u8>, usize)> {
    if sandbox::is_entered() || page.is_some_and(SessionPage::is_stalled) {
        return None;
    }
    let ask = || {
        let mut timeout = Timeout::new(address, page);
        let socket = Socket::connect(address, &mut timeout).ok()?;
        let image = u32::from(session::is_late());
        let arguments = RequestArguments { kind: RequestKind::Modules, image, fork: 0, node_base: 0 };
        socket.send(&Request { thunk: unknown, ..message(address, arguments) }, &mut timeout).ok()?;
        let (mut answer, mut descriptors) = socket.receive(&mut timeout).ok()?;
        while answer.refused == 0 && answer.image == PLAN_PENDING {
            let mut timeout = Timeout::Entries(Timeout::PLAN_NANOSECONDS, Watchdog::new(0));
            (answer, descriptors) = socket.receive(&mut timeout).ok()?;
        }
        let length = usize::try_from(answer.common_length).ok().filter(|&length| length != 0)?;
        if answer.refused != 0 || length > TABLE_LENGTH_MAX {
            return None;
        }
        let table = sys::map_file(descriptors.first().ok()?, length).ok()?;
        Some((NonNull::new(table)?, length))
    };
    // The socket, and the table's file.
    const DESCRIPTORS: i32 = 2;
    if has_free_descriptors(DESCRIPTORS) { ask() } else { super::with_descriptors(DESCRIPTORS, ask)? }
}
