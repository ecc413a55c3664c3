//! The reporters of this loaded object.

use std::ffi::c_void;
use std::fmt;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use heapledger_annotate::exclusive_call::ExclusiveCall;
use heapledger_annotate::untracked;
use heapledger_core::Bytes;
use heapledger_measure::{HeapContainer, HeapSize, Meter, SharedHeapSize};
use heapledger_report_format::{Kind, Unit};

use crate::abi::{Each, Entry, RetainedSink, Sink, Text, VERSION};
use crate::collector::{Collector, Pending};
use crate::kept_names::{Names, names};

/// A value that measures its own memory: a cache, a pool, an index. Registered by
/// [`register_weak`](crate::register_weak) or [`register_strong`](crate::register_strong), it needs
/// no separate reporter.
pub trait ReportItself: Send + Sync {
    /// Makes the measurements. Called in a thread of Heapledger, once per collection, never twice
    /// at a time.
    fn report(&self, collector: &mut Collector);
}

/// A reporter that is registered before `main` begins, or by the loading of the library that it is
/// in: see the attribute `reporter`.
#[doc(hidden)]
pub struct StaticReporter {
    path: &'static str,
    report: fn(&mut Collector),
    exclusive_call: ExclusiveCall,
    next: AtomicPtr<StaticReporter>,
    is_registered: AtomicBool,
}

impl StaticReporter {
    #[doc(hidden)]
    pub const fn new(path: &'static str, report: fn(&mut Collector)) -> StaticReporter {
        let (next, is_registered) = (AtomicPtr::new(ptr::null_mut()), AtomicBool::new(false));
        StaticReporter { path, report, exclusive_call: ExclusiveCall::new(), next, is_registered }
    }

    /// Allocates nothing, and needs nothing of the standard library: it is called by a constructor
    /// of the loaded object.
    #[doc(hidden)]
    #[inline(never)]
    pub fn register(&'static self) {
        if self.is_registered.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut first = STATIC.load(Ordering::Relaxed);
        loop {
            self.next.store(first, Ordering::Relaxed);
            let own = ptr::from_ref(self).cast_mut();
            match STATIC.compare_exchange_weak(first, own, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }
}

impl fmt::Debug for StaticReporter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("StaticReporter").field(&self.path).finish()
    }
}

/// The last that was registered statically.
static STATIC: AtomicPtr<StaticReporter> = AtomicPtr::new(ptr::null_mut());
/// The others, in the order of registration.
static DYNAMIC: Mutex<Vec<Arc<DynamicReporter>>> = Mutex::new(Vec::new());

/// The registry's locks.
pub(crate) type ForkGuards = (MutexGuard<'static, Vec<Arc<DynamicReporter>>>, MutexGuard<'static, Names>);

/// Takes them.
pub(crate) fn lock_for_fork() -> ForkGuards {
    (dynamic(), names())
}

fn dynamic() -> MutexGuard<'static, Vec<Arc<DynamicReporter>>> {
    // A list of pointers is whole between any two calls.
    DYNAMIC.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registry's own reporter.
static SELF: StaticReporter = StaticReporter::new("explicit/heapledger/reporters", report_itself);

fn report_itself(collector: &mut Collector) {
    // Heapledger's own blocks: no ledger knows them, so there is nothing to mark.
    let bytes = untracked::scope(own_bytes);
    let description = "The list of reporters that are registered, without what they hold themselves.";
    // They are in no ledger: where `heap-allocated` is the ledger's, they are not in it.
    let kind = if heapledger_inprocess::control::is_running() { Kind::NonHeap } else { Kind::Heap };
    collector.report("", kind, Unit::Bytes, bytes.0 as i64, description);
}

fn own_bytes() -> Bytes {
    let meter = &mut Meter::new();
    // Not under the lock: whoever registers would wait for the walk.
    let reporters = dynamic().clone();
    let size = |reporter: &Arc<DynamicReporter>, meter: &mut Meter| {
        reporter.shallow_size_as_owner(meter) + reporter.path.heap_size(meter) + reporter.report.shallow_size(meter)
    };
    let list = dynamic().shallow_size(meter);
    let each = reporters.iter().map(|reporter| size(reporter, meter)).sum::<Bytes>();
    let names = names().as_ref().map_or(Bytes(0), |names| {
        // Each is a block of its own, of so many bytes.
        names.heap_size_with(meter, |name, _| Bytes(name.len() as u64))
    });
    list + each + names
}

/// A reporter that was registered while the program runs.
pub(crate) struct DynamicReporter {
    pub(crate) path: String,
    report: Callback,
    exclusive_call: ExclusiveCall,
}

impl DynamicReporter {
    /// Waits until the reporter is not being called. In the reporter itself it does not wait.
    pub(crate) fn wait(&self) {
        self.exclusive_call.wait();
    }
}

/// The part of a reporter that makes the measurements.
pub(crate) enum Callback {
    Function(Box<dyn Fn(&mut Collector) + Send + Sync>),
    Weak(Weak<dyn ReportItself>),
    Async(Box<dyn Fn(Pending) + Send + Sync>),
}

impl Callback {
    /// The block around the function.
    fn shallow_size(&self, meter: &mut Meter) -> Bytes {
        let (block, size) = match self {
            Callback::Function(report) => (ptr::from_ref(&**report).cast::<u8>(), size_of_val(&**report)),
            Callback::Async(report) => (ptr::from_ref(&**report).cast::<u8>(), size_of_val(&**report)),
            Callback::Weak(_) => return Bytes(0),
        };
        if size == 0 {
            return Bytes(0);
        }
        // SAFETY: `Meter::block` requires where a live block of the global allocator begins. By the
        // documentation of `Box` a value that is not of size zero lies there, and the check above
        // excludes that size.
        unsafe { meter.block(block, size) }
    }
}

/// Adds a reporter to the list.
pub(crate) fn add(path: String, report: Callback) -> Arc<DynamicReporter> {
    let reporter = Arc::new(DynamicReporter { path, report, exclusive_call: ExclusiveCall::new() });
    dynamic().push(Arc::clone(&reporter));
    reporter
}

/// Removes a reporter from the list.
pub(crate) fn remove(reporter: &Arc<DynamicReporter>) {
    let _untracked = untracked::enter();
    let removed: Vec<_> = dynamic().extract_if(.., |other| Arc::ptr_eq(other, reporter)).collect();
    // Outside the lock: it may be the last, and what it holds may register reporters when it is
    // dropped.
    drop(removed);
}

/// Gives out this loaded object's reporters: see [`crate::abi::Registry`].
///
/// # Safety
///
/// `each` may be called with this context and the address of an entry, several times.
pub(crate) unsafe extern "C" fn visit(context: *mut c_void, each: Each) {
    // SAFETY: `visit_all` requires that `each` may be called with `context`, as this function's
    // `# Safety` does.
    untracked::scope(|| unsafe { visit_all(context, each) });
}

/// # Safety
///
/// As [`visit`].
unsafe fn visit_all(context: *mut c_void, each: Each) {
    let give = |path: &str, reporter: *const c_void, run, release| {
        let size = size_of::<Entry>() as u32;
        let entry = Entry { size, version: VERSION, path: Text::new(path), reporter, run, release };
        // SAFETY: `each` requires `context`, with which it may be called by this function's
        // `# Safety`, and an entry that is live during the call, as the local is.
        unsafe { each(context, &raw const entry) };
    };
    give(SELF.path, (&raw const SELF).cast(), run_static, release_static);
    let mut all = Vec::new();
    let mut next = STATIC.load(Ordering::Acquire);
    // SAFETY: `as_ref` requires null or a live value that is only shared. Each element of the list
    // is a `&'static StaticReporter` that `register` has put there, with a release store that the
    // load above sees.
    while let Some(reporter) = unsafe { next.as_ref() } {
        all.push(reporter);
        next = reporter.next.load(Ordering::Relaxed);
    }
    for reporter in all.into_iter().rev() {
        give(reporter.path, ptr::from_ref(reporter).cast(), run_static, release_static);
    }
    let is_gone =
        |reporter: &Arc<DynamicReporter>| matches!(&reporter.report, Callback::Weak(it) if it.strong_count() == 0);
    let gone: Vec<_> = dynamic().extract_if(.., |reporter| is_gone(reporter)).collect();
    drop(gone);
    // Not under the lock: paths are copied.
    let all = dynamic().clone();
    for reporter in all {
        let path = ptr::from_ref(reporter.path.as_str());
        // SAFETY: the text is the reporter's, and stays until `release_dynamic` gives back the
        // count that `into_raw` gives away. Nobody can have that called before `each` has the
        // entry, and `give` does not use the text afterwards.
        give(unsafe { &*path }, Arc::into_raw(reporter).cast(), run_dynamic, release_dynamic);
    }
}

/// # Safety
///
/// [`visit`] gave out `reporter`, a [`StaticReporter`], which is not released yet: *until
/// released* ([`Entry`]). The sink is *held* ([`Sink`]) until this returns.
unsafe extern "C" fn run_static(reporter: *const c_void, sink: *const Sink) {
    // SAFETY: by this function's `# Safety` the reporter, a static, is live, and so is the sink
    // until this returns. Both are only shared.
    let (reporter, sink) = unsafe { (&*reporter.cast::<StaticReporter>(), &*sink) };
    call(&reporter.exclusive_call, sink, || {
        // SAFETY: `RetainedSink::new` requires a sink that is held: this one is until this returns.
        let sink = unsafe { RetainedSink::new(sink) };
        (reporter.report)(&mut Collector::new(sink, reporter.path));
    });
}

/// # Safety
///
/// None is needed: a static is not freed.
unsafe extern "C" fn release_static(_: *const c_void) {}

/// # Safety
///
/// [`visit`] gave out `reporter`, a [`DynamicReporter`], which is not released yet: *until
/// released* ([`Entry`]). The sink is *held* ([`Sink`]) until this returns.
unsafe extern "C" fn run_dynamic(reporter: *const c_void, sink: *const Sink) {
    // SAFETY: by this function's `# Safety` the reporter is live, since its count is not given
    // back, and so is the sink until this returns. Both are only shared.
    let (reporter, sink) = unsafe { (&*reporter.cast::<DynamicReporter>(), &*sink) };
    // SAFETY: `RetainedSink::new` requires a sink that is held: this one is until this returns.
    let held = || unsafe { RetainedSink::new(sink) };
    call(&reporter.exclusive_call, sink, || match &reporter.report {
        Callback::Function(report) => report(&mut Collector::new(held(), &reporter.path)),
        Callback::Weak(value) => {
            if let Some(value) = value.upgrade() {
                value.report(&mut Collector::new(held(), &reporter.path));
            }
        }
        Callback::Async(report) => report(Pending::new(held(), &reporter.path)),
    });
}

/// # Safety
///
/// [`visit`] gave out `reporter`, a [`DynamicReporter`], which is not released yet: *until
/// released* ([`Entry`]).
unsafe extern "C" fn release_dynamic(reporter: *const c_void) {
    // The reporter holds values of the program, whose destructors may panic.
    // SAFETY: `Arc::from_raw` requires an address that `Arc::into_raw` has returned, and a count
    // that nobody else drops. By this function's `# Safety` `visit` gave it out, and it has not
    // been released yet.
    let _ = catch_unwind(|| untracked::scope(|| drop(unsafe { Arc::from_raw(reporter.cast::<DynamicReporter>()) })));
}

/// Calls a reporter, unless it is being called, and tells the sink if it fails.
fn call(exclusive_call: &ExclusiveCall, sink: &Sink, report: impl FnOnce()) {
    untracked::scope(|| {
        if let Err(reason) = exclusive_call.call(report) {
            // SAFETY: `fail` requires the context of a sink that is *held*, and a reason that stays
            // during the call. Both callers are called with a held sink, and `reason` is a local.
            unsafe { (sink.fail)(sink.context, Text::new(&reason)) };
        }
    });
}

/// Registers a function before `main` begins.
#[doc(hidden)]
#[macro_export]
macro_rules! __reporter {
    ($path:expr, $report:path) => {
        const _: () = {
            static REPORTER: $crate::StaticReporter = $crate::StaticReporter::new($path, $report);

            extern "C" fn register() {
                REPORTER.register();
            }

            // SAFETY: the loader calls what is there, functions of this type, once each.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static REGISTER: extern "C" fn() = register;
        };
    };
}
