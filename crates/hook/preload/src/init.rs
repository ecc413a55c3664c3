//! Start: at the first call of a malloc function or in our constructor, whichever comes first.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::hooks::{self, dispatch};
use heapledger_core::{arch, sys};
use heapledger_interpose::next::{Objects, Scope};
use heapledger_interpose::{initialise, next_allocator, set_errno, watch_forks_of_arenas};
use heapledger_recorder::connect::{Address, elsewhere};
use heapledger_recorder::hook::processes;
use heapledger_recorder::{attach, leave, process, session, verify};
use heapledger_redirect::nesting;
use heapledger_unwind::modules;

use crate::guard::with_guard;
use crate::join::Library;
use crate::replace_malloc::asking;
use crate::{additions, armed, environment, exits, libraries, linker, mappings, redirect, unseen, wrappers};

/// The C library's functions that the constructor calls, looked up before there is a second thread.
static REGISTER_ATFORK: AtomicUsize = AtomicUsize::new(0);
static BACKTRACE: AtomicUsize = AtomicUsize::new(0);

fn look_up(objects: &Objects<'_>) {
    let register = match objects.lookup(Scope::Next, c"__register_atfork") {
        // musl's takes the first three arguments.
        0 => objects.lookup(Scope::Next, c"pthread_atfork"),
        register => register,
    };
    REGISTER_ATFORK.store(register, Ordering::Relaxed);
    BACKTRACE.store(objects.lookup_in(b"libc.so.6", c"backtrace"), Ordering::Relaxed);
}

/// Names the next allocator, joins the session that the environment names, if any, and initializes
/// the hook libraries.
#[unsafe(no_mangle)]
fn heapledger_family_starts(objects: &Objects<'_>) {
    linker::look_up(objects);
    environment::look_up(objects);
    wrappers::look_up(objects);
    exits::look_up(objects);
    look_up(objects);
    elsewhere::set_library(objects.own_path());
    // Allocations from here on until all hooks are installed, by them or for them, are not reported
    // to any hook.
    hooks::hold();
    let next = next_allocator(objects);
    // SAFETY: once; the functions are those of the program's own allocator, or of the next one.
    unsafe { dispatch::set_underlying(asking::allocator(objects).unwrap_or(next)) };
    let start = environment::initial_stack();
    let is_musl = objects.is_musl();
    if is_musl {
        // Its `calloc` calls `malloc`, and its `memalign` calls `aligned_alloc`, as programs do.
        nesting::activate();
    }
    if !start.is_null() {
        // SAFETY: that is the block of arguments and environment as the kernel laid it out, still
        // unchanged.
        unsafe { modules::list_program(environment::auxiliary_vector(start)) };
        // SAFETY: `start` is the address of that block; the program has not had it yet.
        let taken = unsafe { additions::take_additions(start) };
        let session = taken.session().and_then(Address::parse);
        if session.is_some() && !is_musl {
            // SAFETY: `find_thread_id` requires glibc: the only other C library with a dynamic
            // linker that this library is made for is musl.
            unsafe { sys::find_thread_id() };
        }
        let has_hooks = taken.hooks().next().is_some();
        let is_armed = !has_hooks && session.is_none_or(|session| session.is_armed());
        let library = Library::find(start as u64, objects);
        if let Some(session) = session {
            // SAFETY: once, under the lock of `initialise`: no hook has run, since none is
            // installed and this thread is the first.
            unsafe { library.join(session, false) };
            if session.wants_mappings() && !is_musl {
                record_mappings(&session, objects);
            }
        }
        if is_armed {
            armed::prepare(library);
        }
        let is_watched = taken.session().is_some() || has_hooks || is_armed;
        libraries::install_hooks(taken.hooks(), objects);
        // musl has neither namespaces nor `RTLD_DEEPBIND`.
        if is_watched && !is_musl {
            unseen::redirect(objects);
        }
        asking::be_asked();
    }
    hooks::release();
}

/// Has the calls recorded that change mappings. Calls that the allocator makes are told from others
/// by the mark of nested calls. In a session that samples there is none, because most calls of the
/// malloc functions go to the allocator at once.
fn record_mappings(session: &Address, objects: &Objects<'_>) {
    if !session.samples() {
        nesting::activate();
    }
    // SAFETY: `replace` requires one thread, which is in none of the functions: the first call of a
    // malloc function, or our constructor, precedes the second thread.
    unsafe { mappings::replace(objects) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Runs before `main`, after the C library's own start.
extern "C" fn constructor() {
    redirect::keep();
    initialise();
    // The dynamic linker runs the constructors of the libraries behind this one before ours, and
    // the allocator is one of them.
    armed::note_constructors();
    if !session::is_on() {
        watch_forks_of_arenas();
        if leave::is_armed() {
            watch_forks();
        }
        return;
    }
    session::start_usable();
    with_guard(|sp| attach::untracked_scope(sp, watch_forks_of_arenas));
    watch_forks();
    verify_stacks();
}

fn watch_forks() {
    let register = REGISTER_ATFORK.load(Ordering::Relaxed);
    if register == 0 {
        return;
    }
    type Handler = extern "C" fn();
    type Register = unsafe extern "C" fn(Handler, Option<Handler>, Handler, *const c_void) -> c_int;
    // SAFETY: the C library's function of this name, whose type this is.
    let register = unsafe { core::mem::transmute::<usize, Register>(register) };
    with_guard(|sp| {
        attach::untracked_scope(sp, || {
            // SAFETY: the handlers are part of this library, which is never unloaded: it is
            // preloaded.
            unsafe { register(before_fork, Some(after_fork_in_parent), after_fork_in_child, core::ptr::null()) };
        });
    });
}

/// Makes glibc's `backtrace` ready if the session wants stacks verified. Its first call loads a
/// library; nobody holds the dynamic linker's lock now.
fn verify_stacks() {
    if !verify::is_wanted() {
        return;
    }
    let address = BACKTRACE.load(Ordering::Relaxed);
    if address == 0 {
        return;
    }
    // SAFETY: glibc's function of this name, whose type this is.
    let backtrace = unsafe { core::mem::transmute::<usize, verify::Backtrace>(address) };
    let mut found = 0;
    with_guard(|sp| {
        attach::untracked_scope(sp, || {
            let mut addresses = [core::ptr::null_mut(); 4];
            // SAFETY: `backtrace` requires room for as many addresses as it is told: the array has
            // 4. It is glibc's, of this type.
            found = unsafe { backtrace(addresses.as_mut_ptr(), 4) };
        });
    });
    // A program finds 0 in `errno` when it starts.
    set_errno(0);
    // Constructors of other libraries may have started threads before ours runs.
    let search = |objects: &Objects<'_>| objects.lookup_in(b"libgcc_s.so.1", c"_Unwind_Backtrace");
    // SAFETY: the C library's function of this name, by which it was looked up.
    let unwinder =
        linker::iterate_objects().and_then(|iterate| unsafe { Objects::locked(iterate, search) }).unwrap_or(0);
    if found > 0 && unwinder != 0 {
        // SAFETY: `verify::start` requires glibc's `backtrace`, called once: `address` was looked
        // up in `libc.so.6`, and the call above has found frames.
        unsafe { verify::start(backtrace, unwinder as u64) };
    }
}

/// The thread pointer of the thread that forks, if it keeps the process from leaving its session
/// meanwhile. The child's thread has the same one.
static FORKING: AtomicUsize = AtomicUsize::new(0);

extern "C" fn before_fork() {
    if leave::is_armed() && leave::fork_begins() {
        FORKING.store(arch::thread_pointer(), Ordering::Relaxed);
    }
    with_guard(processes::fork_begins);
}

extern "C" fn after_fork_in_parent() {
    let is_ours = FORKING.compare_exchange(arch::thread_pointer(), 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_ours {
        // SAFETY: `before_fork` of this thread, or of the thread that it was copied from, called
        // `fork_begins`, which returned true, or its thread pointer would not be there.
        unsafe { leave::fork_ends() };
    }
}

extern "C" fn after_fork_in_child() {
    process::leave_rings_to_parent();
    after_fork_in_parent();
    if leave::is_armed() {
        process::keep_id();
    }
    with_guard(processes::child_begins);
}
