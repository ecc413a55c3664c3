/* Heapledger, from C99 and C++98 on: what the allocator says about its blocks and its memory.
 * libheapledger_allocator.so exports these functions, so a program that runs with or without it
 * finds them by dlsym:
 *
 *     int (*stats)(heapledger_allocator_stats *) = dlsym(RTLD_DEFAULT, "heapledger_stats");
 *     heapledger_allocator_stats now = {sizeof now};
 *     if (stats && stats(&now) == 0) printf("%zu of %zu bytes\n", now.allocated, now.mapped); */
#ifndef HEAPLEDGER_ALLOCATOR_H
#define HEAPLEDGER_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of addresses. */
enum {
    HEAPLEDGER_POINTER_UNKNOWN = 0,   /* not in a block */
    HEAPLEDGER_POINTER_LIVE = 1,      /* in a block in use */
    HEAPLEDGER_POINTER_FREED = 2,     /* in a free block of up to 64 KiB */
    HEAPLEDGER_POINTER_FREED_PAGE = 3 /* in a page without blocks, or in a larger free block */
};

typedef struct heapledger_pointer_info {
    uint32_t size; /* sizeof of this */
    uint32_t kind;
    const void *start; /* of the block or page */
    size_t length;     /* usable size of the block, or size of the page, in bytes */
    uint64_t arena;    /* 0: unknown, or private */
} heapledger_pointer_info;

/* Any address is allowed. Takes no lock, so a signal handler may call it. If a signal handler leaves
 * it by siglongjmp, or the thread is cancelled in it, it counts as a reader for ever: from then on,
 * chunks that become free keep their addresses. Returns 0, or EINVAL. */
int heapledger_ptr_info(const void *address, heapledger_pointer_info *to);

/* Visits the blocks in use in the order of their addresses, until `visit` returns another value
 * than 0, which is returned. Exact if nobody allocates or frees meanwhile, `visit` included;
 * otherwise blocks that stay in use are visited once all the same. No lock is held. */
int heapledger_walk(int (*visit)(void *context, void *block, size_t size, uint64_t arena), void *context);

/* Says if the blocks of fresh memory are handed out in random order from now on, with new random
 * numbers: for a forked process that wants other options than its parent. */
void heapledger_reset_randomisation(bool on);

/* An arena (arena.h) with this label that is not private; 0 if there is none. If several have the
 * label, any of them. */
uint64_t heapledger_arena_find(const char *label);

/* The usable size of a block of `size` bytes. */
size_t malloc_good_size(size_t size);

/* The runs of one size; in bytes unless another unit is said. */
typedef struct heapledger_allocator_bin {
    size_t size; /* of a block */
    size_t runs, runs_non_full; /* numbers */
    size_t unused; /* free blocks that were in use before */
    size_t total;
    size_t run_size;
    size_t run_blocks; /* blocks in a run */
    size_t blocks;     /* blocks in use */
} heapledger_allocator_bin;

enum { HEAPLEDGER_ALLOCATOR_BINS = 68 };

/* Numbers of operations with the blocks of one size so far. */
typedef struct heapledger_allocator_bin_operations {
    size_t allocations, frees;
} heapledger_allocator_bin_operations;

/* In bytes unless another unit is said. `mapped` is the sum of allocated, waste, dirty, bookkeeping,
 * bin_unused, fresh and madvised. */
typedef struct heapledger_allocator_stats {
    size_t size; /* sizeof of this */
    size_t option_junk, option_zero, option_random; /* 1: on */
    size_t option_poison;                           /* bytes of a block; SIZE_MAX: all */
    size_t option_guards;                           /* 1: on */
    size_t arenas;                                  /* number */
    size_t quantum, quantum_max, small_max, large_max, slice_size, chunk_size, page_size, dirty_max;
    size_t mapped, allocated;
    size_t blocks; /* number in use */
    size_t waste, waste_tails, waste_guards, dirty, fresh, madvised, bookkeeping, bin_unused;
    size_t run_headers;   /* the part of bookkeeping in metadata of runs */
    size_t huge;          /* the part of allocated in huge blocks */
    size_t huge_blocks, chunks, purges; /* numbers */
    heapledger_allocator_bin bins[HEAPLEDGER_ALLOCATOR_BINS];
    /* Number so far: 1 for an allocation, a free, and a realloc in place that changes the size; 2 for
     * a realloc that moves; 0 for one that leaves the block as it is. */
    size_t operations;
    heapledger_allocator_bin_operations bin_operations[HEAPLEDGER_ALLOCATOR_BINS];
    size_t real_page_size; /* of the system; page_size may be larger, by the options */
    size_t option_keyed;   /* 1: on */
} heapledger_allocator_stats;

/* Fills in as many bytes as `size` says. Returns 0, or EINVAL. */
int heapledger_stats(heapledger_allocator_stats *to);

/* The same for one arena (arena.h). Returns ENOENT if no arena has the id. */
int heapledger_arena_stats(uint64_t arena, heapledger_allocator_stats *to);

typedef struct heapledger_allocator_stats_lite {
    size_t size; /* sizeof of this */
    size_t mapped;
    size_t allocated_max; /* upper bound of the blocks in use */
    size_t dirty;
    size_t operations; /* estimate: differs by at most the number of free blocks, and 256 for each size above
                        * 512 bytes and thread */
} heapledger_allocator_stats_lite;

/* The same for the totals that are known without looking at each run. */
int heapledger_stats_lite(heapledger_allocator_stats_lite *to);

/* The formats of the statistics as text. */
enum { HEAPLEDGER_STATS_TEXT = 0, HEAPLEDGER_STATS_JSON = 1, HEAPLEDGER_STATS_OPENMETRICS = 2 };

/* Writes the statistics in pieces, which are not terminated. Allocates nothing. Returns 0, or
 * EINVAL. */
int heapledger_stats_print(int format, void (*write)(void *context, const char *text, size_t length), void *context);

#ifdef __cplusplus
}
#endif

#endif
