//! Finds the module that contains an address, and keeps track of the modules that were announced to
//! the reader.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::lock::Lock;

use crate::supplied::{self, SuppliedModule};
use crate::{Sink, rules};

/// A module as it is announced to the reader.
#[derive(Clone, Copy, Debug)]
pub struct Module<'a> {
    /// The first address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The value to subtract from an address to get the module's own.
    pub bias: u64,
    /// The epoch in which the module was seen.
    pub epoch: u32,
    /// The module's build id; empty if it has none.
    pub build_id: &'a [u8],
    /// The module's path as the dynamic linker has it; empty for the program itself.
    pub path: &'a [u8],
}

/// A module as the dynamic linker, the list, or the supplied table has it.
#[derive(Debug)]
pub struct FoundModule {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) eh_frame_hdr: u64,
    origin: Origin,
}

/// The source of a module's path and bias.
#[derive(Debug)]
enum Origin {
    Linker(*const LinkMap),
    Listed(&'static Listed),
    Supplied(SuppliedModule),
}

// SAFETY: the name that it points to is only read.
unsafe impl Sync for Listed {}

impl FoundModule {
    /// Returns the module's first address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// True if the module covers an address.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns the value to subtract from an address to get the module's own, and the module's
    /// path; empty for the program itself. Both are valid while the module is loaded.
    pub fn bias_and_path(&self) -> (u64, &[u8]) {
        let (bias, name) = match &self.origin {
            // SAFETY: the dynamic linker gave this link map for a module that is mapped; this
            // function is for modules that stay so while its result is used.
            &Origin::Linker(map) => unsafe { ((*map).addr, (*map).name) },
            Origin::Listed(module) => (module.bias, module.name),
            Origin::Supplied(module) => return (module.record.bias, module.path()),
        };
        if name.is_null() {
            return (bias, &[]);
        }
        // SAFETY: a NUL-terminated string that lives as long as the link map, or by the contract of
        // `list`.
        (bias, unsafe { CStr::from_ptr(name) }.to_bytes())
    }
}

impl FoundModule {
    /// True if it has an `.eh_frame_hdr`.
    fn has_header(&self) -> bool {
        self.contains(self.eh_frame_hdr)
    }

    /// Returns the module as the supplied table has it, if it comes from there.
    pub(crate) fn supplied(&self) -> Option<&SuppliedModule> {
        match &self.origin {
            Origin::Supplied(module) => Some(module),
            Origin::Linker(_) | Origin::Listed(_) => None,
        }
    }

    /// Returns a module of the supplied table.
    pub(crate) fn from_table(module: SuppliedModule) -> FoundModule {
        let record = module.record;
        let (start, end, eh_frame_hdr) = (record.start, record.end, record.eh_frame_hdr);
        FoundModule { start, end, eh_frame_hdr, origin: Origin::Supplied(module) }
    }
}

/// `struct dl_find_object` of glibc's `<dlfcn.h>`.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *const LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// The public head of `struct link_map` of `<link.h>`.
#[repr(C)]
#[derive(Debug)]
struct LinkMap {
    addr: u64,
    name: *const c_char,
}

type DlFindObjectFunction = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int;

static EPOCH: AtomicU32 = AtomicU32::new(0);

const KNOWN_MAX: usize = 1024;
/// The start addresses of the modules announced in this epoch.
static KNOWN: [AtomicU64; KNOWN_MAX] = [const { AtomicU64::new(0) }; KNOWN_MAX];

/// The modules that were passed to [`list`].
static LISTED: List = List {
    count: AtomicUsize::new(0),
    lock: Lock::new(),
    modules: [const { UnsafeCell::new(Listed::NONE) }; LISTED_MAX],
};
const LISTED_MAX: usize = 256;

struct List {
    count: AtomicUsize,
    lock: Lock,
    modules: [UnsafeCell<Listed>; LISTED_MAX],
}

// SAFETY: an entry is written once, under the lock, before `count` includes it; then it is only
// read.
unsafe impl Sync for List {}

/// A module as `dl_iterate_phdr` lists it.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// The first address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The value to subtract from an address to get the module's own.
    pub bias: u64,
    /// The address of its `.eh_frame_hdr`; 0 if it has none.
    pub eh_frame_hdr: u64,
    /// The module's path: NUL-terminated, or null.
    pub name: *const c_char,
}

impl Listed {
    const NONE: Listed = Listed { start: 0, end: 0, bias: 0, eh_frame_hdr: 0, name: ptr::null() };
}

/// Adds a module to the list, for C libraries without `_dl_find_object`: musl, and glibc before
/// 2.35. Modules stay on the list for ever, so one that is unloaded and replaced leads to wrong
/// stacks there.
///
/// # Safety
///
/// `module` describes a module that is mapped, as the dynamic linker would. The module and its name
/// stay.
pub unsafe fn list(module: Listed) {
    let _guard = LISTED.lock.lock();
    let count = LISTED.count.load(Ordering::Relaxed);
    if listed().any(|known| known.start == module.start) {
        return;
    }
    if let Some(slot) = LISTED.modules.get(count) {
        // SAFETY: the lock is held, and nobody reads the entry before the count is stored.
        unsafe { *slot.get() = module };
        LISTED.count.store(count + 1, Ordering::Release);
    }
}

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Debug)]
pub struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    bytes_file: u64,
    bytes: u64,
    alignment: u64,
}

/// Adds a module to the list by its program headers.
///
/// # Safety
///
/// The headers are those of a module that is mapped with this bias. `name` is null or
/// NUL-terminated. The module and its name stay.
pub unsafe fn list_headers(bias: u64, headers: &[ProgramHeader], name: *const c_char) {
    const PT_LOAD: u32 = 1;
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    let loaded = || headers.iter().filter(|header| header.kind == PT_LOAD);
    let start = loaded().map(|header| header.address).min();
    let end = loaded().map(|header| header.address.saturating_add(header.bytes)).max();
    let rules = headers.iter().find(|header| header.kind == PT_GNU_EH_FRAME);
    if let (Some(start), Some(end)) = (start, end) {
        let absolute = |address: u64| bias.wrapping_add(address);
        let eh_frame_hdr = rules.map_or(0, |rules| absolute(rules.address));
        let (start, end) = (absolute(start), absolute(end));
        // SAFETY: `list` requires the description of a mapped module that stays, as does its name.
        // This function's `# Safety` requires the same; the addresses are those of the headers,
        // moved by the bias.
        unsafe { list(Listed { start, end, bias, eh_frame_hdr, name }) };
    }
}

/// Adds the program itself to the list, from the kernel's auxiliary vector: glibc knows only a part
/// of a program whose segments have holes between them.
///
/// # Safety
///
/// `auxiliary` is the process's auxiliary vector, which ends with a null type.
pub unsafe fn list_program(auxiliary: *const [u64; 2]) {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    const PT_PHDR: u32 = 6;
    let (mut at, mut address, mut count) = (auxiliary, 0, 0);
    loop {
        // SAFETY: the vector ends with a null type, by the caller's contract, at which the loop
        // ends.
        let [kind, value] = unsafe { at.read() };
        match kind {
            0 => break,
            AT_PHDR => address = value,
            AT_PHNUM => count = value,
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    let headers = ptr::with_exposed_provenance::<ProgramHeader>(address as usize);
    if headers.is_null() {
        return;
    }
    // SAFETY: the kernel has mapped the program with its headers, and the vector has their address
    // and number.
    let headers = unsafe { core::slice::from_raw_parts(headers, count as usize) };
    let Some(own) = headers.iter().find(|header| header.kind == PT_PHDR) else { return };
    // SAFETY: the program itself is never unmapped, and its bias is that of its headers; it has no
    // name here.
    unsafe { list_headers(address.wrapping_sub(own.address), headers, ptr::null()) };
}

/// True if the C library has `_dl_find_object`: then only modules that are never unloaded need be
/// listed.
pub fn can_ask_linker() -> bool {
    dl_find_object().is_some()
}

fn listed() -> impl Iterator<Item = &'static Listed> {
    let count = LISTED.count.load(Ordering::Acquire);
    // SAFETY: entries below the count are not written any more.
    LISTED.modules.iter().take(count).map(|module| unsafe { &*module.get() })
}

/// Returns the current module epoch.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Begins a new epoch because a module may have been unmapped: addresses may mean something else
/// from now on.
pub fn advance_epoch() {
    EPOCH.fetch_add(1, Ordering::SeqCst);
    supplied::forget();
    rules::clear();
    for known in &KNOWN {
        known.store(0, Ordering::Relaxed);
    }
}

/// Returns the module that covers an address. Lock-free and allocation-free: `_dl_find_object`, in
/// glibc since 2.35, is made for unwinders. The modules passed to [`list`] are used without that
/// function, in static programs, whose bounds it does not know, and for programs of which it knows
/// only the segment around the address. The [supplied] modules come before those. A module without
/// unwind information is found, too: no rule leads out of its frames, but they are its own.
pub fn find(address: u64) -> Option<FoundModule> {
    let from_linker = dl_find_object().and_then(|find| ask_linker(find, address));
    if from_linker.as_ref().is_some_and(FoundModule::has_header) {
        return from_linker;
    }
    if let Some(supplied) = supplied::find(address) {
        return Some(FoundModule::from_table(supplied));
    }
    let listed = listed().find(|module| (module.start..module.end).contains(&address)).map(|found| {
        let Listed { start, end, eh_frame_hdr, .. } = *found;
        FoundModule { start, end, eh_frame_hdr, origin: Origin::Listed(found) }
    });
    listed.or(from_linker)
}

fn ask_linker(find: DlFindObjectFunction, address: u64) -> Option<FoundModule> {
    let mut found = DlFindObject {
        flags: 0,
        map_start: ptr::null_mut(),
        map_end: ptr::null_mut(),
        link_map: ptr::null(),
        eh_frame: ptr::null_mut(),
        reserved: [0; 7],
    };
    // SAFETY: by glibc's contract any address may be passed; if it returns 0, the structure, which
    // has the documented layout, is filled in.
    if unsafe { find(ptr::without_provenance_mut(address as usize), &mut found) } != 0 {
        return None;
    }
    Some(FoundModule {
        start: found.map_start as u64,
        end: found.map_end as u64,
        eh_frame_hdr: found.eh_frame as u64,
        origin: Origin::Linker(found.link_map),
    })
}

/// Announces a module to the sink, once per epoch. False if that failed: then it is announced the
/// next time.
pub(crate) fn announce(found: &FoundModule, epoch: u32, sink: &mut dyn Sink) -> bool {
    let slot = (found.start >> 12) as usize % KNOWN_MAX;
    let mut claimed = None;
    for step in 0..KNOWN_MAX {
        let Some(known) = KNOWN.get((slot + step) % KNOWN_MAX) else { return true };
        match known.compare_exchange(0, found.start, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                claimed = Some(known);
                break;
            }
            Err(start) if start == found.start => return true,
            Err(_) => {}
        }
    }
    // A frame of our stack uses the module, so it stays mapped.
    let (bias, path) = found.bias_and_path();
    let build_id = build_id(found, bias).unwrap_or(&[]);
    let is_told = sink.module(&Module { start: found.start, end: found.end, bias, epoch, build_id, path });
    // In another epoch it has to be announced again: the slot may have been cleared before it was
    // claimed.
    if let Some(known) = claimed.filter(|_| !is_told || self::epoch() != epoch) {
        known.store(0, Ordering::Relaxed);
    }
    is_told
}

/// Returns the GNU build id note of a mapped module, found through its program headers (ELF
/// specification; the note's type is NT_GNU_BUILD_ID, 3).
fn build_id(found: &FoundModule, bias: u64) -> Option<&'static [u8]> {
    const PT_NOTE: u32 = 4;
    let read = |address: u64, length: u64| -> Option<&'static [u8]> {
        if address < found.start || length > 4096 || address.checked_add(length)? > found.end {
            return None;
        }
        // SAFETY: inside the module's mapping; the ELF header, program headers and notes are in its
        // first, read-only segment. The slice is used before the module can be unloaded (see
        // `announce`).
        Some(unsafe { core::slice::from_raw_parts(ptr::with_exposed_provenance(address as usize), length as usize) })
    };
    let header = read(found.start, 64)?;
    if header.get(..4)? != b"\x7fELF" {
        return None;
    }
    let headers_at = u64_at(header, 32)?;
    let (entry_length, count) = (u16_at(header, 54)?, u16_at(header, 56)?);
    for index in 0..u64::from(count) {
        let at = found.start.checked_add(headers_at)?.checked_add(index * u64::from(entry_length))?;
        let entry = read(at, 56)?;
        if u32_at(entry, 0)? != PT_NOTE {
            continue;
        }
        let Some(mut notes) = read(bias.wrapping_add(u64_at(entry, 16)?), u64_at(entry, 40)?) else { continue };
        while let (Some(name), Some(length), Some(kind)) = (u32_at(notes, 0), u32_at(notes, 4), u32_at(notes, 8)) {
            let name_end = 12 + (name as usize).next_multiple_of(4);
            let end = name_end.checked_add(length as usize)?;
            if kind == 3 && notes.get(12..16) == Some(b"GNU\0") {
                return notes.get(name_end..end);
            }
            notes = notes.get(end.next_multiple_of(4)..)?;
        }
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Returns `_dl_find_object`, found by a weak reference: an older C library does not have it, and a
/// strong reference would keep the program from starting.
fn dl_find_object() -> Option<DlFindObjectFunction> {
    let address = heapledger_core::weak_address!("_dl_find_object");
    // SAFETY: not 0, so it is glibc's function of this name and type.
    (address != 0).then(|| unsafe { core::mem::transmute::<usize, DlFindObjectFunction>(address) })
}
