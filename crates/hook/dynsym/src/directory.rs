//! The loaded object that an address belongs to, and files beside it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use heapledger_core::sys::{self, Errno};

/// `Dl_info` of `<dlfcn.h>`.
#[derive(Debug)]
#[repr(C)]
pub struct Object {
    /// The name of its file, which stays.
    file: *const c_char,
    /// The address at which it begins.
    pub base: *const c_void,
    symbol: *const c_char,
    address: *const c_void,
}

unsafe extern "C" {
    /// Does not allocate.
    fn dladdr(address: *const c_void, info: *mut Object) -> c_int;
}

impl Object {
    /// Returns the object around an address, as the dynamic linker knows it.
    pub fn of(address: usize) -> Option<Object> {
        let mut object = Object { file: ptr::null(), base: ptr::null(), symbol: ptr::null(), address: ptr::null() };
        // SAFETY: the C library's function of this name, which fills such a structure, and only
        // looks the address up.
        let found = unsafe { dladdr(ptr::without_provenance(address), &raw mut object) };
        (found != 0 && !object.file.is_null()).then_some(object)
    }
}

const PATH_MAX: usize = 1024;
/// The longest name of a file in a directory, in bytes, with the NUL behind it.
const NAME_MAX: usize = 64;

/// The directory that an object was loaded from. Can be read in any thread once it has been found.
#[derive(Debug)]
pub struct Directory {
    /// The path, ending with `/`.
    path: [AtomicU8; PATH_MAX],
    /// 0 until the directory has been found.
    length: AtomicUsize,
}

impl Directory {
    /// Returns a directory that has not been found.
    pub const fn new() -> Directory {
        Directory { path: [const { AtomicU8::new(0) }; PATH_MAX], length: AtomicUsize::new(0) }
    }

    /// Finds the directory of the object that this value is in. True if there is one, and its path
    /// is not too long. Call it once.
    pub fn find(&'static self) -> bool {
        let Some(object) = Object::of((&raw const self.length).expose_provenance()) else { return false };
        // SAFETY: the loader's text, which ends with NUL and stays.
        let path = unsafe { CStr::from_ptr(object.file) }.to_bytes();
        let slash = path.iter().rposition(|&byte| byte == b'/').filter(|&slash| slash < PATH_MAX - NAME_MAX);
        let Some(slash) = slash else { return false };
        for (to, from) in self.path.iter().zip(path.iter().take(slash + 1)) {
            to.store(*from, Ordering::Relaxed);
        }
        self.length.store(slash + 1, Ordering::Release);
        true
    }

    /// Opens a file in the directory with the flags and the mode of open(2). The name has at most
    /// 63 bytes.
    ///
    /// # Errors
    ///
    /// Fails as open(2) does; with ENOENT if the directory was not found or the name is too long.
    pub fn open(&self, name: fmt::Arguments<'_>, flags: usize, mode: usize) -> Result<i32, Errno> {
        const ENOENT: Errno = Errno(2);
        let mut path = Path { bytes: [0; PATH_MAX], length: 0 };
        let length = self.length.load(Ordering::Acquire);
        self.path.iter().take(length).for_each(|byte| path.push(byte.load(Ordering::Relaxed)));
        let is_whole = path.write_fmt(name).is_ok() && path.length < length + NAME_MAX;
        if length == 0 || !is_whole {
            return Err(ENOENT);
        }
        // `bytes` has NULs behind `length`, which is less than `PATH_MAX` by the check above.
        CStr::from_bytes_until_nul(&path.bytes).map_or(Err(ENOENT), |path| sys::open(path, flags, mode))
    }
}

impl Default for Directory {
    fn default() -> Directory {
        Directory::new()
    }
}

struct Path {
    bytes: [u8; PATH_MAX],
    length: usize,
}

impl Path {
    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
            self.length += 1;
        }
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}
