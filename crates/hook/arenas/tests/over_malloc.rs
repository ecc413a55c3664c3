//! Arenas over the C library's malloc: totals, limits, plain calls for blocks of arenas, and
//! threads. There is one hook table in a process, so that one test sets the allocator.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use heapledger_arenas::over_malloc::{CFunctions, set_c_functions, totals, watch_forks, with_arenas};
use heapledger_arenas::parameters::{Parameters, SINGLE_THREAD};
use heapledger_arenas::table;
use heapledger_core::hooks::arena::{LightStatistics, PointerInfo, Statistics, pointer, purge_now};
use heapledger_core::hooks::{Functions, Pointer, dispatch};
use heapledger_core::lock::Lock;
use heapledger_core::sample::Random;

unsafe extern "C" {
    fn malloc(size: usize) -> Pointer;
    fn calloc(count: usize, each: usize) -> Pointer;
    fn realloc(old: Pointer, size: usize) -> Pointer;
    fn free(block: Pointer);
    fn memalign(alignment: usize, size: usize) -> Pointer;
    fn malloc_usable_size(block: Pointer) -> usize;
    fn __errno_location() -> *mut c_int;
    fn __register_atfork(before: Handler, parent: Handler, child: Handler, object: *const c_void) -> c_int;
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: c_int) -> !;
}

type Handler = extern "C" fn();

fn set_errno(number: c_int) {
    // SAFETY: the C library's function returns this thread's variable.
    unsafe { *__errno_location() = number };
}

/// Returns the table that a program's calls go to now.
fn functions() -> &'static Functions {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let functions = Functions {
            malloc: Some(malloc),
            calloc: Some(calloc),
            realloc: Some(realloc),
            free: Some(free),
            memalign: Some(memalign),
            malloc_usable_size: Some(malloc_usable_size),
            ..Functions::EMPTY
        };
        let errno_location = __errno_location as unsafe extern "C" fn() -> *mut c_int as usize;
        let register_atfork =
            __register_atfork as unsafe extern "C" fn(Handler, Handler, Handler, *const c_void) -> c_int as usize;
        // SAFETY: the C library's functions of these names.
        unsafe { set_c_functions(CFunctions { errno_location, register_atfork }) };
        // SAFETY: called once, with functions of one allocator.
        unsafe { dispatch::set_underlying(with_arenas(functions)) };
    });
    dispatch::functions().unwrap()
}

/// Calls a function of the table.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the table is complete; the arguments are as the function of this name asks for:
        // arenas and blocks are live, which each test sees to.
        unsafe { functions().$name.unwrap()($($argument),*) }
    };
}

fn parameters(label: &CStr) -> Parameters {
    Parameters {
        size: size_of::<Parameters>() as u32,
        flags: 0,
        label: label.as_ptr(),
        dirty_max: 0,
        dirty_increase_override: 0,
        dirty_decrease_override: 0,
        bytes_max: 0,
        chunks: ptr::null(),
    }
}

fn create(parameters: &Parameters) -> usize {
    call!(create_arena(ptr::from_ref(parameters).cast::<c_void>()))
}

fn label_of(arena: usize) -> Vec<u8> {
    table::find(arena as u64).unwrap().arena().unwrap().name.bytes().to_vec()
}

#[test]
fn plain_calls_keep_the_totals() {
    let arena = create(&parameters(c"plain"));
    assert!(arena > 1);
    let block = call!(arena_malloc(arena, 100));
    assert_eq!((totals(arena as u64), call!(arena_of(block))), (Some((1, 100)), arena));
    assert!(call!(malloc_usable_size(block)) >= 100);
    let block = call!(realloc(block, 9000));
    assert_eq!((totals(arena as u64), call!(arena_of(block))), (Some((1, 9000)), arena));
    let block = call!(arena_realloc(arena, block, 10));
    assert_eq!(totals(arena as u64), Some((1, 10)));
    let mut info = PointerInfo::default();
    call!(pointer_info(block.cast_const(), &raw mut info));
    let id = arena as u64;
    let found = PointerInfo { kind: pointer::LIVE, address: block.addr() as u64, bytes: 10, arena: id, reserved: 0 };
    assert_eq!(info, found);
    call!(free(block));
    assert_eq!(totals(id), Some((0, 0)));

    let (zeroed, aligned) = (call!(arena_calloc(arena, 7, 3)), call!(arena_memalign(arena, 256, 5)));
    assert_eq!((totals(id), aligned.addr() % 256), (Some((2, 26)), 0));
    call!(arena_free(arena, zeroed));
    call!(arena_free(arena, aligned));
    // Blocks of malloc are in no arena.
    let plain = call!(malloc(10));
    assert_eq!(call!(arena_of(plain)), 0);
    call!(free(plain));
    // C's `realloc` to nothing frees the block, in glibc.
    let block = call!(arena_malloc(arena, 1));
    let gone = call!(realloc(block, 0));
    if gone.is_null() {
        assert_eq!(totals(id), Some((0, 0)));
    } else {
        call!(free(gone));
    }
    call!(dispose_arena(arena));
    assert_eq!(totals(id), None);
}

#[test]
fn limits_hold() {
    let mut limited = parameters(c"limited");
    (limited.bytes_max, limited.flags) = (1000, SINGLE_THREAD);
    let arena = create(&limited);
    let first = call!(arena_malloc(arena, 600));
    assert!(!first.is_null() && call!(arena_malloc(arena, 401)).is_null());
    assert!(call!(arena_calloc(arena, 1 << 40, 1 << 40)).is_null());
    assert!(call!(arena_malloc(arena, usize::MAX)).is_null());
    assert_eq!(totals(arena as u64), Some((1, 600)));
    set_errno(0);
    assert!(call!(realloc(first, 1001)).is_null());
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(12), "ENOMEM");
    let first = call!(realloc(first, 1000));
    assert_eq!(totals(arena as u64), Some((1, 1000)));
    call!(arena_free(arena, first));
    call!(dispose_arena(arena));
}

/// A block that is freed unseen stays in the totals. Its arena can be disposed of, and one that is
/// created later, possibly at the same position of the table, does not get the block.
#[test]
fn blocks_that_are_freed_unseen() {
    let arena = create(&parameters(c"unseen"));
    let (unseen, kept) = (call!(arena_malloc(arena, 100)), call!(arena_malloc(arena, 50)));
    // SAFETY: a live block of malloc, which is not used any more.
    unsafe { free(unseen) };
    assert_eq!(totals(arena as u64), Some((2, 150)));
    call!(dispose_arena(arena));
    assert_eq!((totals(arena as u64), call!(arena_of(kept))), (None, 0));
    let later: Vec<_> = (0..100).map(|_| create(&parameters(c"later"))).collect();
    assert!(later.iter().all(|&arena| totals(arena as u64) == Some((0, 0))));
    let kept = call!(realloc(kept, 500));
    assert_eq!(call!(arena_of(kept)), 0);
    call!(free(kept));
    assert!(later.iter().all(|&arena| totals(arena as u64) == Some((0, 0))));
    later.into_iter().for_each(|arena| call!(dispose_arena(arena)));
}

/// Blocks that are refused do not count for a moment, so that others are not refused for them.
#[test]
fn refused_blocks_refuse_no_others() {
    let mut limited = parameters(c"contended");
    limited.bytes_max = 1000;
    let arena = create(&limited);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(call!(arena_malloc(arena, 5000)).is_null());
            }
        });
        let small = (0..50_000).all(|_| {
            let block = call!(arena_malloc(arena, 10));
            let larger = call!(arena_realloc(arena, block, 20));
            let is_there = !block.is_null() && !larger.is_null();
            call!(free(larger));
            is_there
        });
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(small);
    });
    call!(dispose_arena(arena));
}

/// A shorter structure has defaults for the rest; functions of the program's cannot be honoured.
#[test]
fn parameters_are_read_as_far_as_they_go() {
    let mut short = parameters(c"short");
    short.bytes_max = 1;
    short.size = offset_of!(Parameters, dirty_max) as u32;
    let arena = create(&short);
    assert_eq!(label_of(arena), b"short");
    let block = call!(arena_malloc(arena, 50));
    call!(arena_free(arena, block));
    call!(dispose_arena(arena));

    short.size = offset_of!(Parameters, label) as u32;
    let arena = create(&short);
    assert_eq!(label_of(arena), b"(no label)");
    call!(dispose_arena(arena));
    let arena = call!(create_arena(ptr::null()));
    assert_eq!(label_of(arena), b"(no label)");
    call!(dispose_arena(arena));

    let mut own = parameters(c"own memory");
    own.chunks = ptr::from_ref(&own).cast();
    assert_eq!(create(&own), 0);
}

/// An allocator without purges and statistics has an answer for each question.
#[test]
fn other_functions_have_answers() {
    let mut total = Statistics { mapped: 7, ..Statistics::default() };
    call!(statistics(&raw mut total, ptr::null_mut()));
    let mut light = LightStatistics { allocated: 7, operations: 7 };
    call!(statistics_light(&raw mut light));
    assert_eq!((total, light), (Statistics::default(), LightStatistics::default()));
    assert_eq!((call!(statistics_bins()), call!(purge_all()), call!(purge_excess())), (0, 0, 0));
    assert!(!call!(enable_deferred_purge(true)));
    assert_eq!(call!(purge_now(false, 10, usize::MAX)), purge_now::DONE);
    call!(set_dirty_modifier(-2));
    call!(thread_local_arena(true));
    call!(reset_randomisation(true));
    let mut info = PointerInfo { kind: 9, ..PointerInfo::default() };
    call!(pointer_info(ptr::null(), &raw mut info));
    assert_eq!(info, PointerInfo::default());
}

/// Threads allocate, reallocate and free blocks of the same arenas, by functions of both kinds; a
/// model of each says what is live.
#[test]
fn threads_agree_with_models() {
    const THREADS: u64 = 4;
    let arenas = [c"one", c"two", c"three"].map(|label| create(&parameters(label)));
    let sums = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || work(seed + 1, &arenas))).collect();
        let mut sums = HashMap::<usize, (u64, u64)>::new();
        for worker in workers {
            for (arena, sizes) in worker.join().unwrap() {
                let sum = sums.entry(arena).or_default();
                *sum = (sum.0 + sizes.len() as u64, sum.1 + sizes.iter().map(|&(_, size)| size as u64).sum::<u64>());
                for (block, _) in sizes {
                    LEFT.lock().unwrap().push((arena, block));
                }
            }
        }
        sums
    });
    for arena in arenas {
        assert_eq!(totals(arena as u64), Some(sums[&arena]));
    }
    for (_, block) in LEFT.lock().unwrap().drain(..) {
        call!(free(ptr::with_exposed_provenance_mut(block)));
    }
    for arena in arenas {
        assert_eq!(totals(arena as u64), Some((0, 0)));
        call!(dispose_arena(arena));
    }
}

static LEFT: std::sync::Mutex<Vec<(usize, usize)>> = std::sync::Mutex::new(Vec::new());

/// Returns the blocks that are left, by arena, with their sizes.
fn work(seed: u64, arenas: &[usize; 3]) -> HashMap<usize, Vec<(usize, usize)>> {
    let mut random = Random::new(seed);
    let mut live: HashMap<usize, Vec<(usize, usize)>> = arenas.iter().map(|&arena| (arena, Vec::new())).collect();
    for _ in 0..20_000 {
        let word = random.word();
        let arena = arenas[(word % 3) as usize];
        let (size, kind) = ((word >> 8) as usize % 300, word >> 32 & 7);
        let blocks = live.get_mut(&arena).unwrap();
        let at = (word >> 40) as usize % blocks.len().max(1);
        let taken = if kind < 4 || blocks.is_empty() { None } else { Some(blocks.swap_remove(at)) };
        let old = taken.map_or(ptr::null_mut(), |(block, _)| ptr::with_exposed_provenance_mut::<c_void>(block));
        let block = match (kind, taken) {
            (4, Some(_)) => call!(realloc(old, size + 1)),
            (5, Some(_)) => call!(arena_realloc(arena, old, size + 1)),
            (6, Some(_)) => {
                call!(free(old));
                continue;
            }
            (7, Some(_)) => {
                call!(arena_free(arena, old));
                continue;
            }
            (0, _) => call!(arena_calloc(arena, 1, size + 1)),
            (1, _) => call!(arena_memalign(arena, 64, size + 1)),
            _ => call!(arena_malloc(arena, size + 1)),
        };
        assert!(!block.is_null());
        blocks.push((block.expose_provenance(), size + 1));
    }
    live
}

/// Handlers around forks that were registered before ours run while the locks are held, before the
/// fork, and in both processes after it. They create and dispose of arenas, and free blocks, and
/// hold a lock of the program from before the fork until after it. Two threads fork.
#[test]
fn handlers_registered_earlier_use_arenas() {
    const ROUNDS: usize = 20;
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static OF_PROGRAM: Lock = Lock::new();
    /// Allocates and frees a block in an arena.
    fn use_arena(arena: usize, size: usize) {
        let block = call!(arena_malloc(arena, size));
        call!(free(block));
    }
    fn use_arenas() {
        let arena = create(&parameters(c"handlers"));
        (1..100).for_each(|size| use_arena(arena, size));
        assert_eq!(totals(arena as u64), Some((0, 0)));
        call!(dispose_arena(arena));
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn before() {
        std::mem::forget(OF_PROGRAM.lock());
        use_arenas();
    }
    extern "C" fn after() {
        use_arenas();
        // SAFETY: this thread, or the one that it is a copy of, has called `before`.
        unsafe { OF_PROGRAM.unlock() };
    }
    fn fork_often(arena: usize) {
        for _ in 0..ROUNDS {
            // SAFETY: the child calls functions of the table alone, and ends.
            let child = unsafe { fork() };
            if child == 0 {
                use_arena(arena, 10);
                // Both calls of a fork are one turn of a thread.
                let status = c_int::from(!CALLS.load(Ordering::Relaxed).is_multiple_of(2));
                // SAFETY: the C library's function, which may be called at any time.
                unsafe { _exit(status) };
            }
            let mut status = -1;
            // SAFETY: the C library's function, with a variable for the status.
            let ended = unsafe { waitpid(child, &raw mut status, 0) };
            assert_eq!((ended, status), (child, 0));
        }
    }
    let arena = create(&parameters(c"around forks"));
    // SAFETY: the C library's functions. A wait for ever is a failure.
    let registered = unsafe {
        alarm(60);
        __register_atfork(before, after, after, ptr::null())
    };
    assert_eq!(registered, 0);
    watch_forks();
    let other = std::thread::spawn(move || fork_often(arena));
    fork_often(arena);
    other.join().unwrap();
    assert_eq!(CALLS.load(Ordering::Relaxed), 2 * 2 * ROUNDS);
    // SAFETY: the C library's function, which may be called at any time.
    unsafe { alarm(0) };
    // The locks are free, and other threads get them.
    std::thread::spawn(move || use_arena(arena, 10)).join().unwrap();
    assert_eq!(totals(arena as u64), Some((0, 0)));
}
