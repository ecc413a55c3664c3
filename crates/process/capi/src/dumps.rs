//! Memory dumps of `heapledger/dumps.h`: C's view of providers, of the dump that they fill in, and
//! of traces.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use heapledger_annotate::untracked;
use heapledger_dump::{
    self as dump, AllocatorDump, Amount, Cost, DumpArgs, Guid, Heap, HeapFormat, Kind, Level, ProcessDump, Provider,
    ProviderError, ProviderOptions, ProviderOverhead, ProviderRegistration, Schedule, TraceConfig, TraceError,
    TraceSession, Trigger,
};

use crate::allocations::{self, CAllocation, CContext, CRegister};
use crate::sized::read;
use crate::status::{FAILED, OK, STATE};

/// `heapledger_dump_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CArgs {
    size: u32,
    level: u32,
    kind: u32,
    reserved: u32,
    guid: u64,
}

type DumpFunction = unsafe extern "C" fn(*const CArgs, *mut ProcessDump, *mut c_void) -> c_int;
type HeapProfiling = unsafe extern "C" fn(c_int, *mut c_void);

/// `heapledger_provider`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CProvider {
    size: u32,
    background_count: u32,
    name: *const c_char,
    dump: Option<DumpFunction>,
    heap_profiling: Option<HeapProfiling>,
    data: *mut c_void,
    background: *const *const c_char,
}

/// `heapledger_heap_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CEntry {
    context: CContext,
    blocks: u64,
    bytes: u64,
}

/// `heapledger_cost`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CCost {
    count: u64,
    bytes_allocated: u64,
    bytes_mapped: u64,
    bytes_resident: u64,
}

/// `heapledger_trace_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct COptions {
    size: u32,
    flags: u32,
    background_ms: u32,
    light_ms: u32,
    detailed_ms: u32,
    provider_deadline_ms: u32,
    deadline_ms: u32,
    reserved: u32,
}

const AGGREGATED: u32 = 1;
const WITH_CHILDREN: u32 = 2;
const ON_DEMAND: u32 = 4;

/// `heapledger_dumps`: functions are only ever appended.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    size: u32,
    version: u32,
    register: unsafe extern "C" fn(*const CProvider) -> *mut Registered,
    unregister: unsafe extern "C" fn(*mut Registered),
    set_heap_profiling: extern "C" fn(c_int),
    is_heap_profiling: extern "C" fn() -> c_int,
    allocator: unsafe extern "C" fn(*mut ProcessDump, *const c_char) -> u64,
    shared: unsafe extern "C" fn(*mut ProcessDump, *const c_char, c_int, u64) -> u64,
    scalar: unsafe extern "C" fn(*mut ProcessDump, *const c_char, *const c_char, *const c_char, u64),
    text: unsafe extern "C" fn(*mut ProcessDump, *const c_char, *const c_char, *const c_char),
    own: unsafe extern "C" fn(*mut ProcessDump, u64, u64, i32),
    suballocate: unsafe extern "C" fn(*mut ProcessDump, u64, *const c_char),
    heap: unsafe extern "C" fn(*mut ProcessDump, *const c_char, *const CEntry, usize),
    cost: unsafe extern "C" fn(*mut ProcessDump, *const c_char, *const c_char, *const CCost),
    start: unsafe extern "C" fn(*const c_char, *const COptions) -> c_int,
    dump: extern "C" fn(u32) -> c_int,
    finish: extern "C" fn() -> c_int,
    context: extern "C" fn() -> u32,
    new_register: extern "C" fn() -> *mut CRegister,
    delete_register: unsafe extern "C" fn(*mut CRegister),
    insert: unsafe extern "C" fn(*const CRegister, *const c_void, usize, *const CContext),
    remove: unsafe extern "C" fn(*const CRegister, *const c_void) -> c_int,
    blocks: unsafe extern "C" fn(*const CRegister, *mut CAllocation, usize) -> usize,
    register_cost: unsafe extern "C" fn(*const CRegister, *mut CCost),
}

/// The table of dumps. Programs find it also if a recorder observes them.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_dumps_v1: Table = Table {
    size: size_of::<Table>() as u32,
    version: 1,
    register,
    unregister,
    set_heap_profiling,
    is_heap_profiling,
    allocator,
    shared,
    scalar,
    text,
    own,
    suballocate,
    heap,
    cost,
    start,
    dump: dump_now,
    finish,
    context: allocations::current,
    new_register: allocations::new,
    delete_register: allocations::delete,
    insert: allocations::insert,
    remove: allocations::remove,
    blocks: allocations::blocks,
    register_cost,
};

/// A provider that is written in C.
///
/// *Callable*: by the contract of [`register`] both functions may be called with `data`, one at a
/// time, until the provider is unregistered. After [`ProviderRegistration::unregister`] has
/// returned nobody calls them.
struct ProviderInC {
    dump: DumpFunction,
    heap_profiling: Option<HeapProfiling>,
    data: *mut c_void,
}

// SAFETY: the header says that the functions are called in threads of ours, one at a time, with
// this pointer.
unsafe impl Send for ProviderInC {}

impl Provider for ProviderInC {
    fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError> {
        let given = CArgs {
            size: size_of::<CArgs>() as u32,
            level: args.level as u32,
            kind: args.kind as u32,
            reserved: 0,
            guid: args.guid.0,
        };
        // SAFETY: `self` is *callable* (`ProviderInC`). The arguments and the dump are there during
        // the call, and the dump is this function's `&mut`, which it does not use meanwhile.
        match unsafe { (self.dump)(&raw const given, dump, self.data) } {
            0 => Ok(()),
            code => Err(format!("it answered {code}").into()),
        }
    }

    fn heap_profiling_enabled(&mut self, is_enabled: bool) {
        if let Some(notify) = self.heap_profiling {
            // SAFETY: `self` is *callable* (`ProviderInC`), with the number and `data`.
            unsafe { notify(is_enabled.into(), self.data) };
        }
    }
}

/// `heapledger_registered_provider`.
#[derive(Debug)]
pub struct Registered(ProviderRegistration);

/// # Safety
///
/// `provider` is null or *sized* (see [`crate::sized`]). Its name is null or a text that ends with
/// NUL, and its `background` is null or an array of `background_count` such texts, or nulls. Its
/// functions may be called with its data, in any thread, one at a time, until it is unregistered.
unsafe extern "C" fn register(provider: *const CProvider) -> *mut Registered {
    let _untracked = untracked::enter();
    let mut given = CProvider {
        size: 0,
        background_count: 0,
        name: std::ptr::null(),
        dump: None,
        heap_profiling: None,
        data: std::ptr::null_mut(),
        background: std::ptr::null(),
    };
    // SAFETY: the caller's contract; zeroes, which stand for what is not given, are valid: nulls
    // and numbers.
    unsafe { read(provider, &mut given) };
    // SAFETY: `text_of` requires null or a text that ends with NUL; this function's `# Safety` says
    // so of the provider's name.
    let (Some(name), Some(dump)) = (unsafe { text_of(given.name) }, given.dump) else { return std::ptr::null_mut() };
    let count = if given.background.is_null() { 0 } else { given.background_count as usize };
    let background = (0..count).filter_map(|at| {
        // SAFETY: `add` and the read require an element of the array: by this function's `# Safety`
        // `background` has `background_count`, and `at` is below that. `text_of` requires null or a
        // text that ends with NUL, as each element is by the same section.
        unsafe { text_of(*given.background.add(at)) }
    });
    let options = ProviderOptions { background: background.collect(), ..ProviderOptions::default() };
    let provider = ProviderInC { dump, heap_profiling: given.heap_profiling, data: given.data };
    Box::into_raw(Box::new(Registered(dump::register_with(name, provider, options))))
}

/// # Safety
///
/// `registered` is null or what [`register`] returned, and not used any more.
unsafe extern "C" fn unregister(registered: *mut Registered) {
    if !registered.is_null() {
        let _untracked = untracked::enter();
        // SAFETY: `Box::from_raw` requires a box that `Box::into_raw` gave away, once. By this
        // function's `# Safety` this is the one that `register` returned, and nobody uses it after
        // this.
        let Registered(registration) = *unsafe { Box::from_raw(registered) };
        registration.unregister();
    }
}

extern "C" fn set_heap_profiling(is_enabled: c_int) {
    dump::set_heap_profiling(is_enabled != 0);
}

extern "C" fn is_heap_profiling() -> c_int {
    dump::is_heap_profiling().into()
}

/// # Safety
///
/// `text` is null, or ends with NUL and stays as it is during the call.
pub(crate) unsafe fn text_of(text: *const c_char) -> Option<String> {
    // SAFETY: `CStr::from_ptr` requires a text that ends with NUL and stays until it has been
    // copied. By this function's `# Safety` it is such a text or null, which `then` excludes.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Calls a function with a dump that is being made and its texts, unless one of them is null.
///
/// # Safety
///
/// `dump` is null, or what a provider has been given and is still being called with. Nobody else
/// uses it during this call. Texts are null, or end with NUL and stay as they are during the call.
unsafe fn with<const N: usize, R: Default>(
    dump: *mut ProcessDump,
    texts: [*const c_char; N],
    run: impl FnOnce(&mut ProcessDump, [String; N]) -> R,
) -> R {
    let _untracked = untracked::enter();
    // SAFETY: `text_of` requires null or a text that ends with NUL, and so does this function's
    // `# Safety` of each text.
    let texts: Option<Vec<String>> = texts.into_iter().map(|text| unsafe { text_of(text) }).collect();
    // SAFETY: `as_mut` requires null, or a live dump that is used through this reference only. By
    // this function's `# Safety` it is the one that `ProviderInC::dump` has lent to the provider
    // until it returns, and nobody else uses it during this call.
    let dump = unsafe { dump.as_mut() };
    match (dump, texts.and_then(|texts| texts.try_into().ok())) {
        (Some(dump), Some(texts)) => run(dump, texts),
        _ => R::default(),
    }
}

/// # Safety
///
/// See [`with`].
unsafe extern "C" fn allocator(dump: *mut ProcessDump, name: *const c_char) -> u64 {
    // SAFETY: this function's `# Safety` is that of `with`, which gets the same `dump` and `name`.
    unsafe { with(dump, [name], |dump, [name]| dump.allocator(&name).guid.0) }
}

/// # Safety
///
/// See [`with`].
unsafe extern "C" fn shared(dump: *mut ProcessDump, id: *const c_char, is_weak: c_int, bytes: u64) -> u64 {
    let share = |dump: &mut ProcessDump, [id]: [String; 1]| {
        let guid = Guid::of(&id);
        let shared = if is_weak != 0 { dump.weak_shared(guid) } else { dump.shared(guid) };
        shared.set_size(bytes);
        guid.0
    };
    // SAFETY: this function's `# Safety` is that of `with`, which gets the same `dump` and `id`.
    unsafe { with(dump, [id], share) }
}

/// # Safety
///
/// See [`with`].
unsafe extern "C" fn scalar(
    dump: *mut ProcessDump,
    name: *const c_char,
    attribute: *const c_char,
    units: *const c_char,
    value: u64,
) {
    let set = |dump: &mut ProcessDump, [name, attribute, units]: [String; 3]| {
        dump.allocator(&name).set_scalar(&attribute, &units, value);
    };
    // SAFETY: this function's `# Safety` is that of `with`, which gets the same `dump` and texts.
    unsafe { with(dump, [name, attribute, units], set) }
}

/// # Safety
///
/// See [`with`].
unsafe extern "C" fn text(dump: *mut ProcessDump, name: *const c_char, attribute: *const c_char, value: *const c_char) {
    let set = |dump: &mut ProcessDump, [name, attribute, value]: [String; 3]| {
        let said: &mut AllocatorDump = dump.allocator(&name);
        said.set_text(&attribute, &value);
    };
    // SAFETY: this function's `# Safety` is that of `with`, which gets the same `dump` and texts.
    unsafe { with(dump, [name, attribute, value], set) }
}

/// # Safety
///
/// See [`with`].
unsafe extern "C" fn own(dump: *mut ProcessDump, source: u64, target: u64, importance: i32) {
    // SAFETY: this function's `# Safety` is that of `with`, which gets the same `dump` and no text.
    unsafe { with(dump, [], |dump, []| dump.own(Guid(source), Guid(target), importance)) }
}

/// # Safety
///
/// See [`with`].
unsafe extern "C" fn suballocate(dump: *mut ProcessDump, source: u64, target: *const c_char) {
    // SAFETY: this function's `# Safety` is that of `with`, which gets the same `dump` and
    // `target`.
    unsafe { with(dump, [target], |dump, [target]| dump.suballocate(Guid(source), &target)) }
}

/// # Safety
///
/// See [`with`]. `entries` is null or an array of `count` entries, whose types are null or texts
/// that end with NUL. Nobody changes them during the call.
unsafe extern "C" fn heap(dump: *mut ProcessDump, allocator: *const c_char, entries: *const CEntry, count: usize) {
    let count = if entries.is_null() { 0 } else { count };
    let add = |dump: &mut ProcessDump, [allocator]: [String; 1]| {
        let mut heap = Heap::default();
        for at in 0..count {
            // SAFETY: `add` and `read` require an aligned element of the array. By this function's
            // `# Safety` there are `count` elements, or none if `entries` is null; `at` is below
            // that.
            let CEntry { context, blocks, bytes } = unsafe { entries.add(at).read() };
            // SAFETY: `text_of` requires null or a text that ends with NUL; this function's
            // `# Safety` says so of the types of entries.
            let type_name = unsafe { text_of(context.type_name) };
            heap.add(allocations::scopes(context.scopes).scopes(), type_name.as_deref(), Amount { blocks, bytes });
        }
        dump.add_heap(&allocator, heap);
    };
    // SAFETY: this function's `# Safety` includes that of `with`, which gets the same `dump` and
    // `allocator`.
    unsafe { with(dump, [allocator], add) }
}

/// # Safety
///
/// See [`with`]. `cost` is null, or a cost that nobody changes during the call.
unsafe extern "C" fn cost(
    dump: *mut ProcessDump,
    allocator: *const c_char,
    purpose: *const c_char,
    cost: *const CCost,
) {
    // SAFETY: `as_ref` requires null, or an aligned, valid value that nobody changes meanwhile. By
    // this function's `# Safety` it is null or a cost, which is numbers.
    let Some(&CCost { count, bytes_allocated, bytes_mapped, bytes_resident }) = (unsafe { cost.as_ref() }) else {
        return;
    };
    let add = |dump: &mut ProcessDump, [allocator, purpose]: [String; 2]| {
        let mut overhead = ProviderOverhead::default();
        overhead.add(&purpose, Cost { count, bytes_allocated, bytes_mapped, bytes_resident });
        overhead.dump_into(&allocator, dump);
    };
    // SAFETY: this function's `# Safety` includes that of `with`, which gets the same `dump` and
    // texts.
    unsafe { with(dump, [allocator, purpose], add) }
}

/// # Safety
///
/// `register` is null or a register that is not deleted. `cost` is null or a cost with all fields
/// set, as the header's caller has it, and nobody else uses it during the call.
unsafe extern "C" fn register_cost(register: *const CRegister, cost: *mut CCost) {
    // SAFETY: `as_ref` and `as_mut` require null or a live value; `as_mut`, one that nobody else
    // uses. By this function's `# Safety` the register is not deleted, and *only shared*
    // (`CRegister`); the cost is the caller's, with all fields set.
    if let (Some(register), Some(into)) = unsafe { (register.as_ref(), cost.as_mut()) } {
        let Cost { count, bytes_allocated, bytes_mapped, bytes_resident } = register.cost();
        *into = CCost { count, bytes_allocated, bytes_mapped, bytes_resident };
    }
}

/// The current trace, and the process that makes it: a forked child has none.
static SESSION: Mutex<Option<(u32, TraceSession)>> = Mutex::new(None);

/// Begins a trace.
///
/// # Safety
///
/// `file` is null or a path that ends with NUL and stays during the call. `options` is null or
/// *sized* (see [`crate::sized`]).
unsafe extern "C" fn start(file: *const c_char, options: *const COptions) -> c_int {
    if file.is_null() {
        return FAILED;
    }
    let _untracked = untracked::enter();
    let mut given = COptions {
        size: 0,
        flags: 0,
        background_ms: 0,
        light_ms: 0,
        detailed_ms: 0,
        provider_deadline_ms: 0,
        deadline_ms: 0,
        reserved: 0,
    };
    // SAFETY: `read` requires null or a *sized* structure, as this function's `# Safety` does of
    // `options`, and that any prefix of a `COptions` is valid, as it is of integers.
    // `CStr::from_ptr` requires a text that ends with NUL and stays: the same section says so of
    // `file`, which is not null here, and is used during this call only.
    let file = unsafe {
        read(options, &mut given);
        CStr::from_ptr(file)
    };
    let Some(config) = given.config() else { return FAILED };
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    match TraceSession::to_file(Path::new(OsStr::from_bytes(file.to_bytes())), config) {
        Ok(new) => {
            // A session that was inherited from the parent process is forgotten, so that it does
            // not write the parent's file.
            *session = Some((process::id(), new));
            OK
        }
        Err(TraceError::Running) => STATE,
        Err(_) => FAILED,
    }
}

impl COptions {
    fn config(&self) -> Option<TraceConfig> {
        let periods = [
            (Level::Background, self.background_ms),
            (Level::Light, self.light_ms),
            (Level::Detailed, self.detailed_ms),
        ];
        let triggers: Vec<Trigger> = periods
            .into_iter()
            .filter(|(_, ms)| *ms > 0)
            .map(|(level, ms)| Trigger { level, period: Duration::from_millis(ms.into()) })
            .collect();
        let schedule = match (self.flags & ON_DEMAND != 0, triggers.as_slice()) {
            (true, _) => Schedule::never(),
            (false, []) => Schedule::default(),
            (false, triggers) => Schedule::new(triggers).ok()?,
        };
        let defaults = TraceConfig::default();
        let or = |milliseconds: u32, default: Duration| match milliseconds {
            0 => default,
            _ => Duration::from_millis(milliseconds.into()),
        };
        Some(TraceConfig {
            schedule,
            heaps: if self.flags & AGGREGATED != 0 { HeapFormat::Aggregated } else { defaults.heaps },
            children: self.flags & WITH_CHILDREN != 0,
            provider_deadline: or(self.provider_deadline_ms, defaults.provider_deadline),
            deadline: or(self.deadline_ms, defaults.deadline),
            ..defaults
        })
    }
}

/// Makes a dump now.
extern "C" fn dump_now(level: u32) -> c_int {
    let Some(&level) = Level::ALL.get(level as usize) else { return FAILED };
    let session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    match &*session {
        Some((of, session)) if *of == process::id() => match session.dump(level) {
            Ok(_) => OK,
            Err(_) => FAILED,
        },
        _ => STATE,
    }
}

/// Ends the trace.
extern "C" fn finish() -> c_int {
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    match session.take() {
        Some((of, session)) if of == process::id() => match session.finish() {
            Ok(_) => OK,
            Err(_) => FAILED,
        },
        _ => STATE,
    }
}

const _: () = assert!(Kind::ALL.len() == 4 && Kind::Periodic as u32 == 0 && Kind::Summary as u32 == 3);
const _: () = assert!(Level::Background as u32 == 0 && Level::Detailed as u32 == 2);
