//! The dynamic linker's function for debuggers in a program that runs, and the stub that is called
//! in its place.
//!
//! ```text
//! 0   address of the library's function
//! 8   stub:  jmp [0]
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;

use heapledger_wire::linker::{LINKER_FUNCTION_LENGTH, replaceable};
use heapledger_wire::redirection::{Jump, PAGE_LENGTH, REGIONS_MAX, Region};

use super::maps::Mappings;
use super::{Parts, file_of, linker_symbol};

/// `jmp qword ptr [rip - 14]`: the address is before the stub.
const STUB: [u8; 6] = [0xff, 0x25, 0xf2, 0xff, 0xff, 0xff];

/// True for the code of the stub.
pub(super) fn is_stub(code: &[u8]) -> bool {
    code.starts_with(&STUB)
}

/// Adds a stub for the linker's function, which leads to `event`. Without room for it, or if the
/// function does anything, it is left alone.
pub(super) fn add_event(parts: &mut Parts, pid: u32, event: u64, mappings: &mut Mappings) {
    let Some(address) = linker_symbol(pid, "_dl_debug_state") else { return };
    let modules = mappings.modules();
    let Some(module) = modules.into_iter().find(|module| (module.start..module.end).contains(&address)) else { return };
    // The file's code, not the memory's, where a recorder that was killed has left its jump.
    let mut bytes = [0; LINKER_FUNCTION_LENGTH];
    let read = file_of(pid, &module, false).and_then(|(file, _)| {
        File::open(file).and_then(|file| file.read_exact_at(&mut bytes, address - module.start + module.offset)).ok()
    });
    let Some((skipped, expected)) = read.and_then(|()| replaceable(&bytes)) else { return };
    if parts.regions.len() == REGIONS_MAX {
        return;
    }
    let Some(stub) = mappings.take_gap_near(&module, PAGE_LENGTH, false) else { return };
    let Some(jump) = Jump::new(address + skipped as u64, expected, stub + 8) else { return };
    parts.regions.push(Region { address: stub, length: PAGE_LENGTH, offset: parts.code.len() as u64 });
    parts.jumps.push(jump);
    parts.code.extend(event.to_le_bytes());
    parts.code.extend(STUB);
    parts.code.resize(parts.regions.iter().map(|region| region.length as usize).sum(), 0);
}
