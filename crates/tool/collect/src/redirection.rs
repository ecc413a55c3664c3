//! Makes the plans by which programs redirect the entry points of allocators inside of them.
//!
//! A program asks before its first constructor runs, and whenever it opens libraries later. Its
//! modules are read from `/proc/PID/maps`, and the files through its own root. What a file has is
//! kept, so a program that is started a thousand times is examined once.

mod exec;
mod linker;
pub(crate) mod maps;
mod stubs;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use heapledger_core::allocator::AllocatorKind;
use heapledger_core::program::is_supported_linker;
use heapledger_entries::{Allocator, Family, Module, Patch};
use heapledger_symbols::Headers;
use heapledger_wire::entries::EntryKind;
use heapledger_wire::placed::{MODULES_MAX, PlacedModule};
use heapledger_wire::redirection::{JUMPS_MAX, Jump, PAGE_LENGTH, PLAN_LENGTH_MAX, Plan, REGIONS_MAX, Region};
use heapledger_wire::session::ENTRIES_UNKNOWN;
use rustix::fs::{MemfdFlags, SealFlags};

pub(crate) use maps::Mapped;
use maps::Mappings;
use stubs::{Library, Stubs};
pub(crate) use stubs::{STUB_LENGTH, is_placed_stub};

/// The most files whose allocators are kept.
const FILES_MAX: usize = 4096;

/// The allocators of the files that have been examined. One table for the process, so that the
/// command, which says what will be recorded, has done the work before the program waits for it.
static FILES: LazyLock<Mutex<HashMap<ExaminedAs, Arc<OnceLock<Allocators>>>>> = LazyLock::new(Mutex::default);

/// A file, whether it may be a program, and how the program that has it is linked.
type ExaminedAs = (FileKey, bool, Linking);

/// A file that has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl FileKey {
    pub(crate) fn of(metadata: &fs::Metadata) -> FileKey {
        FileKey {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
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

/// The file of a plan, or of a table of modules.
#[derive(Debug)]
pub(crate) struct PlanFile {
    pub(crate) fd: OwnedFd,
    /// The bytes of the plan without its code, or of the table.
    pub(crate) length: usize,
}

/// The result of [`plan`].
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The number of entries that should be redirected: the plan may have fewer, if instructions
    /// cannot be moved as far as there is room. [`ENTRIES_UNKNOWN`] if the process cannot be
    /// examined.
    pub(crate) entries: u64,
    /// The plan; `None` if it has no entry.
    pub(crate) file: Option<PlanFile>,
    /// For modules that were opened later: bit `i` is set if there is an allocator in the one at
    /// index `i`.
    pub(crate) with_allocator: u32,
}

impl Made {
    /// The result for a process that cannot be examined.
    pub(crate) fn unknown() -> Made {
        Made { entries: ENTRIES_UNKNOWN, ..Made::default() }
    }
}

/// Makes the plan for a process whose threads wait for it. `thunk` is the address to which stubs
/// lead.
pub(crate) fn plan(pid: u32, thunk: u64) -> Made {
    match parts(pid, thunk, Linking::Dynamic) {
        Some(parts) => made(parts),
        None => Made::unknown(),
    }
}

/// Makes the plan for modules that a process has just opened; `addresses` has an address inside of
/// each, or 0. A thread of the process waits for the plan.
pub(crate) fn plan_later(pid: u32, thunk: u64, addresses: &[u64]) -> Made {
    let Some(mut mappings) = Mappings::of(pid) else { return Made::unknown() };
    let modules = mappings.modules();
    if modules.iter().any(|module| is_sanitizer(&module.path)) {
        return Made::default();
    }
    let (mut examined, mut with_allocator): (Vec<(Mapped, Allocators)>, u32) = (Vec::new(), 0);
    for (index, &address) in addresses.iter().enumerate() {
        let Some(path) = mappings.path_at(address) else { continue };
        let Some(module) = modules.iter().find(|module| module.path == path) else { continue };
        if is_known_without(path, Linking::Dynamic) || examined.iter().any(|(known, _)| known == module) {
            continue;
        }
        let Some(allocators) = allocators_of(pid, module, false, (false, Linking::Dynamic)) else { continue };
        if allocators.iter().any(|found| !found.plan.patches.is_empty()) {
            with_allocator |= 1 << index;
            examined.push((module.clone(), allocators));
        }
    }
    Made { with_allocator, ..made(parts_of(&mut mappings, &examined, thunk, User::Later)) }
}

/// Makes the plan of its parts.
fn made(parts: Parts) -> Made {
    let Parts { entries, mut regions, jumps, code, .. } = parts;
    if jumps.is_empty() {
        return Made { entries, ..Made::default() };
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
    Made { entries, file: sealed_file(&bytes).ok().map(|fd| PlanFile { fd, length }), ..Made::default() }
}

/// The linking of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Linking {
    /// A dynamic linker has loaded the preload library, and glibc.
    Dynamic,
    /// The program has everything inside, its C library too.
    Static,
    /// The program runs without the preload library: the calls of every allocator are redirected.
    Running,
}

/// The library by which a plan is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// The preload library, before the program starts.
    Starting,
    /// The preload library, when the program opens libraries.
    Later,
    /// A library that is placed into the program.
    Placed,
}

impl User {
    fn library(self) -> Library {
        if self == User::Placed { Library::Placed } else { Library::Preload }
    }
}

/// The parts of a plan.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The number of entries that should be redirected: there may be fewer jumps.
    pub(crate) entries: u64,
    /// The memory for stubs; the offsets are those in `code`.
    pub(crate) regions: Vec<Region>,
    pub(crate) jumps: Vec<Jump>,
    pub(crate) code: Vec<u8>,
    /// The code of glibc's malloc, from its first entry to its last one.
    pub(crate) own_code: Option<[u64; 2]>,
    /// The first allocator of the program.
    pub(crate) allocator: AllocatorKind,
}

/// Adds stubs for the system calls of a statically linked program that execute another one or may
/// enter a sandbox, and, `with_mappings`, for those that change mappings. They lead to `exec`.
/// Without room for them, or if the C library makes a call in another way, it is left alone.
pub(crate) fn add_exec(parts: &mut Parts, pid: u32, exec: u64, with_mappings: bool) {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let Some(mut mappings) = Mappings::of(pid) else { return };
    for region in &parts.regions {
        mappings.take(region.address, region.length);
    }
    add_exec_in(parts, pid, (exec, with_mappings), &mut mappings, |path| path == executable);
}

/// Adds such stubs for the modules with these paths. In modules with Go's runtime, the calls that
/// change mappings are left alone: it makes its own on the stacks of goroutines, where no function
/// of ours has room.
fn add_exec_in(
    parts: &mut Parts,
    pid: u32,
    (exec, with_mappings): (u64, bool),
    mappings: &mut Mappings,
    is_wanted: impl Fn(&Path) -> bool,
) {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    for module in mappings.modules().into_iter().filter(|module| is_wanted(&module.path)) {
        // The file's code, not the memory's, where a recorder that was killed has left its jumps.
        let Some((file, _)) = file_of(pid, &module, module.path == executable) else { continue };
        let mut code = vec![0; (module.end - module.start).min(CODE_MAX) as usize];
        let read = fs::File::open(&file).and_then(|file| read_up_to(&file, &mut code, module.offset));
        let has_go = || Headers::read(&file).is_none_or(|headers| headers.has_go);
        let sites = exec::sites(&code, module.start, with_mappings && !has_go());
        if read.is_err() || sites.is_empty() || parts.regions.len() == REGIONS_MAX {
            continue;
        }
        let length = (exec::length(sites.len()) as u64).next_multiple_of(PAGE_LENGTH);
        let Some(address) = mappings.take_gap_near(&module, length, false) else { continue };
        let (bytes, jumps) = exec::stubs(&sites, address, exec);
        parts.regions.push(Region { address, length, offset: parts.code.len() as u64 });
        parts.jumps.extend(jumps);
        parts.code.extend(bytes);
        parts.code.resize(parts.regions.iter().map(|region| region.length as usize).sum(), 0);
    }
}

/// Reads a file from an offset on; the bytes behind its end stay as they are.
fn read_up_to(file: &fs::File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + read as u64)? {
            0 => break,
            count => read += count,
        }
    }
    Ok(())
}

/// True if a module is a C library, by its name. musl's is its dynamic linker.
fn is_c_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    [&b"libc.so"[..], b"libc-2.", b"ld-musl-", b"libc.musl-"].iter().any(|known| name.starts_with(known))
}

/// The most bytes of code that are searched for system calls.
const CODE_MAX: u64 = 256 << 20;

/// Makes the parts of the plan for a process that does not run meanwhile. `None` if it cannot be
/// examined.
pub(crate) fn parts(pid: u32, thunk: u64, linking: Linking) -> Option<Parts> {
    let (mut mappings, modules) = modules_of(pid, linking)?;
    let user = if linking == Linking::Dynamic { User::Starting } else { User::Placed };
    Some(parts_of(&mut mappings, &modules, thunk, user))
}

/// Makes the parts for these modules, and takes room for the stubs.
fn parts_of(mappings: &mut Mappings, modules: &[(Mapped, Allocators)], thunk: u64, user: User) -> Parts {
    let Parts { mut entries, mut regions, mut jumps, mut code, mut own_code, mut allocator } = Parts::default();
    for (module, allocators) in modules {
        for found in allocators.iter().filter(|found| !found.plan.patches.is_empty()) {
            entries += found.plan.patches.len() as u64;
            let Some(bias) = found.headers.bias(module.start, module.offset) else { continue };
            if allocator == AllocatorKind::Unknown {
                allocator = kind_of(found.family);
            }
            if found.family == Family::Glibc {
                // `reallocarray` is in an object file of its own, which may be anywhere.
                let is_inside = |patch: &&Patch| patch.entry.kind != EntryKind::Reallocarray;
                let entries = || found.plan.patches.iter().filter(is_inside).map(|patch| patch.at.wrapping_add(bias));
                own_code = entries().min().zip(entries().max()).map(|(first, last)| [first, last]);
            }
            let mut stubs = Stubs::new(&found.plan, bias, thunk, user.library());
            let length = (stubs.length_max() as u64).next_multiple_of(PAGE_LENGTH);
            let is_full = regions.len() == REGIONS_MAX
                || jumps.len() + found.plan.patches.len() > JUMPS_MAX
                || code.len() as u64 + length > PLAN_LENGTH_MAX as u64 / 2;
            if is_full {
                continue;
            }
            let Some(address) = mappings.take_gap_near(module, length, user == User::Later) else { continue };
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
    Parts { entries, regions, jumps, code, own_code, allocator }
}

/// The addresses in a library that is placed into a process that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedCode {
    /// The thunk to which redirected entries lead.
    pub(crate) thunk: u64,
    /// The function that makes the system calls which are redirected, such as execve.
    pub(crate) exec: u64,
    /// The function that the dynamic linker is to call when it has loaded modules.
    pub(crate) linker_event: u64,
}

/// The redirection of a process that runs, for a library that is placed into it.
#[derive(Debug)]
pub(crate) struct RunningPlan {
    pub(crate) parts: Parts,
    /// The number of jumps that are at entries of allocators: the first ones.
    pub(crate) entries_planned: usize,
    /// The modules of which the library is told.
    pub(crate) modules: Vec<PlacedModule>,
}

/// Makes the plan for a process that runs. `choose` is given the address of free memory of
/// `library_length` bytes, and returns the addresses in the library if it is there. `None` if the
/// process cannot be examined, or has no room.
pub(crate) fn plan_running(
    pid: u32,
    library_length: u64,
    (lists_all, with_mappings): (bool, bool),
    choose: impl FnOnce(u64) -> Option<PlacedCode>,
) -> Option<RunningPlan> {
    let (mut mappings, modules) = modules_of(pid, Linking::Running)?;
    // Anywhere would do. A program that has mapped parts of itself elsewhere has no room that is
    // near to all of it.
    let gap = modules.iter().find_map(|(module, _)| mappings.take_gap_near(module, library_length, false))?;
    let PlacedCode { thunk, exec, linker_event } = choose(gap)?;
    let mut parts = parts_of(&mut mappings, &modules, thunk, User::Placed);
    let entries_planned = parts.jumps.len();
    if entries_planned != 0 {
        let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let is_wanted = |path: &Path| path == executable || is_c_library(path);
        add_exec_in(&mut parts, pid, (exec, with_mappings), &mut mappings, is_wanted);
        linker::add_event(&mut parts, pid, linker_event, &mut mappings);
    }
    Some(RunningPlan { entries_planned, parts, modules: placed_modules(pid, &mappings, lists_all) })
}

/// A module with allocators, and how they are redirected.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) module: Mapped,
    pub(crate) parts: Parts,
}

/// Makes the plans for the modules of a process that are not redirected yet, if `is_new` says so of
/// the addresses of their entries, and the bytes that the file has there. For a library that was
/// placed into it. `None` if it cannot be examined.
pub(crate) fn plan_opened(pid: u32, thunk: u64, is_new: impl Fn(u64, &[u8]) -> bool) -> Option<Vec<Opened>> {
    let (mut mappings, modules) = modules_of(pid, Linking::Running)?;
    let is_wanted = |(module, allocators): &(Mapped, Allocators)| {
        let patches = allocators.iter().flat_map(|found| {
            let bias = found.headers.bias(module.start, module.offset);
            found.plan.patches.iter().filter_map(move |patch| Some((patch.at.wrapping_add(bias?), &patch.displaced)))
        });
        let mut patches = patches.peekable();
        patches.peek().is_some() && patches.all(|(address, displaced)| is_new(address, displaced))
    };
    let wanted = modules.into_iter().filter(is_wanted);
    let plans = wanted.map(|(module, allocators)| {
        let parts = parts_of(&mut mappings, &[(module.clone(), allocators)], thunk, User::Placed);
        Opened { module, parts }
    });
    Some(plans.collect())
}

/// Returns the address in a process of a function of its dynamic linker or C library.
pub(crate) fn linker_symbol(pid: u32, name: &str) -> Option<u64> {
    let mappings = Mappings::of(pid)?;
    let of_linker = mappings.modules().into_iter().filter(|module| {
        let name = module.path.file_name().unwrap_or_default().as_bytes();
        name.starts_with(b"ld-") || name.starts_with(b"libc.so")
    });
    let mut found = of_linker.filter_map(|module| {
        let (file, _) = file_of(pid, &module, false)?;
        let address = heapledger_inject::exported_symbol(fs::File::open(&file).ok()?, name)?;
        Some(Headers::read(&file)?.bias(module.start, module.offset)?.wrapping_add(address))
    });
    found.next()
}

/// True if a library stays as long as the program runs, by its name.
pub(crate) fn is_never_unloaded(path: &Path) -> bool {
    const NEVER_UNLOADED: [&[u8]; 5] = [b"libc.so", b"ld-", b"libstdc++.so", b"libgcc_s.so", b"libpthread.so"];
    let name = path.file_name().unwrap_or_default().as_bytes();
    NEVER_UNLOADED.iter().any(|known| name.starts_with(known))
}

/// Returns the program's own module; and, if `lists_all`, the libraries that are never unloaded.
fn placed_modules(pid: u32, mappings: &Mappings, lists_all: bool) -> Vec<PlacedModule> {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let stays = |path: &Path| lists_all && is_never_unloaded(path);
    let mut modules = mappings.modules();
    modules.retain(|module| module.path == executable || stays(&module.path));
    modules.sort_by_key(|module| module.path != executable);
    let placed = modules.iter().filter_map(|module| {
        let (file, _) = file_of(pid, module, module.path == executable)?;
        let bias = Headers::read(&file)?.bias(module.start, module.offset)?;
        let bounds = heapledger_inject::bounds(fs::File::open(&file).ok()?)?;
        let at = |address: u64| address.wrapping_add(bias);
        Some(PlacedModule {
            start: at(bounds.start),
            end: at(bounds.end),
            bias,
            eh_frame_hdr: bounds.eh_frame_hdr.map_or(0, at),
        })
    });
    placed.take(MODULES_MAX).collect()
}

fn kind_of(family: Family) -> AllocatorKind {
    match family {
        Family::Glibc => AllocatorKind::Glibc,
        Family::Jemalloc => AllocatorKind::Jemalloc,
        Family::Tcmalloc => AllocatorKind::Tcmalloc,
        Family::Mimalloc => AllocatorKind::Mimalloc,
        _ => AllocatorKind::Other,
    }
}

/// Returns the number of entries that should be redirected in a process; 0 if it cannot be
/// examined.
pub(crate) fn entries_of(pid: u32) -> usize {
    let (_, modules) = modules_of(pid, Linking::Dynamic).unwrap_or_default();
    modules.iter().flat_map(|(_, allocators)| allocators.iter()).map(|found| found.plan.patches.len()).sum()
}

type Allocators = Arc<[ModulePlan]>;

/// Returns the mappings of a process, and the allocators in each module that are redirected. `None`
/// if its mappings or its program cannot be read.
fn modules_of(pid: u32, linking: Linking) -> Option<(Mappings, Vec<(Mapped, Allocators)>)> {
    let mappings = Mappings::of(pid)?;
    let modules = mappings.modules();
    // A sanitizer's own allocator has to be left alone, and keeps shadow memory near everything.
    if modules.iter().any(|module| is_sanitizer(&module.path)) {
        return Some((mappings, Vec::new()));
    }
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    // The dynamic linker may have been started with the program as an argument: then any module
    // that names a linker is the program.
    let is_linker = executable.file_name().is_some_and(|name| is_supported_linker(name.as_bytes()));
    let mut examined = Vec::new();
    for module in modules.into_iter().filter(|module| !is_known_without(&module.path, linking)) {
        let is_executable = module.path == executable;
        let allocators = allocators_of(pid, &module, is_executable, (is_executable || is_linker, linking));
        match allocators {
            Some(allocators) => examined.push((module, allocators)),
            None if is_executable => return None,
            None => {}
        }
    }
    Some((mappings, examined))
}

/// Returns the allocators in a module that are redirected; `None` if its file is not there.
fn allocators_of(
    pid: u32,
    module: &Mapped,
    is_executable: bool,
    (may_be_program, linking): (bool, Linking),
) -> Option<Allocators> {
    let (file, metadata) = file_of(pid, module, is_executable)?;
    Some(allocators_in(&file, &metadata, may_be_program, linking))
}

/// Returns the allocators in a file that are redirected. A file is examined once: who asks
/// meanwhile waits for the result.
fn allocators_in(file: &Path, metadata: &fs::Metadata, may_be_program: bool, linking: Linking) -> Allocators {
    let key = (FileKey::of(metadata), may_be_program, linking);
    let cell = {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        match files.get(&key) {
            Some(cell) => Arc::clone(cell),
            None if files.len() < FILES_MAX => Arc::clone(files.entry(key).or_default()),
            None => Arc::default(),
        }
    };
    Arc::clone(cell.get_or_init(|| examine(file, may_be_program, linking).into()))
}

/// Returns the path by which a module's file can be read, with the file's data. `None` if it is not
/// there, or another file has taken its place.
pub(crate) fn file_of(pid: u32, module: &Mapped, is_executable: bool) -> Option<(PathBuf, fs::Metadata)> {
    if is_executable {
        // That link leads to the very file.
        let file = PathBuf::from(format!("/proc/{pid}/exe"));
        return fs::metadata(&file).ok().map(|metadata| (file, metadata));
    }
    let inside = module.path.strip_prefix("/").ok().map(|path| PathBuf::from(format!("/proc/{pid}/root")).join(path));
    // The kernel writes paths as its reader would, if the process has another root below ours.
    let files = inside.into_iter().chain([module.path.clone()]);
    let mut there = files.filter_map(|file| fs::metadata(&file).ok().map(|metadata| (file, metadata)));
    there.find(|(file, metadata)| metadata.ino() == module.inode || is_on_overlay(file))
}

/// True if a file is in an overlay of file systems, where mappings have the inode of the layer
/// below. The program compares the code at each entry before it writes.
fn is_on_overlay(file: &Path) -> bool {
    /// `OVERLAYFS_SUPER_MAGIC` of `linux/magic.h`.
    const OVERLAY: u64 = 0x794c_7630;
    rustix::fs::statfs(file).is_ok_and(|system| system.f_type as u64 == OVERLAY)
}

/// Returns the allocators in a file that are redirected.
fn examine(file: &Path, may_be_program: bool, linking: Linking) -> Vec<ModulePlan> {
    let Ok(module) = Module::open(file) else { return Vec::new() };
    let is_program = may_be_program && module.is_program();
    let Ok(found) = heapledger_entries::find(&module) else { return Vec::new() };
    let all = found.allocators.into_iter();
    let wanted: Vec<Allocator> = all.filter(|allocator| is_redirected(allocator, is_program, linking)).collect();
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
    /// True if its entry points are functions that the compiler makes, and may have inlined.
    pub may_be_inlined: bool,
}

/// Returns the allocators inside of a statically linked program's file that a recording redirects,
/// as [`redirected_allocators`] does.
pub fn placed_allocators(program: &Path) -> Vec<RedirectedAllocator> {
    allocators_of_file(program, Linking::Static)
}

/// Returns the allocators inside of a program's file that a recording redirects. Empty if there are
/// none, or the file cannot be read. Reads the file's symbols and, if there is an allocator, all
/// its code, once for each file: a browser's takes seconds.
pub fn redirected_allocators(program: &Path) -> Vec<RedirectedAllocator> {
    allocators_of_file(program, Linking::Dynamic)
}

fn allocators_of_file(program: &Path, linking: Linking) -> Vec<RedirectedAllocator> {
    let Ok(metadata) = fs::metadata(program) else { return Vec::new() };
    let found = allocators_in(program, &metadata, true, linking);
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
            may_be_inlined: found.family == Family::RustShims,
        })
        .collect()
}

/// True if the calls of an allocator do not reach the preload library anyway.
fn is_redirected(allocator: &Allocator, is_program: bool, linking: Linking) -> bool {
    match allocator.family {
        family if linking == Linking::Running => !matches!(family, Family::Operators | Family::RustShims),
        // Nobody else sees its calls. Rust's own functions call another allocator of the table.
        Family::Glibc | Family::Musl | Family::Malloc if linking == Linking::Static => true,
        // The C library's own, in a static program; and C++'s over malloc, whose calls of it are
        // seen.
        Family::Glibc | Family::Musl | Family::Operators => false,
        // Rust's allocator may have its memory from anywhere. If that is malloc, the calls of it
        // are nested.
        Family::RustShims => true,
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
fn is_known_without(path: &Path, linking: Linking) -> bool {
    const C_LIBRARY: [&[u8]; 2] = [b"libc.so.", b"libc-2."];
    const KNOWN: [&[u8]; 9] = [
        b"libheapledger",
        b"ld-linux",
        b"libm.so.",
        b"libm-2.",
        b"libpthread",
        b"libdl",
        b"librt",
        b"libgcc_s.so",
        b"libstdc++.so",
    ];
    let name = path.file_name().unwrap_or_default().as_bytes();
    let is_one_of = |names: &[&[u8]]| names.iter().any(|known| name.starts_with(known));
    is_one_of(&KNOWN) || linking != Linking::Running && is_one_of(&C_LIBRARY)
}

/// Returns a file in memory with these bytes, which nobody can change, and which may be executed.
pub(crate) fn sealed_file(bytes: &[u8]) -> io::Result<OwnedFd> {
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

#[cfg(test)]
mod tests;
