//! Makes the plans by which programs redirect the entry points of allocators inside of them.
//!
//! A program asks before its first constructor runs. Its modules are read from `/proc/PID/maps`,
//! and the files through its own root. What a file has is kept, so a program that is started a
//! thousand times is examined once.

mod maps;
mod stubs;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use heapledger_entries::{Allocator, Family, Module};
use heapledger_symbols::Headers;
use heapledger_wire::entries::EntryKind;
use heapledger_wire::redirection::{JUMPS_MAX, PAGE_LENGTH, PLAN_LENGTH_MAX, Plan, REGIONS_MAX, Region};
use rustix::fs::{MemfdFlags, SealFlags};

use maps::{Mapped, Mappings};
use stubs::Stubs;

/// The most files whose allocators are kept.
const FILES_MAX: usize = 4096;

/// The allocators of the files that have been examined. One table for the process, so that the
/// command, which says what will be recorded, has done the work before the program waits for it.
static FILES: LazyLock<Mutex<HashMap<FileKey, Arc<[ModulePlan]>>>> = LazyLock::new(Mutex::default);

/// A file that has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    is_program: bool,
}

/// An allocator in a file, and how its entries are redirected.
#[derive(Debug)]
struct ModulePlan {
    plan: heapledger_entries::Plan,
    family: Family,
    /// The address of its function for usable sizes, in the module's own addresses.
    usable: Option<u64>,
    headers: Arc<Headers>,
}

/// A plan's file.
#[derive(Debug)]
pub(crate) struct PlanFile {
    pub(crate) fd: OwnedFd,
    /// The bytes of the plan without its code.
    pub(crate) length: usize,
}

/// Makes the plan for a process whose threads wait for it. `None` if nothing is to be
/// redirected, or the process cannot be examined. `thunk` is the address to which stubs lead.
pub(crate) fn plan(pid: u32, thunk: u64) -> Option<PlanFile> {
    let mut mappings = Mappings::of(pid)?;
    let modules = mappings.modules();
    // A sanitizer's own allocator has to be left alone, and keeps shadow memory near everything.
    if modules.iter().any(|module| is_sanitizer(&module.path)) {
        return None;
    }
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let (mut regions, mut jumps, mut code) = (Vec::new(), Vec::new(), Vec::new());
    for module in modules.iter().filter(|module| !is_known_without(&module.path)) {
        for found in allocators_of(pid, module, module.path == program).iter() {
            let Some(bias) = found.headers.bias(module.start, module.offset) else { continue };
            let mut stubs = Stubs::new(&found.plan, bias, thunk);
            let length = (stubs.length_max() as u64).next_multiple_of(PAGE_LENGTH);
            let is_full = regions.len() == REGIONS_MAX
                || jumps.len() + found.plan.patches.len() > JUMPS_MAX
                || code.len() as u64 + length > PLAN_LENGTH_MAX as u64 / 2;
            if is_full || found.plan.patches.is_empty() {
                continue;
            }
            let Some(address) = mappings.take_gap_near(module, length) else { continue };
            let usable = found.usable.map_or(0, |usable| usable.wrapping_add(bias));
            let (bytes, own_jumps) = stubs.place(address, usable);
            if own_jumps.is_empty() {
                continue;
            }
            regions.push(Region { address, length, offset: code.len() as u64 });
            jumps.extend(own_jumps);
            code.extend(bytes);
            code.resize(code.len().next_multiple_of(PAGE_LENGTH as usize), 0);
            code.resize(regions.iter().map(|region| region.length as usize).sum(), 0);
        }
    }
    if jumps.is_empty() {
        return None;
    }
    let length = Plan::length(regions.len(), jumps.len());
    let before = (length as u64).next_multiple_of(PAGE_LENGTH);
    for region in &mut regions {
        region.offset += before;
    }
    let mut bytes = Vec::with_capacity(before as usize + code.len());
    Plan::encode(&regions, &jumps, |word| bytes.extend(word.to_ne_bytes()));
    bytes.resize(before as usize, 0);
    bytes.extend(code);
    Some(PlanFile { fd: sealed_file(&bytes).ok()?, length })
}

/// Returns the allocators in a module that are redirected.
fn allocators_of(pid: u32, module: &Mapped, is_program: bool) -> Arc<[ModulePlan]> {
    let file = file_of(pid, &module.path, is_program);
    // Another file may have taken the place of the one that is mapped.
    match fs::metadata(&file) {
        Ok(metadata) if metadata.ino() == module.inode => allocators_in(&file, &metadata, is_program),
        _ => Arc::from([]),
    }
}

/// Returns the allocators in a file that are redirected. A file is examined once.
fn allocators_in(file: &Path, metadata: &fs::Metadata, is_program: bool) -> Arc<[ModulePlan]> {
    let key = FileKey {
        device: metadata.dev(),
        inode: metadata.ino(),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        is_program,
    };
    let lock = || FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&key) {
        return Arc::clone(known);
    }
    let found: Arc<[ModulePlan]> = examine(file, is_program).into();
    let mut files = lock();
    if files.len() < FILES_MAX {
        files.insert(key, Arc::clone(&found));
    }
    found
}

/// Returns the path by which a file of a process can be read.
fn file_of(pid: u32, path: &Path, is_program: bool) -> PathBuf {
    if is_program {
        return PathBuf::from(format!("/proc/{pid}/exe"));
    }
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    path.strip_prefix("/").map_or_else(|_| path.to_owned(), |path| root.join(path))
}

/// Returns the allocators in a file that are redirected.
fn examine(file: &Path, is_program: bool) -> Vec<ModulePlan> {
    let Ok(module) = Module::open(file) else { return Vec::new() };
    let Ok(found) = heapledger_entries::find(&module) else { return Vec::new() };
    let all = found.allocators.into_iter();
    let wanted: Vec<Allocator> = all.filter(|allocator| is_redirected(allocator, is_program)).collect();
    // To plan is a pass over all code.
    if wanted.is_empty() {
        return Vec::new();
    }
    let Some(headers) = Headers::read(file).map(Arc::new) else { return Vec::new() };
    let plans = heapledger_entries::plan_all(&module, &wanted);
    wanted
        .iter()
        .zip(plans)
        .map(|(allocator, plan)| ModulePlan {
            plan,
            family: allocator.family,
            usable: allocator.entry(EntryKind::UsableSize).map(|entry| entry.at),
            headers: Arc::clone(&headers),
        })
        .collect()
}

/// An allocator inside of a program, whose entry points a recording redirects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectedAllocator {
    /// Its name, such as `jemalloc`.
    pub family: &'static str,
    /// The number of its entry points that are redirected.
    pub entries: usize,
    /// The names of its entry points whose calls are not seen, because they cannot be redirected.
    pub refused: Vec<String>,
}

/// Returns the allocators inside of a program's file that a recording redirects. Empty if there are
/// none, or the file cannot be read. Reads the file's symbols and, if there is an allocator, all
/// its code, once for each file: a browser's takes seconds.
pub fn redirected_allocators(program: &Path) -> Vec<RedirectedAllocator> {
    let Ok(metadata) = fs::metadata(program) else { return Vec::new() };
    let found = allocators_in(program, &metadata, true);
    let events = |plan: &heapledger_entries::Plan| {
        let refused = plan.refused.iter().filter(|refused| refused.entry.kind.is_event());
        refused.map(|refused| refused.entry.name.clone()).collect()
    };
    found
        .iter()
        .filter(|found| !found.plan.patches.is_empty())
        .map(|found| RedirectedAllocator {
            family: found.family.name(),
            entries: found.plan.patches.len(),
            refused: events(&found.plan),
        })
        .collect()
}

/// True if the calls of an allocator do not reach the preload library anyway.
fn is_redirected(allocator: &Allocator, is_program: bool) -> bool {
    match allocator.family {
        // The C library's own, in a static program; and functions over malloc, whose calls of it
        // are seen.
        Family::Glibc | Family::Musl | Family::Operators | Family::RustShims => false,
        // A library that exports malloc comes behind the preload library, and wraps the C
        // library's.
        Family::Malloc => is_program,
        _ => true,
    }
}

fn is_sanitizer(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    [&b"libasan.so"[..], b"libtsan.so", b"libhwasan.so", b"liblsan.so", b"libclang_rt."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// True for the libraries of nearly every program that have no allocator beside the C library's,
/// and for ours.
fn is_known_without(path: &Path) -> bool {
    const KNOWN: [&[u8]; 11] = [
        b"libheapledger",
        b"ld-linux",
        b"libc.so.",
        b"libc-2.",
        b"libm.so.",
        b"libm-2.",
        b"libpthread",
        b"libdl",
        b"librt",
        b"libgcc_s.so",
        b"libstdc++.so",
    ];
    let name = path.file_name().unwrap_or_default().as_bytes();
    KNOWN.iter().any(|known| name.starts_with(known))
}

/// Returns a file in memory with these bytes, which nobody can change, and which may be executed.
fn sealed_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag; some later ones are configured to require it.
    let fd = rustix::fs::memfd_create(c"heapledger", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create(c"heapledger", flags))?;
    let mut file = fs::File::from(fd);
    file.write_all(bytes)?;
    let fd = OwnedFd::from(file);
    rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}
