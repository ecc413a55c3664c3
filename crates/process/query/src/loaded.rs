//! The executable and the libraries of this process.

#[cfg(target_os = "linux")]
use std::ffi::CStr;
use std::fmt;
use std::ops::Range;

use heapledger_annotate::untracked;

#[cfg(target_os = "linux")]
use crate::elf;

#[cfg(target_os = "linux")]
const BUILD_ID_NAME: &[u8] = b"GNU\0";
#[cfg(target_os = "linux")]
const BUILD_ID_KIND: u32 = 3;

/// The modules of this process (the executable and its libraries) at a moment, in the order in
/// which they were loaded.
#[derive(Clone, Debug)]
pub struct Modules(Vec<Module>);

/// An executable or a library.
#[derive(Clone, PartialEq, Eq)]
pub struct Module {
    /// The path of its file.
    pub path: String,
    /// The build id, by which a file with its debug information is found; empty if it has none.
    pub build_id: Vec<u8>,
    /// The parts of its file that are mapped, its code and its data, with their addresses.
    pub segments: Vec<Segment>,
    /// The difference between an address in memory and the same address in the file.
    bias: u64,
}

/// A part of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The range of addresses in memory.
    pub addresses: Range<u64>,
    /// The offset in the file of the segment's first byte.
    pub file_offset: u64,
    /// True if the segment is code.
    pub is_code: bool,
}

impl Modules {
    /// Returns the modules of this process as they are now.
    pub fn of_this_process() -> Modules {
        untracked::scope(Modules::now)
    }

    /// Elsewhere nothing is observed, and nobody asks where it is.
    #[cfg(not(target_os = "linux"))]
    fn now() -> Modules {
        Modules(Vec::new())
    }

    #[cfg(target_os = "linux")]
    fn now() -> Modules {
        let mut modules = Vec::new();
        elf::each(|info, headers| {
            let bias = info.dlpi_addr;
            let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
            let segments = loaded.map(|load| {
                let start = bias.wrapping_add(load.p_vaddr);
                Segment {
                    addresses: start..start.wrapping_add(load.p_memsz),
                    file_offset: load.p_offset,
                    is_code: load.p_flags & libc::PF_X != 0,
                }
            });
            let segments = segments.collect();
            let path = if info.dlpi_name.is_null() {
                String::new()
            } else {
                // SAFETY: the C library's name of the module, which ends with NUL and stays during
                // the call.
                unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
            };
            // SAFETY: the C library describes a module that stays mapped during the call.
            let mut notes = unsafe { elf::notes(bias, headers) };
            let build_id = notes.find_map(|(_, bytes, alignment)| {
                let range = elf::contents(bytes, alignment, BUILD_ID_NAME, BUILD_ID_KIND).into_iter().next()?;
                bytes.get(range).map(<[u8]>::to_vec)
            });
            modules.push(Module { path, build_id: build_id.unwrap_or_default(), segments, bias });
        });
        // The executable has no name here.
        if let (Some(first), Ok(path)) = (modules.first_mut(), std::env::current_exe()) {
            first.path = path.to_string_lossy().into_owned();
        }
        Modules(modules)
    }

    /// Returns the module that contains an address.
    pub fn find(&self, address: u64) -> Option<&Module> {
        self.0.iter().find(|module| module.segment(address).is_some())
    }

    /// Returns all modules, the executable first.
    pub fn iter(&self) -> impl Iterator<Item = &Module> {
        self.0.iter()
    }
}

impl Module {
    /// Returns the segment that contains an address.
    pub fn segment(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.addresses.contains(&address))
    }

    /// Converts an address in memory to the file's own addresses.
    pub fn own_address(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// Converts an address in the file to one in memory.
    pub fn address(&self, own: u64) -> u64 {
        own.wrapping_add(self.bias)
    }

    /// Returns the build id in hexadecimal digits.
    pub fn build_id_text(&self) -> String {
        self.build_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Module({} {})", self.path, self.build_id_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_function_is_in_the_executable() {
        let modules = Modules::of_this_process();
        let address = this_function_is_in_the_executable as fn() as usize as u64;
        let module = modules.find(address).unwrap();
        assert_eq!(module.path, std::env::current_exe().unwrap().to_string_lossy());
        assert!(!module.build_id.is_empty() && module.own_address(address) < address);
        assert!(module.segment(address).unwrap().is_code);
        assert_eq!(module.address(module.own_address(address)), address);
        let libc = modules.find(libc::getpid as unsafe extern "C" fn() -> i32 as usize as u64);
        assert!(libc.is_some(), "a stub of it, or itself");
        assert!(modules.find(0).is_none() && modules.find(&raw const module as u64).is_none());
    }
}
