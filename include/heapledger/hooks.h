/* Heapledger's hook table, from C: functions that are told of every call of the malloc family, or that take its place.
 *
 * A hook library is a shared library that `heapledger run --hook LIB.so -- COMMAND` (or `record --hook`) loads into a
 * program and all that it starts. It is asked once for its hooks:
 *
 *     #include <heapledger/hooks.h>
 *
 *     HEAPLEDGER_HOOK_LIBRARY;
 *     static uint64_t bytes;
 *
 *     static void allocated(void *block, size_t size, heapledger_caller caller) {
 *         __atomic_fetch_add(&bytes, size, __ATOMIC_RELAXED);
 *     }
 *     static void freed(void *block, heapledger_caller caller) {}
 *     static heapledger_observer observer = HEAPLEDGER_OBSERVER(0, "bytes", allocated, freed);
 *
 *     int heapledger_hook_init(const heapledger_functions *real, const heapledger_hooks *hooks) {
 *         return hooks->install_observer(&observer);
 *     }
 *
 *     $ cc -shared -fPIC -Iinclude -o libbytes.so bytes.c
 *     $ heapledger run --hook ./libbytes.so -- ls
 *
 * A program can install and remove hooks of its own, too, while it runs: see heapledger_find_hooks.
 *
 * What a hook must keep to. It is called in whatever thread makes the call, at any moment: before main, in signal handlers,
 * in threads that end, in several threads at once, and in itself where a signal interrupts it. It returns, keeps errno,
 * and does not call the malloc family, nor what does so (stdio, locale, dlopen): memory comes from mmap, or from the
 * functions below all hooks. Its tables and functions stay to the end of the process, also when it was removed: a call
 * that began before may still be in it. Of a C library that has just been started it uses no more than system calls.
 *
 * A library may also define heapledger_hook_exec_begins and heapledger_hook_exec_failed, without arguments: they are
 * called before the process becomes another program, and when it has not. And it may define
 * heapledger_hook_library_unseen(uint64_t reason, const char *path): the program opens a library whose calls of the
 * allocator no hook sees, in a namespace of its own (1) or past a library that wraps the allocator (2). And
 * heapledger_hook_sandbox_begins and heapledger_hook_sandbox_refused, without arguments: they are called before the
 * program puts itself in a sandbox (seccomp), where a system call of a hook could kill it, and when it has not. Of four
 * libraries they are called.
 *
 * Order. By the tables' `order`, ascending; where that is equal, by who was installed first, the first time. Of
 * replacements, the smallest number is nearest to the program. Observers see what the program sees: the results of the
 * uppermost replacement, and no calls that replacements make below.
 *
 * Threads. Install and remove may be called in any thread, while others allocate; not in a signal handler. Once install
 * has returned, every call that begins then enters the hook; once remove has returned, none that begins then does.
 *
 * Cost. An observer costs each call a call through a pointer, beside what it does itself; a replacement a search for it.
 *
 * C99 or later, C++11 or later. */
#ifndef HEAPLEDGER_HOOKS_H
#define HEAPLEDGER_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the tables. */
#define HEAPLEDGER_HOOK_VERSION 1u

/* Entry points, where one function is told of several. */
enum {
    HEAPLEDGER_MALLOC = 1,
    HEAPLEDGER_CALLOC = 2,
    HEAPLEDGER_REALLOC = 3,
    HEAPLEDGER_REALLOCARRAY = 4,
    HEAPLEDGER_MEMALIGN = 5,
    HEAPLEDGER_ALIGNED_ALLOC = 6,
    HEAPLEDGER_POSIX_MEMALIGN = 7,
    HEAPLEDGER_VALLOC = 8,
    HEAPLEDGER_PVALLOC = 9,
    HEAPLEDGER_FREE = 16,
    HEAPLEDGER_CFREE = 17,
    HEAPLEDGER_FREE_SIZED = 18,
    HEAPLEDGER_FREE_ALIGNED_SIZED = 19
};

/* What install and remove return, beside 0. */
enum {
    HEAPLEDGER_HOOK_MALFORMED = 1,         /* null, of another version, too short, or without what it must have */
    HEAPLEDGER_HOOK_FULL = 2,              /* 16 different observers or 8 different replacements have been installed */
    HEAPLEDGER_HOOK_ALREADY_INSTALLED = 3, /* it is installed */
    HEAPLEDGER_HOOK_NOT_INSTALLED = 4,     /* it is not installed */
    HEAPLEDGER_HOOK_NO_ALLOCATOR = 5       /* this program's allocator cannot be replaced */
};

/* The frame that made a call. */
typedef struct heapledger_caller {
    uint64_t slot; /* the word of the stack that holds the return address of the call; above it is the frame */
    uint64_t rbp;  /* the frame's rbp */
} heapledger_caller;

/* ---------------------------------------------------------------------------------------------------- observers */

/* Functions that are told of calls: of an allocation after it has succeeded, of a free before it happens. malloc and free
 * must be there; what else is null derives from what is given, as said at each. Sizes are as the program asked for them,
 * in bytes; an alignment of 0 stands for a page. */
typedef struct heapledger_observer {
    uint32_t size;    /* bytes of this table */
    uint32_t version; /* HEAPLEDGER_HOOK_VERSION */
    int32_t order;    /* smaller numbers are told first; the recorder's is 0 */
    uint32_t reserved;
    const char *name; /* for people; or null */
    /* malloc(size) returned block. */
    void (*malloc)(void *block, size_t size, heapledger_caller caller);
    /* free(block) is about to happen; not of null. */
    void (*free)(void *block, heapledger_caller caller);
    /* calloc(count, each) returned block. Null: malloc of the product. */
    void (*calloc)(void *block, size_t count, size_t each, heapledger_caller caller);
    /* memalign, aligned_alloc, posix_memalign, valloc or pvalloc returned block. Null: malloc. */
    void (*aligned)(uint32_t api, void *block, size_t alignment, size_t size, heapledger_caller caller);
    /* cfree, free_sized or free_aligned_sized is about to happen. Null: free. */
    void (*free_sized)(uint32_t api, void *block, size_t size, size_t alignment, heapledger_caller caller);
    /* realloc or reallocarray of old, which is not null, is about to happen: it may be another thread's before the call
     * returns. Its end follows in the same thread. Null: free. */
    void (*realloc_begins)(uint32_t api, void *old, heapledger_caller caller);
    /* realloc(old, size) has returned block. With old null, an allocation, and nothing began. With block null and size 0,
     * a free. With block null otherwise, a failure: old lives on. Null: malloc of the new block; after a failure malloc of
     * the old one, with its usable size. */
    void (*realloc_ends)(void *old, void *block, size_t size, heapledger_caller caller);
    /* The same of reallocarray(old, count, each). Null: realloc_ends of the product. */
    void (*reallocarray_ends)(void *old, void *block, size_t count, size_t each, heapledger_caller caller);
    /* A call that should have returned a block did not; its arguments, 0 where it has none. Null: not told. */
    void (*failed)(uint32_t api, size_t size, size_t alignment, size_t count, heapledger_caller caller);
} heapledger_observer;

/* The initialiser of a table with the two functions that it must have; others are assigned before it is installed. */
#define HEAPLEDGER_OBSERVER(order, name, malloc, free)                                                                 \
    {sizeof(heapledger_observer), HEAPLEDGER_HOOK_VERSION, (order), 0, (name), (malloc), (free), NULL, NULL, NULL,     \
     NULL, NULL, NULL, NULL}

/* ------------------------------------------------------------------------------------------------- replacements */

/* The malloc family, as C has it, and the functions for arenas. A table that is handed out has all; one that is brought
 * has what it replaces. An arena is a number that is not 0. */
typedef struct heapledger_functions {
    uint32_t size;    /* bytes of this table */
    uint32_t version; /* HEAPLEDGER_HOOK_VERSION */
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t each);
    void *(*realloc)(void *old, size_t size); /* reallocarray, too */
    void (*free)(void *block);                /* not of null; cfree, free_sized and free_aligned_sized, too */
    void *(*memalign)(size_t alignment, size_t size);
    int (*posix_memalign)(void **out, size_t alignment, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
    void *(*valloc)(size_t size);
    void *(*pvalloc)(size_t size);
    size_t (*malloc_usable_size)(void *block);
    size_t (*malloc_good_size)(size_t size); /* the usable size of such a block; or size, above 64 KiB */
    size_t (*create_arena)(const void *parameters);
    void (*dispose_arena)(size_t arena);
    void *(*arena_malloc)(size_t arena, size_t size);
    void *(*arena_calloc)(size_t arena, size_t count, size_t each);
    void *(*arena_realloc)(size_t arena, void *old, size_t size); /* of null, arena_malloc is called */
    void (*arena_free)(size_t arena, void *block);
    void *(*arena_memalign)(size_t arena, size_t alignment, size_t size);
} heapledger_functions;

#define HEAPLEDGER_NO_FUNCTIONS                                                                                        \
    {sizeof(heapledger_functions), HEAPLEDGER_HOOK_VERSION, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,      \
     NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/* An allocator, or a layer over one, in the place of the program's. What it leaves out goes to the table below, but:
 * - posix_memalign, aligned_alloc, valloc and pvalloc derive from memalign, if that is given;
 * - if malloc is given and no arena function, these are dummies over the plain ones: all arenas are number 1.
 *
 * It meets blocks of others, allocated before it came or by functions that it leaves out. Either it gives `owns`, and with
 * it free, realloc and malloc_usable_size: then it gets these of its own blocks only, also after it was removed, and never
 * of null: realloc(NULL, size) comes as malloc(size). Or it does not: then it gets all of them while it is installed, none
 * after that, and passes them on to the table below: realloc and malloc_usable_size of null, too. */
typedef struct heapledger_replacement {
    uint32_t size;    /* bytes of this table */
    uint32_t version; /* HEAPLEDGER_HOOK_VERSION */
    int32_t order;    /* the smallest number is nearest to the program */
    uint32_t reserved;
    const char *name; /* for people; or null */
    /* Where install puts the address of the table below: complete, there for ever, leading to whatever is below at the
     * time of a call. */
    const heapledger_functions **below;
    int (*owns)(void *block); /* whether a block, not null, is this allocator's; or null */
    heapledger_functions functions;
} heapledger_replacement;

/* The initialiser of a table that replaces nothing yet: functions are assigned before it is installed. */
#define HEAPLEDGER_REPLACEMENT(order, name, below)                                                                     \
    {sizeof(heapledger_replacement), HEAPLEDGER_HOOK_VERSION, (order), 0, (name), (below), NULL, HEAPLEDGER_NO_FUNCTIONS}

/* ---------------------------------------------------------------------------------------------------- the table */

/* What hooks are installed by. Entries are only ever appended: look at `size`. */
typedef struct heapledger_hooks {
    uint32_t size;
    uint32_t version;
    const heapledger_functions *real;    /* below all hooks, and unobserved: here a hook may allocate */
    const heapledger_functions *program; /* as the program calls them; arenas have no names of their own */
    const heapledger_observer *tell;     /* tells all observers: for blocks made by other ways than the malloc family */
    int (*install_observer)(const heapledger_observer *observer); /* 0, or HEAPLEDGER_HOOK_…; so all four */
    int (*remove_observer)(const heapledger_observer *observer);
    int (*install_replacement)(const heapledger_replacement *replacement);
    int (*remove_replacement)(const heapledger_replacement *replacement);
} heapledger_hooks;

/* What a hook library exports. heapledger_hook_init is called once in a process, in the first thread, at the first
 * allocation: before constructors have run, its own too. What is allocated meanwhile goes to the real functions, and
 * nobody is told; what it installs is entered when all libraries have been asked. Its result is not looked at. */
#define HEAPLEDGER_EXPORT __attribute__((visibility("default")))
extern HEAPLEDGER_EXPORT const uint32_t heapledger_hook_version;
HEAPLEDGER_EXPORT int heapledger_hook_init(const heapledger_functions *real, const heapledger_hooks *hooks);

/* To be said once in a hook library. */
#define HEAPLEDGER_HOOK_LIBRARY const uint32_t heapledger_hook_version = HEAPLEDGER_HOOK_VERSION

/* The hook table of this process, for programs that install hooks while they run; null where Heapledger is not present.
 * Nothing has to be linked for it. */
__extension__ static __inline__ __attribute__((unused)) const heapledger_hooks *heapledger_find_hooks(void) {
#if defined(__x86_64__) && defined(__LP64__) && defined(__ELF__)
    const heapledger_hooks *hooks;
    /* Through the global offset table: so the reference stays weak in programs that are not position-independent, too. */
    __asm__(".weak heapledger_hooks_v1\n\tmovq heapledger_hooks_v1@GOTPCREL(%%rip), %0" : "=r"(hooks));
    return hooks;
#else
    return NULL;
#endif
}

#ifdef __cplusplus
}
#endif

#endif
