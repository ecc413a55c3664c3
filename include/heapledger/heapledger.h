/* Heapledger, from C: contexts, pools, stamps, markers, questions to the ledger.
 *
 * The declarations here reach the program's observer: `heapledger record`, or the ledger of
 * libheapledger. Each of the two is found through a weak symbol. Without an observer both symbols
 * are null; a scope, or any other call here, then costs two loads and two tests, and nothing else
 * of Heapledger is in the process. Nothing has to be linked for this header.
 *
 * C99 or later, and C++ (see heapledger.hpp for classes); gcc or clang. On systems other than
 * x86-64 ELF all calls compile and do nothing.
 *
 * If HEAPLEDGER_OFF is defined before this header is included, everything here is empty: no symbol,
 * and no instruction if the compiler optimises. Define it for a whole program, or for none of its
 * files.
 *
 * Threads: every function here may be called from any thread at any time, also while other threads
 * allocate. A context belongs to the thread that entered it. No function here allocates, fails or
 * sets errno, unless its comment says so.
 *
 * Null: every function accepts null for every pointer, and its comment says what null means. If it
 * says nothing, a call with a null object (a pool, a category, a text) does nothing.
 *
 * Texts are UTF-8. Texts, names and pools are not copied: they must stay in place and unchanged to
 * the end of the process, as string literals and static variables do. */
#ifndef HEAPLEDGER_H
#define HEAPLEDGER_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEAPLEDGER_INLINE __extension__ static __inline__ __attribute__((always_inline, unused))

/* The memory behind the first argument is not read, so gcc need not warn that it is
 * uninitialised. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define HEAPLEDGER_NOT_READ __attribute__((access(none, 1)))
#else
#define HEAPLEDGER_NOT_READ
#endif

/* ------------------------------------------------------------------------------------------------------- names */

typedef struct heapledger_category heapledger_category;

/* The name of a scope, a category or a pool, or the value of a scope. Observers tell names apart by
 * address, and show names with equal texts as one. They show the first 1,024 bytes of a text. */
typedef struct heapledger_name {
    const char *text;
    uint32_t length;
    uint32_t flags;                      /* HEAPLEDGER_TASK_FLAG or 0 */
    const heapledger_category *category; /* or null */
} heapledger_name;

/* Flag of heapledger_name: the scope is a task, a piece of work that threads take up, such as a
 * request. */
#define HEAPLEDGER_TASK_FLAG 1u

/* Scopes that are switched on and off together while the program runs. */
struct heapledger_category {
    heapledger_name name;
    uint32_t enabled; /* read by all threads: see heapledger_enable */
    uint32_t reserved;
};

/* Initialisers for the types above, from a string literal. */
#define HEAPLEDGER_NAME(literal) {"" literal "", sizeof(literal) - 1, 0, NULL}
#define HEAPLEDGER_NAME_IN(category, literal) {"" literal "", sizeof(literal) - 1, 0, (category)}
#define HEAPLEDGER_TASK_NAME(literal) {"" literal "", sizeof(literal) - 1, HEAPLEDGER_TASK_FLAG, NULL}
#define HEAPLEDGER_CATEGORY(literal, is_enabled) {HEAPLEDGER_NAME(literal), (is_enabled), 0}

/* Switches a category on (not 0) or off, for scopes that are entered afterwards. */
HEAPLEDGER_INLINE void heapledger_enable(heapledger_category *category, int enabled) {
    if (category != NULL) __atomic_store_n(&category->enabled, (uint32_t)(enabled != 0), __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------------------------------------------- bridge */

typedef struct heapledger_frame {
    const heapledger_name *name;
    const heapledger_name *value;
} heapledger_frame;

/* The maximum number of nested scopes that are kept; scopes further in are left out of the
 * context. */
#define HEAPLEDGER_DEPTH_MAX 128

typedef struct heapledger_stack {
    uint32_t depth;
    uint32_t ignore;
    heapledger_frame frames[HEAPLEDGER_DEPTH_MAX];
} heapledger_stack;

/* A heap of the program's own. */
typedef struct heapledger_pool {
    const heapledger_name *name;
    uint32_t id; /* assigned by the observer; 0 at the beginning */
    uint32_t reserved;
} heapledger_pool;

/* The source location of a stamp. It must never change and stays to the end of the process; its
 * texts need no NUL. */
typedef struct heapledger_place {
    const char *file;
    uint32_t file_length;
    uint32_t line;
    const char *label; /* or null */
    uint32_t label_length;
} heapledger_place;

/* The extent of a block. */
typedef struct heapledger_extent {
    uint64_t address;
    uint64_t bytes;        /* requested */
    uint64_t bytes_usable;
} heapledger_extent;

/* A reporter's mark on a block. */
typedef struct heapledger_marking {
    const char *reporter; /* static; needs no NUL */
    uint32_t reporter_length;
    uint32_t flags;    /* HEAPLEDGER_MARK_KEEP, or 0 */
    uint64_t measured; /* the bytes that the reporter counts; 0: the usable size */
} heapledger_marking;

struct heapledger_calls;

/* The functions of an observer, used by the functions below; programs need not call them. Functions
 * are only ever appended, so a caller checks `size` first. */
typedef struct heapledger_bridge {
    uint32_t size;
    uint32_t version;
    int (*is_recording)(void);
    int (*annotate)(uint32_t code, const uint64_t *words, size_t count);
    heapledger_stack *(*contexts)(heapledger_stack *proposed);
    void (*pool_allocated)(heapledger_pool *pool, uint64_t address, uint64_t size);
    void (*pool_freed)(heapledger_pool *pool, uint64_t address);
    void (*pool_reset)(heapledger_pool *pool);
    void (*pool_closed)(heapledger_pool *pool);
    void (*pool_backed)(heapledger_pool *pool, uint64_t block);
    void (*set_context)(uint64_t block);
    const struct heapledger_calls *ledger; /* null: the observer is another process */
    int (*stamp)(uint64_t block, const char *type, uint32_t type_length, const heapledger_place *place); /* or null */
    /* A reporter has reported the block that begins there. Returns 1: first report of the block; 2:
     * the block had been reported before; 3: the recorder has been notified; 0: no marks are kept,
     * or none for this block; -1: no live block is known there; -2: the address is inside a block,
     * not at its beginning. */
    int (*mark)(uint64_t block, const heapledger_marking *marking);
    /* Finds the live block around an address. Returns 1 if it is known; 0 if not, and then writes
     * nothing. */
    int (*block_around)(uint64_t address, heapledger_extent *extent);
    /* Removes a reporter's mark, made with HEAPLEDGER_MARK_KEEP, from a block that is about to be
     * freed. The reporter is known by its static name. Returns 1 if there was a mark; 0 if none is
     * known. */
    int (*unmark)(uint64_t block, const char *reporter, uint32_t reporter_length);
    /* Removes all marks that are not kept: called before reporters are asked. */
    void (*clear_marks)(void);
    /* Called after all reporters have been asked. */
    void (*marks_complete)(void);
} heapledger_bridge;

/* Flag for the mark of a block that is reported when it is allocated: it stays until the block is
 * freed. */
#define HEAPLEDGER_MARK_KEEP 1u

#if defined(__x86_64__) && defined(__LP64__) && defined(__ELF__) && !defined(HEAPLEDGER_OFF)
#define HEAPLEDGER_IS_ON 1
/* Through the global offset table, so that the reference stays weak in programs that are not
 * position-independent, too. */
__asm__(".weak heapledger_bridge_v1\n.weak heapledger_ledger_v1");
HEAPLEDGER_INLINE const heapledger_bridge *heapledger_find_bridge(void) {
    const heapledger_bridge *recorder, *ledger;
    __asm__("movq heapledger_bridge_v1@GOTPCREL(%%rip), %0" : "=r"(recorder));
    if (__builtin_expect(recorder != NULL, 0)) return recorder;
    __asm__("movq heapledger_ledger_v1@GOTPCREL(%%rip), %0" : "=r"(ledger));
    return ledger;
}
#else
#define HEAPLEDGER_IS_ON 0
HEAPLEDGER_INLINE const heapledger_bridge *heapledger_find_bridge(void) { return NULL; }
#endif

/* The observer if it has this function, else null. */
#define HEAPLEDGER_BRIDGE_WITH(function)                                                                              \
    heapledger_bridge_of_size(offsetof(heapledger_bridge, function) + sizeof(void (*)(void)))

HEAPLEDGER_INLINE const heapledger_bridge *heapledger_bridge_of_size(size_t size) {
    const heapledger_bridge *bridge = heapledger_find_bridge();
    return __builtin_expect(bridge != NULL, 0) && bridge->size >= size ? bridge : NULL;
}

/* True if allocations are being recorded now. */
HEAPLEDGER_INLINE int heapledger_is_observed(void) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(is_recording);
    return bridge != NULL && bridge->is_recording();
}

/* ----------------------------------------------------------------------------------------------------- contexts */

#if HEAPLEDGER_IS_ON
/* A thread's only stack of scopes, shared by the program, its libraries and their Rust parts: the
 * first of them that asks provides the memory. */
struct heapledger_thread {
    heapledger_stack *bound;
    heapledger_stack own;
};
__extension__ extern __thread struct heapledger_thread heapledger_thread_v1;
__extension__ __thread struct heapledger_thread heapledger_thread_v1 __attribute__((weak));

static __attribute__((noinline, cold, unused)) heapledger_stack *heapledger_bind(const heapledger_bridge *bridge) {
    return heapledger_thread_v1.bound = bridge->contexts(&heapledger_thread_v1.own);
}

/* Returns this thread's stack of scopes; null without an observer. */
HEAPLEDGER_INLINE heapledger_stack *heapledger_scopes(void) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(contexts);
    if (bridge == NULL) return NULL;
    return heapledger_thread_v1.bound != NULL ? heapledger_thread_v1.bound : heapledger_bind(bridge);
}
#else
HEAPLEDGER_INLINE heapledger_stack *heapledger_scopes(void) { return NULL; }
#endif

/* The token that leaves a scope. */
typedef struct heapledger_scope {
    heapledger_stack *stack; /* null: none was entered */
    uint32_t depth;
} heapledger_scope;

/* Enters a scope: what this thread allocates from now on is in it. With a null name no scope is
 * entered; `value` may be null. Costs two stores. */
HEAPLEDGER_INLINE heapledger_scope heapledger_enter(const heapledger_name *name, const heapledger_name *value) {
    heapledger_scope scope = {name != NULL ? heapledger_scopes() : NULL, 0};
    if (scope.stack == NULL) return scope;
    if (name->category != NULL && __atomic_load_n(&name->category->enabled, __ATOMIC_RELAXED) == 0) {
        scope.stack = NULL;
        return scope;
    }
    scope.depth = scope.stack->depth;
    if (scope.depth < HEAPLEDGER_DEPTH_MAX) {
        scope.stack->frames[scope.depth].name = name;
        scope.stack->frames[scope.depth].value = value;
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    *(volatile uint32_t *)&scope.stack->depth = scope.depth + 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return scope;
}

/* Leaves a scope, and all scopes that were entered in it and not left yet (a longjmp may have
 * skipped them). Call it in the thread that entered the scope. Costs one store. */
HEAPLEDGER_INLINE void heapledger_leave(heapledger_scope scope) {
    if (scope.stack == NULL) return;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (scope.depth < scope.stack->depth) *(volatile uint32_t *)&scope.stack->depth = scope.depth;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* From here to heapledger_end_ignoring, allocations of this thread are not recorded; may be nested. */
HEAPLEDGER_INLINE heapledger_scope heapledger_begin_ignoring(void) {
    heapledger_scope scope = {heapledger_scopes(), 0};
    if (scope.stack == NULL) return scope;
    scope.depth = scope.stack->ignore;
    *(volatile uint32_t *)&scope.stack->ignore = scope.depth + 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return scope;
}

HEAPLEDGER_INLINE void heapledger_end_ignoring(heapledger_scope scope) {
    if (scope.stack == NULL) return;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    *(volatile uint32_t *)&scope.stack->ignore = scope.depth;
}

HEAPLEDGER_INLINE void heapledger_leave_at_end(heapledger_scope *scope) { heapledger_leave(*scope); }
HEAPLEDGER_INLINE void heapledger_end_ignoring_at_end(heapledger_scope *scope) { heapledger_end_ignoring(*scope); }

#define HEAPLEDGER_PASTE_(one, other) one##other
#define HEAPLEDGER_PASTE(one, other) HEAPLEDGER_PASTE_(one, other)
#define HEAPLEDGER_HERE(prefix) HEAPLEDGER_PASTE(prefix, __LINE__)
#define HEAPLEDGER_SCOPE_NAMED_(name, value)                                                                          \
    heapledger_scope HEAPLEDGER_HERE(heapledger_scope_) __attribute__((cleanup(heapledger_leave_at_end), unused)) =   \
        heapledger_enter((name), (value))
#define HEAPLEDGER_SCOPE_OF_(initialiser)                                                                             \
    static const heapledger_name HEAPLEDGER_HERE(heapledger_name_) = initialiser;                                     \
    HEAPLEDGER_SCOPE_NAMED_(&HEAPLEDGER_HERE(heapledger_name_), NULL)

/* Declarations: from here to the end of the enclosing block, this thread is in a scope with this
 * name, a string literal. One per line. */
#define HEAPLEDGER_SCOPE(literal) HEAPLEDGER_SCOPE_OF_(HEAPLEDGER_NAME(literal))
/* The same for a task. */
#define HEAPLEDGER_TASK(literal) HEAPLEDGER_SCOPE_OF_(HEAPLEDGER_TASK_NAME(literal))
/* The same, if the category (a pointer to it) is switched on. */
#define HEAPLEDGER_SCOPE_IN(category, literal)                                                                        \
    static const heapledger_name HEAPLEDGER_HERE(heapledger_name_) = HEAPLEDGER_NAME_IN(category, literal);           \
    HEAPLEDGER_SCOPE_NAMED_(&HEAPLEDGER_HERE(heapledger_name_), NULL)
/* The same, with a value: a pointer to a heapledger_name that stays to the end of the process. */
#define HEAPLEDGER_SCOPE_VALUE(literal, value)                                                                        \
    static const heapledger_name HEAPLEDGER_HERE(heapledger_name_) = HEAPLEDGER_NAME(literal);                        \
    HEAPLEDGER_SCOPE_NAMED_(&HEAPLEDGER_HERE(heapledger_name_), (value))
/* From here to the end of the enclosing block, allocations of this thread are not recorded. */
#define HEAPLEDGER_IGNORE()                                                                                           \
    heapledger_scope HEAPLEDGER_HERE(heapledger_ignore_)                                                              \
        __attribute__((cleanup(heapledger_end_ignoring_at_end), unused)) = heapledger_begin_ignoring()

/* -------------------------------------------------------------------------------------------------------- pools */

/* A pool is a heap of the program's own: an arena, a slab, memory of a device. The program declares
 * each block that the pool hands out or takes back. These are recorded as malloc and free are, with
 * stack and context, under the pool's name as the heap. At most 65,535 pools are open at once;
 * pools with the same name are shown as one heap. */

/* With a null pool, or one without a name, the functions do nothing. The address of a block may be
 * null, except in heapledger_pool_back, which ignores null.
 *
 * Initialiser of a pool: `static heapledger_pool frames = HEAPLEDGER_POOL(&frames_name);` */
#define HEAPLEDGER_POOL(name) {(name), 0, 0}

/* True if the pool is neither null nor without a name. */
HEAPLEDGER_INLINE int heapledger_is_pool(const heapledger_pool *pool) {
    return pool != NULL && __atomic_load_n(&pool->name, __ATOMIC_RELAXED) != NULL;
}

/* Declares that the pool has handed out `size` bytes at `address`. An address is below 2^47; it
 * need not be in memory of this process, but no two live blocks of a pool have the same one. Call
 * it after the block has become free to use. */
HEAPLEDGER_INLINE void heapledger_pool_alloc(heapledger_pool *pool, const void *address, size_t size) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(pool_allocated);
    if (bridge != NULL && heapledger_is_pool(pool)) bridge->pool_allocated(pool, (uint64_t)(uintptr_t)address, size);
}

/* Declares that the pool is about to take back the block at `address`. Call it before another
 * thread may be handed the block. */
HEAPLEDGER_INLINE void heapledger_pool_free(heapledger_pool *pool, const void *address) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(pool_freed);
    if (bridge != NULL && heapledger_is_pool(pool)) bridge->pool_freed(pool, (uint64_t)(uintptr_t)address);
}

/* Declares that the pool is about to take back all its blocks at once, as arenas do. This is one
 * event, however many blocks there are. */
HEAPLEDGER_INLINE void heapledger_pool_reset(heapledger_pool *pool) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(pool_reset);
    if (bridge != NULL && heapledger_is_pool(pool)) bridge->pool_reset(pool);
}

/* The same, and nothing refers to the pool any more. Static pools need not be closed. */
HEAPLEDGER_INLINE void heapledger_pool_close(heapledger_pool *pool) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(pool_closed);
    if (bridge != NULL && heapledger_is_pool(pool)) bridge->pool_closed(pool);
}

/* Declares that a block from malloc or a related function has become memory of the pool. The block
 * leaves the totals, because the pool's blocks are counted instead; so nothing is counted twice. It
 * is freed as usual; a reallocation makes it another block. */
HEAPLEDGER_INLINE void heapledger_pool_back(heapledger_pool *pool, const void *block) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(pool_backed);
    if (bridge != NULL && heapledger_is_pool(pool) && block != NULL) bridge->pool_backed(pool, (uint64_t)(uintptr_t)block);
}

/* Moves a block from malloc or a related function to the context that this thread is in now,
 * whatever the context of its allocation was. In a recording the block looks as if it had been
 * reallocated here, at the same address. Does nothing for null. */
HEAPLEDGER_INLINE void heapledger_set_context(const void *block) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(set_context);
    if (bridge != NULL && block != NULL) bridge->set_context((uint64_t)(uintptr_t)block);
}

/* ------------------------------------------------------------------------------------------------------- stamps */

/* A stamp declares the type of a block, and the source location of the declaration. It is used by
 * `heapledger types`, by all that groups by type, and by heapledger_list_usage. The type of a block
 * without a stamp is [unknown]. A reallocation keeps the stamp; a second stamp replaces the first.
 * The ledger looks the block up by its address; nothing is read through the pointer. A null block
 * is ignored, and a null type means HEAPLEDGER_UNKNOWN_TYPE. */

/* The type in a stamp that declares only a source location. */
#define HEAPLEDGER_UNKNOWN_TYPE "[unknown]"

/* Initialiser of a heapledger_place: this line, with a label, which is a string literal. */
#define HEAPLEDGER_PLACE_LABELLED(label)                                                                              \
    {__FILE__, (uint32_t)sizeof(__FILE__) - 1, (uint32_t)__LINE__, "" label, (uint32_t)sizeof("" label) - 1}
/* The same, without a label. */
#define HEAPLEDGER_PLACE() {__FILE__, (uint32_t)sizeof(__FILE__) - 1, (uint32_t)__LINE__, NULL, 0}

HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ int heapledger_stamp_text(const void *block, const char *type, size_t length,
                                            const heapledger_place *place) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(stamp);
    if (bridge == NULL) return 3; /* HEAPLEDGER_ELSEWHERE */
    if (block == NULL) return 1;  /* HEAPLEDGER_NOTHING */
    if (type == NULL) {
        type = HEAPLEDGER_UNKNOWN_TYPE;
        length = sizeof HEAPLEDGER_UNKNOWN_TYPE - 1;
    }
    return bridge->stamp((uint64_t)(uintptr_t)block, type, (uint32_t)length, place) == 1 ? 0 : 1; /* HEAPLEDGER_NOTHING */
}

/* Stamps the block at, or around, an address with a type, a text that stays to the end of the
 * process; null: the type is unknown. The place may be null. Returns HEAPLEDGER_OK;
 * HEAPLEDGER_NOTHING if the ledger knows no live block there, which it counts unless the pointer is
 * null (under `heapledger record` this is found later and is in the recording's summary);
 * HEAPLEDGER_ELSEWHERE without an observer. */
HEAPLEDGER_INLINE HEAPLEDGER_NOT_READ int heapledger_stamp(const void *block, const char *type, const heapledger_place *place) {
    if (__builtin_expect(heapledger_find_bridge() == NULL, 1)) return 3; /* HEAPLEDGER_ELSEWHERE */
    return heapledger_stamp_text(block, type, type != NULL ? strlen(type) : 0, place);
}

#ifndef __cplusplus
/* A pointer to the static place of this line. */
#define HEAPLEDGER_HERE_PLACE_                                                                                        \
    __extension__({                                                                                                   \
        static const heapledger_place heapledger_place_ = HEAPLEDGER_PLACE();                                         \
        &heapledger_place_;                                                                                           \
    })

HEAPLEDGER_INLINE void *heapledger_stamped(void *block, const char *type, const heapledger_place *place) {
    if (block != NULL) heapledger_stamp(block, type, place);
    return block;
}

/* Stamps a pointer with a type, a string literal, and this line, and is the pointer:
 * `list = HEAPLEDGER_STAMP(make_list(), "struct list")`. Null is not stamped. heapledger.hpp has it
 * for C++. */
#define HEAPLEDGER_STAMP(block, literal)                                                                              \
    ((__typeof__(block))heapledger_stamped((void *)(block), "" literal "", HEAPLEDGER_HERE_PLACE_))

HEAPLEDGER_INLINE void *heapledger_new_array(size_t count, size_t each, const char *type,
                                             const heapledger_place *place) {
    return heapledger_stamped(calloc(count, each), type, place);
}

/* Allocates one zeroed T, or an array of `count`, stamped with the type; null if there is no
 * memory. Free it with free. */
#define HEAPLEDGER_NEW(T) ((T *)heapledger_new_array(1, sizeof(T), #T, HEAPLEDGER_HERE_PLACE_))
#define HEAPLEDGER_NEW_ARRAY(T, count)                                                                                \
    ((T *)heapledger_new_array((count), sizeof(T), "[" #T "]", HEAPLEDGER_HERE_PLACE_))
#endif

/* ------------------------------------------------------------------------------------------------------ markers */

/* Records a named moment in a recording. Only the first 256 bytes of the text are kept. */
static __attribute__((unused)) void heapledger_marker(const char *text) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(annotate);
    if (bridge != NULL && text != NULL) {
        uint64_t words[32] = {0};
        size_t length = 0;
        while (length < sizeof words && text[length] != 0) {
            words[length / 8] |= (uint64_t)(unsigned char)text[length] << length % 8 * 8;
            length++;
        }
        bridge->annotate(262, words, (length + 7) / 8);
    }
}

/* ------------------------------------------------------------------------------------------------------- ledger */

/* A program that links libheapledger, or has it preloaded, can hold a ledger: the table of all live
 * blocks of malloc and of where each was allocated. It is started by heapledger_start, or by
 * HEAPLEDGER_AT_EXIT in the environment: the parts that this lists (totals, sites, blocks) are
 * printed on standard error at the end.
 *
 * In the following functions, null for the place of an answer or for a callback gives
 * HEAPLEDGER_FAILED (without a ledger, HEAPLEDGER_ELSEWHERE); `data` is passed on as it is.
 *
 * Answers, unless a comment says otherwise: */
enum {
    HEAPLEDGER_OK = 0,
    HEAPLEDGER_NOTHING = 1,   /* nothing of the requested kind exists */
    HEAPLEDGER_STATE = 2,     /* it is running already, or is not running */
    HEAPLEDGER_ELSEWHERE = 3, /* no ledger in this process: no observer, or `heapledger record` */
    HEAPLEDGER_FAILED = 4     /* an invalid argument, no memory, or a failed write */
};

/* The stacks that are kept with each block. */
enum { HEAPLEDGER_NO_STACKS = 0, HEAPLEDGER_NATIVE = 1, HEAPLEDGER_CONTEXTS = 2, HEAPLEDGER_MIXED = 3 };

/* In each structure below, `size` is its sizeof in the program. */

typedef struct heapledger_options {
    uint32_t size;
    uint32_t stacks;       /* HEAPLEDGER_MIXED or another */
    uint64_t sample_every; /* mean bytes between samples; 0: every allocation is recorded */
    uint64_t bytes_max;    /* the most bytes to map; 0: no bound. The rest is only counted */
    /* The probability with which a usable byte makes its block's stack be recorded, such as 0.003;
     * 0: every block has its stack. All blocks are recorded, with their sizes. */
    double stack_probability;
    uint32_t keep_freed; /* not 0: freed blocks are counted too, by size and site */
    uint32_t reserved;
} heapledger_options;

/* The totals since the start. Bytes are requested bytes. */
/* The standard error of an estimate. 0: exact, as everything is unless the ledger samples. 95 of
 * 100 estimates are within two standard errors of the truth if some hundred blocks were sampled;
 * with fewer, the interval is wider: the one that heapledger_print writes behind ± takes this into
 * account. */
typedef struct heapledger_standard_error {
    uint64_t bytes;
    uint64_t blocks;
} heapledger_standard_error;

typedef struct heapledger_totals {
    uint32_t size;
    uint32_t is_estimate; /* not 0: the ledger has sampled */
    uint64_t allocations; /* calls that returned a block; a reallocation is a free and an allocation */
    uint64_t bytes_allocated;
    uint64_t frees;
    uint64_t reallocations;
    /* freed by their thread before its next event (in a sample: allocation) */
    uint64_t temporaries;
    uint64_t failed;
    uint64_t frees_unknown; /* frees of blocks that are not in the ledger: from before its start */
    uint64_t blocks_live;
    uint64_t bytes_live;
    uint64_t blocks_live_max;
    uint64_t bytes_live_max;
    uint64_t refused; /* allocations not recorded, because memory was short */
    heapledger_standard_error allocated_standard_error; /* of bytes_allocated and allocations */
    heapledger_standard_error live_standard_error;      /* of bytes_live and blocks_live */
    heapledger_standard_error peak_standard_error;      /* of bytes_live_max */
} heapledger_totals;

/* Where a block was allocated. */
typedef struct heapledger_where {
    uint64_t frames[32]; /* addresses in the instructions that made the calls, innermost first */
    uint32_t frames_count;
    uint32_t reserved;
    char context[256]; /* scopes, outermost first: "request > reflow"; or "" */
    char heap[64];     /* the name of the pool; "": malloc */
} heapledger_where;

typedef struct heapledger_block {
    uint32_t size;
    uint32_t thread; /* the thread that allocated it, numbered by first appearance; 0: unknown */
    uint64_t address;
    uint64_t bytes;        /* requested */
    uint64_t bytes_usable; /* as reported by the allocator */
    uint64_t age_ns;
    uint64_t serial; /* the ordinal of its allocation since the start */
    heapledger_where at;
} heapledger_block;

/* A stack that allocates. */
typedef struct heapledger_site {
    uint32_t size;
    uint32_t reserved;
    uint64_t allocations;
    uint64_t bytes_allocated;
    uint64_t blocks_live;
    uint64_t bytes_live;
    uint64_t temporaries;
    heapledger_where at;
    heapledger_standard_error allocated_standard_error;
    heapledger_standard_error live_standard_error;
} heapledger_site;

/* Called for one after the other, until it returns something other than 0. May allocate. */
typedef int heapledger_each_block(const heapledger_block *block, void *data);
typedef int heapledger_each_site(const heapledger_site *site, void *data);

/* Live blocks that hold C++ objects of one dynamic type. */
typedef struct heapledger_dynamic_type {
    uint32_t size;
    uint32_t reserved;
    const char *name; /* "app::Circle", for an array "[app::Circle]"; valid during the call only */
    uint64_t blocks;
    uint64_t bytes; /* requested */
} heapledger_dynamic_type;

typedef int heapledger_each_dynamic_type(const heapledger_dynamic_type *type, void *data);

/* The parts that can be printed. */
enum {
    HEAPLEDGER_TOTALS = 0,
    HEAPLEDGER_SITES = 1,
    HEAPLEDGER_BLOCKS = 2,
    HEAPLEDGER_TYPES = 3,
    HEAPLEDGER_DYNAMIC_TYPES = 4,
    HEAPLEDGER_MISUSES = 5
};

/* A misuse of the allocator. `kind` is one of: */
enum {
    HEAPLEDGER_DOUBLE_FREE = 1, /* the second free was not passed on */
    HEAPLEDGER_NO_BLOCK = 2,    /* a free of `first` bytes into the block; it was passed on */
    HEAPLEDGER_MISMATCH = 3,    /* freed by a function that does not match the allocating one */
    HEAPLEDGER_WRONG_SIZE = 4,  /* freed with the size `first` */
    HEAPLEDGER_OVERWRITE = 5,   /* bytes `first` to `last` from the block's start were written */
    HEAPLEDGER_UNDERWRITE = 6,  /* the same, in front of it: as int64_t both are negative */
    /* Bytes `first` to `last`, as int64_t from the block's start, were written after its free. The
     * checks find it if they keep freed blocks in quarantine. */
    HEAPLEDGER_WRITE_AFTER_FREE = 7
};

typedef struct heapledger_misuse {
    uint32_t size;
    uint32_t kind;
    uint64_t address;
    uint64_t bytes; /* requested, of the block */
    uint64_t first;
    uint64_t last;
    uint64_t times;              /* how often this was found with the same stacks, in any block */
    const char *allocated_by;    /* "malloc"; null, as the others, if there was no such call */
    const char *freed_by;        /* the call that did it */
    const char *freed_before_by; /* the first free, if this is a double free */
    heapledger_where allocated_at;
    heapledger_where freed_at;
    heapledger_where freed_before_at;
} heapledger_misuse;

typedef int heapledger_each_misuse(const heapledger_misuse *misuse, void *data);

/* The number and the bytes of live blocks. */
typedef struct heapledger_held {
    uint64_t blocks;
    uint64_t bytes; /* requested */
    uint64_t bytes_usable;
} heapledger_held;

/* The live blocks, by how often reporters have reported them: see heapledger_mark. */
typedef struct heapledger_reported {
    uint32_t size;
    uint32_t reserved;
    heapledger_held unreported;
    heapledger_held once;
    heapledger_held twice; /* twice or more often */
} heapledger_reported;

/* The table of functions that the functions below call. */
typedef struct heapledger_calls {
    uint32_t size;
    uint32_t version;
    int (*start)(const heapledger_options *options);
    int (*stop)(void);
    int (*totals)(heapledger_totals *totals);
    int (*block_at)(const void *pointer, heapledger_block *block);
    int (*blocks)(heapledger_each_block *each, void *data);
    int (*sites)(size_t count, heapledger_each_site *each, void *data);
    int (*print)(int what, int descriptor, size_t count);
    int (*census_by_vtable)(heapledger_each_dynamic_type *each, void *data);
    int (*check)(void);
    int (*misuses)(heapledger_each_misuse *each, void *data);
    int (*reported)(heapledger_reported *reported);
    int (*clear_marks)(void);
} heapledger_calls;

HEAPLEDGER_INLINE const heapledger_calls *heapledger_ledger(void) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(ledger);
    return bridge != NULL ? bridge->ledger : NULL;
}

/* Starts an empty ledger, which has all allocations from now on. `options` may be null: every
 * allocation, exactly. */
HEAPLEDGER_INLINE int heapledger_start(const heapledger_options *options) {
    const heapledger_calls *ledger = heapledger_ledger();
    return ledger != NULL ? ledger->start(options) : HEAPLEDGER_ELSEWHERE;
}

/* Stops the ledger. Its contents can be read until it is started again. */
HEAPLEDGER_INLINE int heapledger_stop(void) {
    const heapledger_calls *ledger = heapledger_ledger();
    return ledger != NULL ? ledger->stop() : HEAPLEDGER_ELSEWHERE;
}

HEAPLEDGER_INLINE int heapledger_get_totals(heapledger_totals *totals) {
    const heapledger_calls *ledger = heapledger_ledger();
    if (totals != NULL) totals->size = sizeof *totals;
    return ledger != NULL ? ledger->totals(totals) : HEAPLEDGER_ELSEWHERE;
}

/* Finds the live block around an address, which may be any address in it. The pointer is not read
 * through; no block is around null. */
HEAPLEDGER_INLINE int heapledger_block_at(const void *pointer, heapledger_block *block) {
    const heapledger_calls *ledger = heapledger_ledger();
    if (block != NULL) block->size = sizeof *block;
    return ledger != NULL ? ledger->block_at(pointer, block) : HEAPLEDGER_ELSEWHERE;
}

/* Calls back for each live block, in no useful order. This is not a snapshot: a block that is live
 * all the while comes exactly once, one that is allocated or freed meanwhile at most once. */
HEAPLEDGER_INLINE int heapledger_blocks(heapledger_each_block *each, void *data) {
    const heapledger_calls *ledger = heapledger_ledger();
    return ledger != NULL ? ledger->blocks(each, data) : HEAPLEDGER_ELSEWHERE;
}

/* Calls back for the sites with the most live bytes, the largest first: at most `count`, and at
 * most 64. In a ledger that samples, the figures are those of the sample. */
HEAPLEDGER_INLINE int heapledger_sites(size_t count, heapledger_each_site *each, void *data) {
    const heapledger_calls *ledger = heapledger_ledger();
    return ledger != NULL ? ledger->sites(count, each, data) : HEAPLEDGER_ELSEWHERE;
}

/* Calls back for each dynamic type of live C++ objects with virtual functions, the most bytes
 * first. The types come from the vtables to which the first words of the blocks point. This needs
 * no debug information, no stamps and no symbols: stripped programs, too, contain the names of such
 * types, unless they were compiled with -fno-rtti; then the names come from symbols. Objects of
 * std::make_shared are found, whatever their type. Reads two words of each live block, in a way
 * that cannot fault. Allocates. */
HEAPLEDGER_INLINE int heapledger_census_by_vtable(heapledger_each_dynamic_type *each, void *data) {
    const heapledger_calls *ledger = heapledger_ledger();
    if (ledger == NULL || ledger->size < offsetof(heapledger_calls, census_by_vtable) + sizeof(void (*)(void)))
        return HEAPLEDGER_ELSEWHERE;
    return ledger->census_by_vtable(each, data);
}

/* Starts the checks, for the rest of the process's life: from now on double frees are found, and
 * writes within 16 bytes behind a block. The checks need no ledger. Blocks that were allocated
 * before are not checked, and C++'s operators are not distinguished from malloc and free. Returns
 * HEAPLEDGER_FAILED if calls would go unseen: those of an allocator's own operators or functions,
 * such as jemalloc's, that the program or one of its libraries uses. `heapledger check` finds more,
 * and needs no change to the program. */
HEAPLEDGER_INLINE int heapledger_check(void) {
    const heapledger_calls *ledger = heapledger_ledger();
    if (ledger == NULL || ledger->size < offsetof(heapledger_calls, check) + sizeof(void (*)(void)))
        return HEAPLEDGER_ELSEWHERE;
    return ledger->check();
}

/* Looks behind every live block, and calls back with everything that the checks have found up to
 * now. Must not be called in a signal handler. */
HEAPLEDGER_INLINE int heapledger_misuses(heapledger_each_misuse *each, void *data) {
    const heapledger_calls *ledger = heapledger_ledger();
    if (ledger == NULL || ledger->size < offsetof(heapledger_calls, misuses) + sizeof(void (*)(void)))
        return HEAPLEDGER_ELSEWHERE;
    return ledger->misuses(each, data);
}

/* Writes the totals of unreported, once-reported and twice-reported blocks. In a ledger that
 * samples, they are those of the sample. */
HEAPLEDGER_INLINE int heapledger_get_reported(heapledger_reported *reported) {
    const heapledger_calls *ledger = heapledger_ledger();
    if (reported != NULL) reported->size = sizeof *reported;
    if (ledger == NULL || ledger->size < offsetof(heapledger_calls, reported) + sizeof(void (*)(void)))
        return HEAPLEDGER_ELSEWHERE;
    return ledger->reported(reported);
}

/* Removes the marks from all blocks, except the marks that are kept; this works in a recorded
 * program, too. A collection with HEAPLEDGER_MARK begins with it. */
HEAPLEDGER_INLINE int heapledger_clear_marks(void) {
    const heapledger_bridge *bridge = HEAPLEDGER_BRIDGE_WITH(clear_marks);
    const heapledger_calls *ledger = heapledger_ledger();
    if (ledger != NULL && ledger->size >= offsetof(heapledger_calls, clear_marks) + sizeof(void (*)(void)))
        return ledger->clear_marks();
    if (bridge == NULL) return HEAPLEDGER_ELSEWHERE;
    bridge->clear_marks();
    return HEAPLEDGER_OK;
}

/* Prints to a descriptor without allocating, so it may be called in a signal handler (except for
 * HEAPLEDGER_DYNAMIC_TYPES and HEAPLEDGER_MISUSES, which allocate). `count` is the number of sites,
 * at most 64. Stacks are printed as addresses. */
HEAPLEDGER_INLINE int heapledger_print(int what, int descriptor, size_t count) {
    const heapledger_calls *ledger = heapledger_ledger();
    return ledger != NULL ? ledger->print(what, descriptor, count) : HEAPLEDGER_ELSEWHERE;
}

/* Prints every live block, with its stamp and its stack. */
HEAPLEDGER_INLINE int heapledger_dump_blocks(int descriptor) { return heapledger_print(HEAPLEDGER_BLOCKS, descriptor, 0); }

/* Prints the number and the bytes of live blocks for each stamped type, the largest first. */
HEAPLEDGER_INLINE int heapledger_list_usage(int descriptor) { return heapledger_print(HEAPLEDGER_TYPES, descriptor, 0); }

/* Allocates a block by malloc and stamps it. It is freed by heapledger_track_free or by free.
 * `type` stays to the end of the process; it may be null, as for heapledger_stamp, and so may
 * `place`. */
HEAPLEDGER_INLINE void *heapledger_track_malloc(size_t size, const char *type, const heapledger_place *place) {
    void *block = malloc(size);
    if (block != NULL) heapledger_stamp(block, type, place);
    return block;
}

/* Frees a block; does nothing for null. While an exact ledger runs in this process, a block that it
 * does not know as live is not freed, and the result is HEAPLEDGER_NOTHING: the block was freed
 * before, was never allocated, or was allocated before the ledger was started. */
HEAPLEDGER_INLINE int heapledger_track_free(void *block) {
    const heapledger_calls *ledger = heapledger_ledger();
    if (block != NULL && ledger != NULL && heapledger_is_observed()) {
        heapledger_totals totals;
        heapledger_block found;
        totals.size = sizeof totals;
        found.size = sizeof found;
        if (ledger->totals(&totals) == HEAPLEDGER_OK && !totals.is_estimate &&
            (ledger->block_at(block, &found) != HEAPLEDGER_OK || found.address != (uint64_t)(uintptr_t)block))
            return HEAPLEDGER_NOTHING;
    }
    free(block);
    return HEAPLEDGER_OK;
}

#ifdef __cplusplus
}
#endif

#include "measure.h"
#include "reports.h"
#include "dmd.h"

#endif
