/* Heapledger's arenas, from C: heaps of a program's own, with labels, limits and totals.
 *
 *     #include <heapledger/arena.h>
 *
 *     heapledger_arena_params params = HEAPLEDGER_ARENA_PARAMS("images");
 *     params.bytes_max = 64 << 20;
 *     heapledger_arena images = heapledger_arena_create(&params);
 *     char *pixels = (char *)heapledger_arena_malloc(images, 4096);
 *     pixels = (char *)heapledger_arena_realloc(images, pixels, 8192);
 *     heapledger_arena_free(images, pixels);
 *     heapledger_arena_dispose(images);
 *
 * The functions are defined by
 * - libheapledger_allocator.so, whose arenas have memory of their own;
 * - libheapledger, for a program with any malloc: its arenas are labels, totals and limits, and the
 *   blocks are malloc's. If libheapledger_allocator.so is in the process, too, its arenas are used;
 * - `heapledger record`, in the programs that it records: it takes the calls to one of the above,
 *   and each block has its arena in the recording (`heapledger top --by arena`).
 * A program that links none of them can use arenas where they are there, by weak references: see
 * HEAPLEDGER_ARENAS_WEAK.
 *
 * Blocks. A block of an arena may be passed to free and realloc, too, and stays in its arena;
 * malloc_usable_size knows it. A block of malloc is in no arena, and must not be passed to the
 * functions for arenas.
 *
 * Errors. Functions that return a block return null with errno ENOMEM if there is no memory, or the
 * arena's limit does not permit it. An arena that does not exist, a block that is not in the arena,
 * and an arena that is disposed of while it has live blocks end the program by SIGABRT, with a
 * message on standard error. Over any malloc, such a disposal has the message only, since the blocks
 * may have been freed unseen; those that were not stay valid, in no arena.
 *
 * Threads. All functions may be called in any thread, not in a signal handler. Only the thread that
 * disposes of an arena may use it then.
 *
 * C99 or later, C++11 or later; x86-64 Linux. docs/arenas.md is the guide. */
#ifndef HEAPLEDGER_ARENA_H
#define HEAPLEDGER_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Defined before this file is included: the functions are weak references, whose addresses are null
 * if nothing defines them. Test one: `if (heapledger_arena_create != NULL)`. */
#ifdef HEAPLEDGER_ARENAS_WEAK
#define HEAPLEDGER_ARENA_FUNCTION extern __attribute__((weak))
#else
#define HEAPLEDGER_ARENA_FUNCTION extern
#endif

/* An arena: a random number. 0 is never one. */
typedef uint64_t heapledger_arena;

/* Flags of an arena. Over any malloc they have no effect. */
enum {
    HEAPLEDGER_ARENA_RANDOMISE = 1,     /* small blocks are at random places; the default is the process's */
    HEAPLEDGER_ARENA_NO_RANDOMISE = 2,  /* they are not */
    HEAPLEDGER_ARENA_SINGLE_THREAD = 4, /* another thread than the creator ends the program */
    HEAPLEDGER_ARENA_PRIVATE = 8        /* the id is the creator's secret: neither the label nor an address leads to it */
};

/* Functions that provide an arena's memory, in chunks. `map` returns memory, or null; the others get
 * such memory, or parts of it in whole pages. `commit` and `decommit` return 0 on success. `map` and
 * `unmap` are required. Any thread of the process may call them, with locks held: they must not
 * allocate or free, by malloc either, nor use arenas. */
struct heapledger_chunk_callbacks {
    void *context; /* passed to each */
    void *(*map)(void *context, size_t length, size_t alignment);
    void (*unmap)(void *context, void *start, size_t length);
    int (*commit)(void *context, void *start, size_t length);
    int (*decommit)(void *context, void *start, size_t length);
};

/* The parameters of a new arena. Entries are only ever appended. Zeroes are the defaults. */
typedef struct heapledger_arena_params {
    uint32_t size;     /* sizeof(heapledger_arena_params) */
    uint32_t flags;    /* HEAPLEDGER_ARENA_…, or 0 */
    const char *label; /* copied, up to 127 bytes; or null */
    size_t dirty_max;  /* the limit of unused bytes that keep their memory; 0: the default */
    /* the shift of that limit instead of the process's, if that is positive or negative; 0: the same */
    int32_t dirty_increase_override, dirty_decrease_override;
    size_t bytes_max;  /* the limit of the arena in bytes: of its memory, or, over any malloc, of the
                        * requested sizes of its live blocks; 0: none */
    /* null: the system's memory. Over any malloc, an arena with callbacks is not created. */
    const struct heapledger_chunk_callbacks *chunks;
} heapledger_arena_params;

/* The initialiser of parameters with a label, and defaults otherwise. */
#define HEAPLEDGER_ARENA_PARAMS(label) {sizeof(heapledger_arena_params), 0, (label), 0, 0, 0, 0, NULL}

/* Creates an arena; null parameters are the defaults. 0 if there is no memory, or the process has as
 * many arenas as it can have (over any malloc, 3,584); with errno EINVAL if the callbacks have no
 * `map` or no `unmap`. */
HEAPLEDGER_ARENA_FUNCTION heapledger_arena heapledger_arena_create(const heapledger_arena_params *params);

/* Disposes of an arena, all of whose blocks have been freed. */
HEAPLEDGER_ARENA_FUNCTION void heapledger_arena_dispose(heapledger_arena arena);

/* Like malloc, calloc, memalign, realloc and free, in an arena. A null block is allocated anew by
 * realloc, and ignored by free. */
HEAPLEDGER_ARENA_FUNCTION void *heapledger_arena_malloc(heapledger_arena arena, size_t size);
HEAPLEDGER_ARENA_FUNCTION void *heapledger_arena_calloc(heapledger_arena arena, size_t count, size_t each);
HEAPLEDGER_ARENA_FUNCTION void *heapledger_arena_memalign(heapledger_arena arena, size_t alignment, size_t size);
HEAPLEDGER_ARENA_FUNCTION void *heapledger_arena_realloc(heapledger_arena arena, void *block, size_t size);
HEAPLEDGER_ARENA_FUNCTION void heapledger_arena_free(heapledger_arena arena, void *block);

/* Returns the arena of a live block, by its first address. For a block of malloc it is 0, or the
 * number of an arena that the allocator has for such blocks. */
HEAPLEDGER_ARENA_FUNCTION heapledger_arena heapledger_arena_of(const void *block);

/* Gives the calling thread an arena of its own for what it allocates by malloc, or the common one
 * again. Over any malloc this has no effect. */
HEAPLEDGER_ARENA_FUNCTION void heapledger_thread_local_arena(bool on);

/* Purges: unused memory is given back to the system. An allocator without purges has none to give
 * back: these functions then do nothing. */

/* Gives all unused memory back, or the part that exceeds the limits. Returns the bytes. */
HEAPLEDGER_ARENA_FUNCTION size_t heapledger_purge_all(void);
HEAPLEDGER_ARENA_FUNCTION size_t heapledger_purge_excess(void);
/* Shifts the limits of all arenas to the left, or, if negative, to the right. */
HEAPLEDGER_ARENA_FUNCTION void heapledger_set_dirty_modifier(int32_t shift);
/* Says if arenas over their limits wait for heapledger_purge_now. Returns the former setting. */
HEAPLEDGER_ARENA_FUNCTION bool heapledger_enable_deferred_purge(bool on);

/* The answers of heapledger_purge_now. */
enum {
    HEAPLEDGER_PURGE_DONE = 0,       /* no arena waits */
    HEAPLEDGER_PURGE_NEEDS_MORE = 1, /* one does, and may be purged at once */
    HEAPLEDGER_PURGE_WANTS_LATER = 2 /* one does, but its memory has just been used again */
};

/* Purges arenas that wait and have used none of their unused memory again for so many milliseconds,
 * up to a number of bytes. With peek_only it purges nothing. */
HEAPLEDGER_ARENA_FUNCTION int heapledger_purge_now(bool peek_only, uint32_t reuse_grace_ms, size_t budget);

/* A purge. Entries are only ever appended. */
typedef struct heapledger_purge {
    uint32_t size; /* bytes of this structure */
    uint32_t flags;
    uint64_t arena;     /* 0: the allocator as a whole */
    const char *label;  /* the arena's, empty if it has none. Valid during the call */
    const char *caller; /* the reason, in a word or two; or null */
    uint64_t pages;     /* pages that were given back */
    uint64_t calls;     /* system calls that this took */
    uint64_t chunks;    /* chunks that the pages were in */
    uint64_t start_ns;  /* by CLOCK_MONOTONIC */
    uint64_t end_ns;
} heapledger_purge;

/* Sets a function that is told of each purge after it was made, in the thread that made it; null
 * removes it. It is called inside of the allocator: it must not allocate, free, or use arenas. */
HEAPLEDGER_ARENA_FUNCTION void heapledger_set_purge_hook(void (*hook)(const heapledger_purge *purge));

#ifdef __cplusplus
}
#endif

#endif
