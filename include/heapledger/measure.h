/* Heapledger, from C: how much memory a block takes, asked of the allocator, and reported for. Part of heapledger.h.
 *
 * Whoever measures a data structure takes a function of the type heapledger_size_of, asks it for each block that the
 * structure owns, and adds up. So whoever measures decides what an answer does: the functions that the macros below make
 * also *mark* the block, in the ledger, as reported by somebody; heapledger_malloc_size_of only measures. docs/reporters.md
 * is the guide.
 *
 * All may be called in any thread, as long as nobody frees the block meanwhile. They cost what malloc_usable_size costs, and
 * a look-up in the ledger for a mark. They work with HEAPLEDGER_OFF, without marks. On other systems than Linux they
 * answer 0. */
#ifndef HEAPLEDGER_MEASURE_H
#define HEAPLEDGER_MEASURE_H

#ifdef __linux__
#include <malloc.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that the allocator has given to a block: what was asked for, and what it has rounded up. The pointer is what malloc
 * or one of its family has returned, and not yet free, or null, which has 0. An address inside a block is a mistake that
 * malloc_usable_size may die of: it has 0 where a ledger of this process knows the block. */
typedef size_t heapledger_size_of(const void *block);

/* As the allocator says of what is known to be a block, or null. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ size_t heapledger_allocator_size(const void *block) {
#ifdef __linux__
    return block != NULL ? malloc_usable_size((void *)(uintptr_t)block) : 0;
#else
    (void)block;
    return 0;
#endif
}

/* The beginning of the live block around an address: any address in it, and it is not read through. Null where there is
 * none, or no ledger of this process that knows it: an exact one has all that was allocated since its start. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ const void *heapledger_start_of(const void *inside) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(block_around);
    heapledger_extent extent;
    if (bridge == NULL || bridge->block_around((uint64_t)(uintptr_t)inside, &extent) != 1) return NULL;
    return (const void *)(uintptr_t)extent.address;
}

/* The ledger, which knows better, is asked before the allocator. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ size_t heapledger_usable_size(const void *block) {
    const void *start = heapledger_start_of(block);
    return start == NULL || start == block ? heapledger_allocator_size(block) : 0;
}

/* Measures, and marks nothing: for other uses than reports, such as the limit of a cache. */
static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t heapledger_malloc_size_of(const void *block) {
    return heapledger_usable_size(block);
}

/* Of the block around an address. 0 where heapledger_start_of knows none. */
static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t heapledger_malloc_enclosing_size_of(const void *inside) {
    return heapledger_allocator_size(heapledger_start_of(inside));
}

/* Answers of heapledger_mark. */
enum {
    HEAPLEDGER_MARK_ONCE = 1,      /* it is the first mark of this block */
    HEAPLEDGER_MARK_AGAIN = 2,     /* the block had been reported before: two reporters count it, or one twice */
    HEAPLEDGER_MARK_RECORDED = 3,  /* heapledger record has been told; what comes of it is in the recording */
    HEAPLEDGER_MARK_UNKNOWN = 0,   /* no ledger of this process keeps marks, or it samples and does not know the block */
    HEAPLEDGER_MARK_NO_BLOCK = -1, /* no live block is known there: freed, none of malloc's, or from before the ledger's start */
    HEAPLEDGER_MARK_INSIDE = -2    /* the address is inside a block, and not where it begins */
};

#if HEAPLEDGER_IS_ON
/* What this thread reports. */
struct heapledger_reporting {
    const void *reporter; /* that it runs */
    int is_not_marking;   /* not 0: the collection is not to mark what is measured */
};
__extension__ extern __thread struct heapledger_reporting heapledger_reporting_v1;
__extension__ __thread struct heapledger_reporting heapledger_reporting_v1 __attribute__((weak));
#endif

/* Marks the block that begins at an address as reported by somebody, with the stack of this call; `reporter` stays. `flags`:
 * HEAPLEDGER_MARK_KEEP or 0. Null is no block and no reporter: HEAPLEDGER_MARK_UNKNOWN. `measured`: as how many bytes it is counted; 0: as all that may be used. Less than that is a
 * defect of the reporter. The next collection that marks begins by taking all marks off, but for those to be kept. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ int heapledger_mark_measured(const void *block, const char *reporter, uint32_t flags,
                                                                   size_t measured) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(mark);
    if (bridge == NULL || block == NULL || reporter == NULL) return HEAPLEDGER_MARK_UNKNOWN;
#if HEAPLEDGER_IS_ON
    if (heapledger_reporting_v1.is_not_marking) return HEAPLEDGER_MARK_UNKNOWN;
#endif
    {
        heapledger_marking marking;
        marking.reporter = reporter;
        marking.reporter_length = (uint32_t)strlen(reporter);
        marking.flags = flags;
        marking.measured = measured;
        return bridge->mark((uint64_t)(uintptr_t)block, &marking);
    }
}

/* The same of a block that is counted as all that may be used of it. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ int heapledger_mark(const void *block, const char *reporter, uint32_t flags) {
    return heapledger_mark_measured(block, reporter, flags, 0);
}

/* Takes a mark off that was made with HEAPLEDGER_MARK_KEEP, by the same reporter: the block is about to be freed. 1: there was
 * one; 0: none is known, as of null. A block that is freed with such a mark is a defect of the reporter. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ int heapledger_unmark(const void *block, const char *reporter) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(unmark);
    if (bridge == NULL || block == NULL || reporter == NULL) return 0;
    return bridge->unmark((uint64_t)(uintptr_t)block, reporter, (uint32_t)strlen(reporter));
}

/* For the functions below. The mark comes first: an address inside a block is a defect of the reporter that the ledger, or the
 * recorder, is told of, and that the allocator might die of. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ size_t heapledger_size_of_marked(const void *block, const char *reporter, uint32_t flags) {
    const int marked = heapledger_mark_measured(block, reporter, flags, 0);
    if (marked == HEAPLEDGER_MARK_INSIDE) return 0;
    /* Without an answer the block may still be known: the collection may be one that does not mark. */
    return marked == HEAPLEDGER_MARK_UNKNOWN ? heapledger_usable_size(block) : heapledger_allocator_size(block);
}

/* Each defines a static function of the type heapledger_size_of, for one reporter, whose name is a string literal: so that
 * the ledger can tell what nobody reports, and what two report. No semicolon follows.
 *
 * Measures, and marks. */
#define HEAPLEDGER_DEFINE_MALLOC_SIZE_OF(function, reporter)                                                          \
    static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t function(const void *block) {                           \
        return heapledger_size_of_marked(block, "" reporter "", 0);                                                   \
    }
/* The same for any address in a block: see heapledger_malloc_enclosing_size_of. */
#define HEAPLEDGER_DEFINE_MALLOC_ENCLOSING_SIZE_OF(function, reporter)                                                \
    static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t function(const void *inside) {                          \
        return heapledger_size_of_marked(heapledger_start_of(inside), "" reporter "", 0);                             \
    }
/* For reporters that count what is allocated and freed: the one when a block has been allocated, with a mark that stays; the
 * other, with the same reporter, when it is about to be freed, which takes the mark off. Their sum is what the counter adds and
 * subtracts. */
#define HEAPLEDGER_DEFINE_MALLOC_SIZE_OF_ON_ALLOC(function, reporter)                                                 \
    static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t function(const void *block) {                           \
        return heapledger_size_of_marked(block, "" reporter "", HEAPLEDGER_MARK_KEEP);                                \
    }
#define HEAPLEDGER_DEFINE_MALLOC_SIZE_OF_ON_FREE(function, reporter)                                                  \
    static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t function(const void *block) {                           \
        heapledger_unmark(block, "" reporter "");                                                                     \
        return heapledger_usable_size(block);                                                                         \
    }

#ifdef __cplusplus
}
#endif

#endif
