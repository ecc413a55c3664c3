//! The files that frames are in.

use std::ffi::CStr;
use std::ops::Range;

use heapledger_dmd as dmd;

use crate::elf;

const BUILD_ID_NAME: &[u8] = b"GNU\0";
const BUILD_ID_KIND: u32 = 3;

/// The modules of this process at a moment.
pub(super) struct Modules(Vec<Module>);

struct Module {
    /// Where in memory its code and data are.
    ranges: Vec<Range<u64>>,
    /// What an address in memory is more than in the file.
    bias: u64,
    file: dmd::Module,
}

impl Modules {
    pub(super) fn of_this_process() -> Modules {
        let mut modules = Vec::new();
        elf::each(|info, headers| {
            let bias = info.dlpi_addr;
            let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
            let absolute = |address: u64| bias.wrapping_add(address);
            let ranges =
                loaded.map(|load| absolute(load.p_vaddr)..absolute(load.p_vaddr.wrapping_add(load.p_memsz))).collect();
            let path = if info.dlpi_name.is_null() {
                String::new()
            } else {
                // SAFETY: the C library's name of the module, which ends with NUL and stays during the call.
                unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
            };
            // SAFETY: the C library describes a module that stays mapped during the call.
            let mut notes = unsafe { elf::notes(bias, headers) };
            let build_id = notes.find_map(|(_, bytes, alignment)| {
                let place = elf::contents(bytes, alignment, BUILD_ID_NAME, BUILD_ID_KIND).into_iter().next()?;
                bytes.get(place).map(<[u8]>::to_vec)
            });
            modules.push(Module { ranges, bias, file: dmd::Module { path, build_id: build_id.unwrap_or_default() } });
        });
        // The executable has no name here.
        if let (Some(first), Ok(path)) = (modules.first_mut(), std::env::current_exe()) {
            first.file.path = path.to_string_lossy().into_owned();
        }
        Modules(modules)
    }

    /// The file that an address is of, and what it is there.
    pub(super) fn place(&self, address: u64) -> Option<(&dmd::Module, u64)> {
        let module = self.0.iter().find(|module| module.ranges.iter().any(|range| range.contains(&address)))?;
        Some((&module.file, address.wrapping_sub(module.bias)))
    }

    /// Where in memory it is what an address in this file is.
    #[cfg(feature = "symbols")]
    pub(super) fn address(&self, path: &str, offset: u64) -> Option<u64> {
        let module = self.0.iter().find(|module| module.file.path == path)?;
        Some(offset.wrapping_add(module.bias))
    }

    /// All files, in the order in which they were loaded.
    pub(super) fn files(self) -> Vec<dmd::Module> {
        self.0.into_iter().map(|module| module.file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_function_is_in_the_executable() {
        let modules = Modules::of_this_process();
        let address = this_function_is_in_the_executable as fn() as usize as u64;
        let (file, offset) = modules.place(address).unwrap();
        assert_eq!(file.path, std::env::current_exe().unwrap().to_string_lossy());
        assert!(!file.build_id.is_empty() && offset < address);
        let libc = modules.place(libc::getpid as unsafe extern "C" fn() -> i32 as usize as u64);
        assert!(libc.is_some(), "a stub of it, or itself");
        assert!(modules.place(0).is_none() && modules.place(&raw const file as u64).is_none());
    }
}
