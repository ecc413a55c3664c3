/* Heapledger, from C: functions that ask the allocator for the size of a block, and report it. Part
 * of heapledger.h.
 *
 * A function that measures a data structure takes a function of the type heapledger_size_of, calls
 * it for each block that the structure owns, and adds up. So its caller decides whether a call has
 * a further effect: the functions that the macros below define also *mark* the block in the ledger
 * as reported; heapledger_malloc_size_of only measures. docs/reporters.md is the guide.
 *
 * All may be called in any thread, as long as the block is not freed meanwhile. They cost as much
 * as malloc_usable_size, and a mark costs a look-up in the ledger. They work with HEAPLEDGER_OFF,
 * without marks. On systems other than Linux they return 0. */
#ifndef HEAPLEDGER_MEASURE_H
#define HEAPLEDGER_MEASURE_H

#ifdef __linux__
#include <malloc.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the bytes that the allocator has given to a block: the requested size, rounded up. The
 * pointer is from malloc or a related function and not freed yet, or null, which gives 0. An
 * address inside a block is an error that malloc_usable_size may crash on: the result is 0 if a
 * ledger of this process knows the block. */
typedef size_t heapledger_size_of(const void *block);

/* Returns the usable size, from the allocator, of a pointer that is known to be a block, or
 * null. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ size_t heapledger_allocator_size(const void *block) {
#ifdef __linux__
    return block != NULL ? malloc_usable_size((void *)(uintptr_t)block) : 0;
#else
    (void)block;
    return 0;
#endif
}

/* Returns the beginning of the live block around an address, which may be any address in it;
 * nothing is read through the pointer. Returns null if there is no such block, or no ledger of this
 * process that knows it: an exact one knows all blocks allocated since its start. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ const void *heapledger_start_of(const void *inside) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(block_around);
    heapledger_extent extent;
    if (bridge == NULL || bridge->block_around((uint64_t)(uintptr_t)inside, &extent) != 1) return NULL;
    return (const void *)(uintptr_t)extent.address;
}

/* Asks the ledger before the allocator, because it detects addresses inside a block. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ size_t heapledger_usable_size(const void *block) {
    const void *start = heapledger_start_of(block);
    return start == NULL || start == block ? heapledger_allocator_size(block) : 0;
}

/* Measures without marking: for uses other than reports, such as the limit of a cache. */
static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t heapledger_malloc_size_of(const void *block) {
    return heapledger_usable_size(block);
}

/* Returns the size of the block around an address; 0 if heapledger_start_of finds none. */
static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t heapledger_malloc_enclosing_size_of(const void *inside) {
    return heapledger_allocator_size(heapledger_start_of(inside));
}

/* Results of heapledger_mark. */
enum {
    HEAPLEDGER_MARK_ONCE = 1,      /* this is the first mark of the block */
    HEAPLEDGER_MARK_AGAIN = 2,     /* reported before: by another reporter, or by the same one */
    /* heapledger record was notified; the recording has the result */
    HEAPLEDGER_MARK_RECORDED = 3,
    /* no ledger here keeps marks, or it samples and lacks the block */
    HEAPLEDGER_MARK_UNKNOWN = 0,
    /* no live block known: freed, not malloc's, or from before the ledger */
    HEAPLEDGER_MARK_NO_BLOCK = -1,
    HEAPLEDGER_MARK_INSIDE = -2    /* the address is inside a block, not at its beginning */
};

#if HEAPLEDGER_IS_ON
/* The report in progress in this thread. */
struct heapledger_reporting {
    const void *reporter; /* the reporter that is running */
    int is_not_marking;   /* not 0: the collection must not mark measured blocks */
};
__extension__ extern __thread struct heapledger_reporting heapledger_reporting_v1;
__extension__ __thread struct heapledger_reporting heapledger_reporting_v1 __attribute__((weak));
#endif

/* Marks the block that begins at an address as reported, with the stack of this call; `reporter` is
 * a text that stays to the end of the process. `flags` is HEAPLEDGER_MARK_KEEP or 0. `measured` is
 * the number of bytes that the reporter counts; 0 means the usable size. Less than the usable size
 * is a defect of the reporter. A null block or reporter gives HEAPLEDGER_MARK_UNKNOWN. The next
 * collection that marks begins by removing all marks that are not kept. */
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

/* The same for a block that is counted with its usable size. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ int heapledger_mark(const void *block, const char *reporter, uint32_t flags) {
    return heapledger_mark_measured(block, reporter, flags, 0);
}

/* Removes a mark that the same reporter made with HEAPLEDGER_MARK_KEEP: the block is about to be
 * freed. Returns 1 if there was a mark; 0 if none is known, as for null. Freeing a block that still
 * has such a mark is a defect of the reporter. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ int heapledger_unmark(const void *block, const char *reporter) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(unmark);
    if (bridge == NULL || block == NULL || reporter == NULL) return 0;
    return bridge->unmark((uint64_t)(uintptr_t)block, reporter, (uint32_t)strlen(reporter));
}

/* For the functions below. The mark comes first: an address inside a block is a defect of the
 * reporter, of which the ledger or the recorder is notified, and on which the allocator might
 * crash. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ size_t heapledger_size_of_marked(const void *block, const char *reporter, uint32_t flags) {
    const int marked = heapledger_mark_measured(block, reporter, flags, 0);
    if (marked == HEAPLEDGER_MARK_INSIDE) return 0;
    /* Even if the mark is unknown the block may be valid, because the collection may not mark. */
    return marked == HEAPLEDGER_MARK_UNKNOWN ? heapledger_usable_size(block) : heapledger_allocator_size(block);
}

/* Each of the macros below defines a static function of the type heapledger_size_of for one
 * reporter, whose name is a string literal; so the ledger can distinguish unreported and
 * twice-reported blocks. No semicolon follows.
 *
 * This one measures and marks. */
#define HEAPLEDGER_DEFINE_MALLOC_SIZE_OF(function, reporter)                                                          \
    static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t function(const void *block) {                           \
        return heapledger_size_of_marked(block, "" reporter "", 0);                                                   \
    }
/* The same for any address in a block: see heapledger_malloc_enclosing_size_of. */
#define HEAPLEDGER_DEFINE_MALLOC_ENCLOSING_SIZE_OF(function, reporter)                                                \
    static __attribute__((unused)) HEAPLEDGER_NOT_READ size_t function(const void *inside) {                          \
        return heapledger_size_of_marked(heapledger_start_of(inside), "" reporter "", 0);                             \
    }
/* For reporters that keep a counter. The first function is called when a block has been allocated,
 * and makes a mark that stays. The second, for the same reporter, is called when the block is about
 * to be freed, and removes the mark. The counter adds the result of the first and subtracts the
 * result of the second. */
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
