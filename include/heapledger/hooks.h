/* Heapledger's hook table, from C: functions that observe every call of the malloc family, or that
 * replace it.
 *
 * A hook library is a shared library that `heapledger run --hook LIB.so -- COMMAND` (or
 * `record --hook`) loads into a program and all that it starts. Its heapledger_hook_init is called
 * once, to install its hooks:
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
 * A program can also install and remove its own hooks while it runs: see heapledger_find_hooks.
 *
 * Rules for hooks. A hook is called in the thread that makes the call, at any moment: before main,
 * in signal handlers, in threads that end, in several threads at once, and recursively if a signal
 * interrupts it. It must return, keep errno, and not call the malloc family, nor functions that do
 * so (stdio, locale, dlopen): it gets memory from mmap, or from the functions below all hooks. Its
 * tables and functions stay to the end of the process, even after it was removed, because a call
 * that began before may still be in it. In a C library that has just been started a hook uses only
 * system calls.
 *
 * A child made by fork keeps the hooks, and gets a copy of their memory: a counter begins in the
 * child with what it had counted in the parent.
 *
 * An observer gets the usable size of a block by hooks->program->malloc_usable_size, of which no
 * observer is notified. It does not ask the real functions: the block may be a replacement's.
 *
 * A library may also define heapledger_hook_exec_begins and heapledger_hook_exec_failed, without
 * arguments: they are called before the process calls exec, and if exec failed. It may define
 * heapledger_hook_library_unseen(uint64_t reason, const char *path): it is called when the program
 * opens a library whose allocator calls no hook sees, in a namespace of its own (1) or bound past a
 * library that wraps the allocator (2). It may define heapledger_hook_sandbox_begins and
 * heapledger_hook_sandbox_refused, without arguments: they are called before the program puts
 * itself in a sandbox (seccomp), in which a system call of a hook could kill it, and if it did not
 * succeed. These are called for at most four libraries.
 *
 * Order. By the tables' `order`, ascending; if equal, by the time of the first installation. The
 * replacement with the smallest number is nearest to the program. Observers see what the program
 * sees: the results of the uppermost replacement, and no calls that replacements make below.
 *
 * Threads. Install and remove may be called in any thread, while others allocate, but not in a
 * signal handler. Every call that begins after install has returned enters the hook; no call that
 * begins after remove has returned does.
 *
 * Cost. An observer costs each call one call through a pointer, besides its own work; a replacement
 * costs a search for it.
 *
 * C99 or later, C++11 or later. */
#ifndef HEAPLEDGER_HOOKS_H
#define HEAPLEDGER_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the tables. */
#define HEAPLEDGER_HOOK_VERSION 1u

/* Entry points, for functions that handle several. */
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

/* Errors of install and remove, which return 0 on success. */
enum {
    HEAPLEDGER_HOOK_MALFORMED = 1,         /* null, another version, too short, or incomplete */
    /* 16 different observers or 8 different replacements were installed */
    HEAPLEDGER_HOOK_FULL = 2,
    HEAPLEDGER_HOOK_ALREADY_INSTALLED = 3, /* it is installed */
    HEAPLEDGER_HOOK_NOT_INSTALLED = 4,     /* it is not installed */
    HEAPLEDGER_HOOK_NO_ALLOCATOR = 5       /* this program's allocator cannot be replaced */
};

/* The frame that made a call. */
typedef struct heapledger_caller {
    uint64_t slot; /* where the return address of the call is on the stack; the frame is above */
    uint64_t rbp;  /* the frame's rbp */
} heapledger_caller;

/* An arena: see arena.h. Valid until it has been disposed of; the label for ever. */
typedef struct heapledger_arena_info {
    /* Bytes of this structure, which has more than is declared here. Who notifies others of a block
     * passes on a structure that an observer was given: with one of the program's own they are told
     * of the block, but not of its arena. */
    uint32_t size;
    uint32_t flags;    /* those that the program passed */
    uint64_t id;       /* the number by which the program knows it */
    const char *label; /* up to 127 bytes; never null */
} heapledger_arena_info;

struct heapledger_purge;

/* ---------------------------------------------------------------------------------------------------- observers */

/* Functions that are called after an allocation has succeeded and before a free happens. malloc and
 * free are required; a null entry is replaced by one that is given, as said at each. Sizes are in
 * bytes as the program requested them; an alignment of 0 means a page. */
typedef struct heapledger_observer {
    uint32_t size;    /* bytes of this table */
    uint32_t version; /* HEAPLEDGER_HOOK_VERSION */
    int32_t order;    /* smaller numbers are called first; the recorder's is 0 */
    uint32_t reserved;
    const char *name; /* for display; or null */
    /* malloc(size) returned block. */
    void (*malloc)(void *block, size_t size, heapledger_caller caller);
    /* free(block) is about to happen; block is not null. */
    void (*free)(void *block, heapledger_caller caller);
    /* calloc(count, each) returned block. Null: malloc of the product. */
    void (*calloc)(void *block, size_t count, size_t each, heapledger_caller caller);
    /* memalign, aligned_alloc, posix_memalign, valloc or pvalloc returned block. Null: malloc. */
    void (*aligned)(uint32_t api, void *block, size_t alignment, size_t size, heapledger_caller caller);
    /* cfree, free_sized or free_aligned_sized is about to happen. Null: free. */
    void (*free_sized)(uint32_t api, void *block, size_t size, size_t alignment, heapledger_caller caller);
    /* realloc or reallocarray of old, which is not null, is about to happen: another thread may own
     * the address before the call returns. realloc_ends follows in the same thread. Null: free. */
    void (*realloc_begins)(uint32_t api, void *old, heapledger_caller caller);
    /* realloc(old, size) has returned block. If old is null, this is an allocation, and nothing
     * began. If block is null and size 0, this is a free. If block is null otherwise, this is a
     * failure, and old stays live. Null: malloc for the new block; after a failure malloc for the
     * old one, with its usable size. */
    void (*realloc_ends)(void *old, void *block, size_t size, heapledger_caller caller);
    /* The same for reallocarray(old, count, each). Null: realloc_ends with the product. */
    void (*reallocarray_ends)(void *old, void *block, size_t count, size_t each, heapledger_caller caller);
    /* A call that should have returned a block did not. Arguments that the call does not have are
     * 0. Null: not called. */
    void (*failed)(uint32_t api, size_t size, size_t alignment, size_t count, heapledger_caller caller);
    /* A function for arenas returned block, which is in arena. api is that of the plain function;
     * arguments that it does not have are 0. Null: malloc, calloc or aligned. Blocks of arenas are
     * freed and reallocated as all others are: by free, free_sized and realloc_begins above. */
    void (*arena_allocated)(const heapledger_arena_info *arena, uint32_t api, void *block, size_t size, size_t alignment,
                            size_t count, heapledger_caller caller);
    /* Like realloc_ends, for a block that stays in its arena. Null: realloc_ends. */
    void (*arena_realloc_ends)(const heapledger_arena_info *arena, void *old, void *block, size_t size,
                               heapledger_caller caller);
    /* An arena was created, or is about to be disposed of. Null: not called. */
    void (*arena_created)(const heapledger_arena_info *arena, heapledger_caller caller);
    void (*arena_disposed)(const heapledger_arena_info *arena, heapledger_caller caller);
    /* The allocator has given unused pages back to the system, in this thread, possibly in the
     * middle of one of its functions. The structure is in arena.h. Null: not called. */
    void (*purged)(const struct heapledger_purge *purge);
    /* Like reallocarray_ends, for a block that stays in its arena. Null: arena_realloc_ends with the
     * product, or, without that, reallocarray_ends. */
    void (*arena_reallocarray_ends)(const heapledger_arena_info *arena, void *old, void *block, size_t count,
                                    size_t each, heapledger_caller caller);
} heapledger_observer;

/* The initialiser of a table with the two required functions; others are assigned before it is
 * installed. */
#define HEAPLEDGER_OBSERVER(order, name, malloc, free)                                                                 \
    {sizeof(heapledger_observer), HEAPLEDGER_HOOK_VERSION, (order), 0, (name), (malloc), (free), NULL, NULL, NULL,     \
     NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/* ------------------------------------------------------------------------------------------------- replacements */

/* The totals of an allocator, in the terms of mozjemalloc: bytes, unless said otherwise. What it does
 * not know is 0. */
typedef struct heapledger_statistics {
    uint64_t arenas;      /* a number */
    uint64_t mapped;      /* address space */
    uint64_t allocated;   /* in live blocks */
    uint64_t waste;       /* with memory, and neither allocated nor below */
    uint64_t dirty;       /* of unused pages that have memory */
    uint64_t fresh;       /* of unused pages that were never touched */
    uint64_t madvised;    /* of unused pages whose memory was given back */
    uint64_t bookkeeping; /* the allocator's own structures */
    uint64_t bin_unused;  /* of free blocks in runs that have others */
    uint64_t operations;  /* a number: 1 for an allocation, a free, a resizing in place; 2 for a move */
    uint64_t chunk_bytes;
    uint64_t page_bytes;
    uint64_t dirty_max; /* the limit of an arena's dirty bytes */
} heapledger_statistics;

/* The totals of one bin: blocks of one size class. */
typedef struct heapledger_bin_statistics {
    uint64_t size; /* of each block */
    uint64_t runs_not_full, runs;
    uint64_t bytes_unused, bytes_total;
    uint64_t bytes_per_run, blocks_per_run;
} heapledger_bin_statistics;

/* The two totals that cost no walk over the heap. */
typedef struct heapledger_light_statistics {
    uint64_t allocated;
    uint64_t operations;
} heapledger_light_statistics;

/* The kind of memory at an address. */
enum {
    HEAPLEDGER_POINTER_UNKNOWN = 0,
    HEAPLEDGER_POINTER_LIVE = 1,        /* in a live block */
    HEAPLEDGER_POINTER_FREED_BLOCK = 2, /* in a block that was freed */
    HEAPLEDGER_POINTER_FREED_PAGE = 3   /* in an unused page */
};

/* The block or page around an address; 0 where nothing is known. */
typedef struct heapledger_pointer_info {
    uint32_t kind; /* HEAPLEDGER_POINTER_… */
    uint32_t reserved;
    uint64_t address; /* the first of the block or page */
    uint64_t bytes;
    uint64_t arena;
} heapledger_pointer_info;

/* The malloc family of C, and the functions for arenas. A table from Heapledger is complete; a
 * table from a replacement has the functions that it replaces. An arena is a number other than
 * 0. */
typedef struct heapledger_functions {
    uint32_t size;    /* bytes of this table */
    uint32_t version; /* HEAPLEDGER_HOOK_VERSION */
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t each);
    void *(*realloc)(void *old, size_t size); /* reallocarray, too */
    /* block is not null; cfree, free_sized and free_aligned_sized, too */
    void (*free)(void *block);
    void *(*memalign)(size_t alignment, size_t size);
    int (*posix_memalign)(void **out, size_t alignment, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
    void *(*valloc)(size_t size);
    void *(*pvalloc)(size_t size);
    size_t (*malloc_usable_size)(void *block);
    /* the usable size of such a block; or size, above 64 KiB */
    size_t (*malloc_good_size)(size_t size);
    size_t (*create_arena)(const void *parameters);
    void (*dispose_arena)(size_t arena);
    void *(*arena_malloc)(size_t arena, size_t size);
    void *(*arena_calloc)(size_t arena, size_t count, size_t each);
    /* if old is null, arena_malloc is called instead */
    void *(*arena_realloc)(size_t arena, void *old, size_t size);
    void (*arena_free)(size_t arena, void *block);
    void *(*arena_memalign)(size_t arena, size_t alignment, size_t size);
    /* The functions from here on are not derived from others. If no allocator has one, it does
     * nothing, and its answer is 0, false, or all zeroes. */
    size_t (*arena_of)(void *block); /* 0 if a live block is in no arena */
    /* bins is null, or has statistics_bins() entries */
    void (*statistics)(heapledger_statistics *total, heapledger_bin_statistics *bins);
    size_t (*statistics_bins)(void);
    void (*statistics_light)(heapledger_light_statistics *total);
    void (*pointer_info)(const void *address, heapledger_pointer_info *info);
    /* purges: see arena.h */
    size_t (*purge_all)(void);
    size_t (*purge_excess)(void);
    void (*set_dirty_modifier)(int32_t shift);
    bool (*enable_deferred_purge)(bool on);
    int (*purge_now)(bool peek_only, uint32_t reuse_grace_ms, size_t budget);
    void (*thread_local_arena)(bool on); /* gives the calling thread an arena of its own, or the common one */
    void (*reset_randomisation)(bool on); /* whether small blocks are at random places; draws new ones */
} heapledger_functions;

#define HEAPLEDGER_NO_FUNCTIONS                                                                                        \
    {sizeof(heapledger_functions), HEAPLEDGER_HOOK_VERSION, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,      \
     NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
     NULL, NULL}

/* An allocator, or a layer over one, that replaces the program's. Functions that it leaves out go
 * to the table below, except:
 * - posix_memalign, aligned_alloc, valloc and pvalloc derive from memalign, if that is given;
 * - if malloc is given, and neither `owns` nor an arena function, the arena functions call the plain
 *   ones: all arenas are number 1. With `owns`, arenas are those of the table below.
 *
 * A replacement also receives blocks of others, which were allocated before it was installed or by
 * functions that it leaves out. If it gives `owns`, and with it free, realloc and
 * malloc_usable_size, these are called for its own blocks only, also after it was removed, and
 * never for null: realloc(NULL, size) comes as malloc(size). If it does not, they are called for
 * all blocks while it is installed and for none afterwards, and it must pass the blocks of others
 * on to the table below; realloc and malloc_usable_size are then called for null, too. */
typedef struct heapledger_replacement {
    uint32_t size;    /* bytes of this table */
    uint32_t version; /* HEAPLEDGER_HOOK_VERSION */
    int32_t order;    /* the smallest number is nearest to the program */
    uint32_t reserved;
    const char *name; /* for display; or null */
    /* Where install writes the address of the table below. That table is complete, stays valid, and
     * always leads to the replacement that is below at the time of a call. */
    const heapledger_functions **below;
    /* True if a block, not null, is this allocator's; may be null. It may take a lock under which
     * nobody waits or calls other code, and does not call the malloc family. */
    int (*owns)(void *block);
    heapledger_functions functions;
} heapledger_replacement;

/* The initialiser of a table that replaces nothing yet; functions are assigned before it is
 * installed. */
#define HEAPLEDGER_REPLACEMENT(order, name, below)                                                                     \
    {sizeof(heapledger_replacement), HEAPLEDGER_HOOK_VERSION, (order), 0, (name), (below), NULL, HEAPLEDGER_NO_FUNCTIONS}

/* ---------------------------------------------------------------------------------------------------- the table */

/* The functions that install and remove hooks. Entries are only ever appended: check `size`. */
typedef struct heapledger_hooks {
    uint32_t size;
    uint32_t version;
    /* below all hooks, not observed: a hook may allocate by these */
    const heapledger_functions *real;
    /* as the program calls them */
    const heapledger_functions *program;
    /* calls all observers: for blocks from other sources than malloc */
    const heapledger_observer *tell;
    /* 0, or HEAPLEDGER_HOOK_…; the same for all four */
    int (*install_observer)(const heapledger_observer *observer);
    int (*remove_observer)(const heapledger_observer *observer);
    int (*install_replacement)(const heapledger_replacement *replacement);
    int (*remove_replacement)(const heapledger_replacement *replacement);
    /* For a replacement that wants few calls, if it is the only hook: malloc and calloc count down a
     * word of each thread, and call it when the word has fallen below 0, and free and realloc call
     * it for blocks at the `length` addresses from `first` on. Other calls go past it. `word` is the
     * distance of the word from the thread pointer; the replacement sets it anew when it is called
     * with the word below 0. For one replacement, once, before its first block: others get
     * HEAPLEDGER_HOOK_FULL, and are asked for each block. */
    int (*count_calls)(const heapledger_replacement *replacement, intptr_t word, uintptr_t first, size_t length);
} heapledger_hooks;

/* The exports of a hook library. heapledger_hook_init is called once in a process, in the first
 * thread, at the first allocation: before constructors have run, including the library's own.
 * Allocations that it makes go to the real functions and are not observed. The hooks that it
 * installs are entered once the heapledger_hook_init of each hook library has returned, the first
 * allocation being the first to enter them: that may be before the constructors of any library have
 * run, the allocator's among them. Its result is ignored. */
#define HEAPLEDGER_EXPORT __attribute__((visibility("default")))
extern HEAPLEDGER_EXPORT const uint32_t heapledger_hook_version;
HEAPLEDGER_EXPORT int heapledger_hook_init(const heapledger_functions *real, const heapledger_hooks *hooks);

/* Required once in a hook library. */
#define HEAPLEDGER_HOOK_LIBRARY const uint32_t heapledger_hook_version = HEAPLEDGER_HOOK_VERSION

/* Returns the hook table of this process, for programs that install hooks while they run; null if
 * Heapledger is not present. Nothing has to be linked for it. */
__extension__ static __inline__ __attribute__((unused)) const heapledger_hooks *heapledger_find_hooks(void) {
#if defined(__x86_64__) && defined(__LP64__) && defined(__ELF__)
    const heapledger_hooks *hooks;
    /* Through the global offset table, so that the reference stays weak in programs that are not
     * position-independent, too. */
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
