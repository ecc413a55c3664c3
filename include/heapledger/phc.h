/* Heapledger, from C99 and C++98 on: the heap checker of a program that links libheapledger.
 * Belongs to heapledger.h:
 *
 *     #include "heapledger/phc.h"
 *
 *     int main(void) {
 *         heapledger_phc_start(NULL);   // a few blocks are sampled from now on
 *         ...
 *     }
 *
 * A sampled block lies between inaccessible pages, and becomes inaccessible when it is freed. An
 * access outside of it, or after its free, is a fault: it is reported on standard error, with
 * addresses, and the program ends as it would at such a fault. docs/phc.md says what is found. */
#ifndef HEAPLEDGER_PHC_H
#define HEAPLEDGER_PHC_H

#include "heapledger.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The place of a block on its pages. */
enum {
    HEAPLEDGER_PHC_END = 0,   /* overflows are caught at the access */
    HEAPLEDGER_PHC_START = 1, /* underflows are */
    HEAPLEDGER_PHC_DRAWN = 2  /* either, for each block */
};

/* The options of the checker; 0 stands for the default. Delays are mean numbers of allocations, in
 * all threads together, rounded up to powers of two; a normal delay of 1 samples every allocation. */
typedef struct heapledger_phc_options {
    uint32_t size; /* sizeof(heapledger_phc_options) */
    uint32_t placement;
    uint64_t delay_first;  /* before the first sample: 65536 */
    uint64_t delay_normal; /* from one sample to the next: 16384 */
    uint64_t delay_reuse;  /* for which the memory of a freed block is kept out of use: 262144 */
    uint64_t bytes_max;    /* of memory for blocks: 16 MiB */
    uint64_t memory_min;   /* of the machine, below which the checker does not start: 8 GB */
    uint32_t adaptive;     /* 1: stacks that were sampled often are sampled less */
    uint32_t quiet;        /* 1: nothing is printed */
} heapledger_phc_options;

/* The figures of the checker. */
typedef struct heapledger_phc_stats {
    uint32_t size; /* sizeof(heapledger_phc_stats) */
    uint32_t slots_allocated;
    uint32_t slots_freed;
    uint32_t slots_unused;
    uint64_t bytes_allocated;     /* of live sampled blocks */
    uint64_t bytes_fragmentation; /* of their pages, apart from the blocks */
    uint64_t bytes_metadata;
    uint64_t bytes_reserved; /* of addresses */
    uint64_t blocks_sampled; /* up to now */
    uint64_t blocks_refused; /* because all slots were in use or kept out of use */
} heapledger_phc_stats;

/* The kinds of addresses, as Mozilla's heap checker numbers them. */
enum {
    HEAPLEDGER_PHC_UNKNOWN = 0,         /* not the checker's, or not known: `was_locked` */
    HEAPLEDGER_PHC_NEVER_ALLOCATED = 1, /* where no block was yet */
    HEAPLEDGER_PHC_IN_USE = 2,          /* the pages of a live block */
    HEAPLEDGER_PHC_FREED = 3,           /* those of a block that was freed */
    HEAPLEDGER_PHC_GUARD = 4            /* a page between two blocks */
};

/* A call that allocated or freed a block: addresses in the instructions that made the calls,
 * innermost first. */
typedef struct heapledger_phc_call {
    uint32_t thread; /* the kernel's id; 0 if there was no call */
    uint32_t frames_count;
    uint64_t frames[64];
} heapledger_phc_call;

/* The memory at an address. On a guard page the block is the nearest one. */
typedef struct heapledger_phc_found {
    uint32_t size; /* sizeof(heapledger_phc_found) */
    uint32_t kind;
    uint32_t is_overflow; /* 1 if the address is behind the block on a guard page */
    uint32_t was_locked;  /* 1 if another thread used the checker, so that nothing is known */
    uint64_t base;        /* of the block; 0 if there is none */
    uint64_t bytes;       /* that were asked for */
    heapledger_phc_call allocated;
    heapledger_phc_call freed;
} heapledger_phc_found;

/* The lists of functions. */
enum {
    HEAPLEDGER_PHC_ONLY = 0, /* only blocks that are allocated in these are sampled */
    HEAPLEDGER_PHC_NEVER = 1 /* blocks that are allocated in these are never sampled */
};

/* The table of functions that the functions below call. */
typedef struct heapledger_phc {
    uint32_t size;
    uint32_t version;
    int (*start)(const heapledger_phc_options *options);
    int (*choose)(int list, const char *function);
    int (*enable)(int is_on);
    int (*stats)(heapledger_phc_stats *stats);
    int (*find)(const void *address, heapledger_phc_found *found);
    void (*disable_thread)(void);
    void (*enable_thread)(void);
} heapledger_phc;

#if HEAPLEDGER_IS_ON
__asm__(".weak heapledger_phc_v1");
HEAPLEDGER_INLINE const heapledger_phc *heapledger_find_phc(void) {
    const heapledger_phc *phc;
    __asm__("movq heapledger_phc_v1@GOTPCREL(%%rip), %0" : "=r"(phc));
    return phc != NULL && phc->size >= sizeof(heapledger_phc) ? phc : NULL;
}
#else
HEAPLEDGER_INLINE const heapledger_phc *heapledger_find_phc(void) { return NULL; }
#endif

/* The functions below return HEAPLEDGER_OK, or HEAPLEDGER_ELSEWHERE if no libheapledger is in the
 * process. They may be called in any thread at any time; in signal handlers only
 * heapledger_phc_find and those for a thread. */

/* Starts the checker, for the rest of the process's life. `options` may be null. Handlers of
 * SIGSEGV and SIGBUS that the program has are called after a report; those that it installs later
 * replace the checker's, and nothing is reported then. Returns HEAPLEDGER_STATE if it runs,
 * HEAPLEDGER_ELSEWHERE under `heapledger record`, and HEAPLEDGER_FAILED if the machine has too
 * little memory, the system refuses memory, the program has another allocator with operators of its
 * own, or an option makes no sense. */
HEAPLEDGER_INLINE int heapledger_phc_start(const heapledger_phc_options *options) {
    const heapledger_phc *phc = heapledger_find_phc();
    return phc != NULL ? phc->start(options) : HEAPLEDGER_ELSEWHERE;
}

/* Adds a function to a list, before the start: "main", "Class::method", without arguments. The name
 * of a class or namespace stands for all that is in it. Returns HEAPLEDGER_STATE after the start,
 * and HEAPLEDGER_FAILED if there is no room (64 functions, 4 KiB of names). */
HEAPLEDGER_INLINE int heapledger_phc_choose(int list, const char *function) {
    const heapledger_phc *phc = heapledger_find_phc();
    return phc != NULL ? phc->choose(list, function) : HEAPLEDGER_ELSEWHERE;
}

/* Stops sampling (0), or resumes it (1). Blocks that were sampled stay so until they are freed or
 * reallocated. Returns HEAPLEDGER_STATE before the start. */
HEAPLEDGER_INLINE int heapledger_phc_enable(int is_on) {
    const heapledger_phc *phc = heapledger_find_phc();
    return phc != NULL ? phc->enable(is_on) : HEAPLEDGER_ELSEWHERE;
}

/* Writes the figures. Returns HEAPLEDGER_STATE before the start. */
HEAPLEDGER_INLINE int heapledger_phc_get_stats(heapledger_phc_stats *stats) {
    const heapledger_phc *phc = heapledger_find_phc();
    return phc != NULL ? phc->stats(stats) : HEAPLEDGER_ELSEWHERE;
}

/* Looks an address up, which need not be that of a block: for a handler of faults. */
HEAPLEDGER_INLINE int heapledger_phc_find(const void *address, heapledger_phc_found *found) {
    const heapledger_phc *phc = heapledger_find_phc();
    return phc != NULL ? phc->find(address, found) : HEAPLEDGER_ELSEWHERE;
}

/* Keeps blocks of this thread out of the sample, until the other function was called as often. */
HEAPLEDGER_INLINE void heapledger_phc_disable_thread(void) {
    const heapledger_phc *phc = heapledger_find_phc();
    if (phc != NULL) phc->disable_thread();
}

HEAPLEDGER_INLINE void heapledger_phc_enable_thread(void) {
    const heapledger_phc *phc = heapledger_find_phc();
    if (phc != NULL) phc->enable_thread();
}

#ifdef __cplusplus
}
#endif

#endif
