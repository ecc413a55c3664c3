/* Heapledger, from C99 and C++98 on: memory dumps of a program that links libheapledger. Part of heapledger.h's family; for
 * C++ there is dumps.hpp.
 *
 * A dump asks all parts of a program, in all its processes, what they hold at one moment, and goes to a trace for Chrome's
 * about:tracing, with the heap by stack and type. A part that is asked is a *provider*:
 *
 *     #include "heapledger/dumps.h"
 *
 *     static int dump_cache(const heapledger_dump_args *args, heapledger_dump *dump, void *data) {
 *         const uint64_t pages = heapledger_dump_size(dump, "cache/pages", pages_bytes());
 *         heapledger_dump_object_count(dump, "cache/pages", pages_count());
 *         heapledger_dump_suballocate(dump, pages, HEAPLEDGER_MALLOC_OBJECTS);   // they are blocks of malloc
 *         return 0;
 *     }
 *     static const heapledger_provider cache = {sizeof cache, 0, "Cache", dump_cache, NULL, NULL, NULL};
 *
 *     heapledger_register_provider(&cache);
 *     heapledger_trace_start("server.trace.json", NULL);                         // four dumps a second
 *     heapledger_trace_dump(HEAPLEDGER_DETAILED);                                // and one now
 *     heapledger_trace_finish();
 *
 * Nothing has to be linked: where libheapledger is not in the process, a call is a load and a test. With
 * HEAPLEDGER_HEAP_PROFILING=1 in the environment, or by heapledger_set_heap_profiling, detailed dumps have the heap of malloc,
 * and providers keep account of their blocks. docs/dumps.md is the guide.
 *
 * Null: where a pointer to a dump, a name or a text is null, nothing happens; what is returned then is 0 or null.
 * Functions that take a dump are for the provider that has been given it, during its call. Everything else may be
 * called in any thread, but not in signal handlers, nor, but for heapledger_allocation_context_now and the functions of
 * registers, in providers. */
#ifndef HEAPLEDGER_DUMPS_H
#define HEAPLEDGER_DUMPS_H

#include "heapledger.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How much a dump tells. */
enum {
    HEAPLEDGER_BACKGROUND = 0, /* numbers of names that the provider has listed */
    HEAPLEDGER_LIGHT = 1,      /* a few entries */
    HEAPLEDGER_DETAILED = 2    /* all there is, heaps too */
};

/* Why a dump is made. */
enum {
    HEAPLEDGER_DUMP_PERIODIC = 0, /* it was time for one */
    HEAPLEDGER_DUMP_EXPLICIT = 1, /* somebody asked for it */
    HEAPLEDGER_DUMP_PEAK = 2,     /* more was live than ever before */
    HEAPLEDGER_DUMP_SUMMARY = 3   /* somebody wants the numbers, and no file */
};

/* The allocator dump of all blocks of malloc, to be the target of heapledger_dump_suballocate. */
#define HEAPLEDGER_MALLOC_OBJECTS "malloc/allocated_objects"

typedef struct heapledger_dump_args {
    uint32_t size;
    uint32_t level;
    uint32_t kind;
    uint32_t reserved;
    uint64_t guid; /* the dump's number, the same in all processes */
} heapledger_dump_args;

/* What a provider fills in. */
typedef struct heapledger_dump heapledger_dump;

/* Says what there is. 0: done. Anything else: it cannot, and what it has said is left out; one that fails three times in a
 * row, or takes longer than five seconds as often, is not asked any more until the next trace. */
typedef int heapledger_dump_function(const heapledger_dump_args *args, heapledger_dump *dump, void *data);

/* Blocks are to be kept account of from now on, or not any more. Called as early as it can be: when the provider is
 * registered, if that is so by then. */
typedef void heapledger_heap_profiling_function(int is_enabled, void *data);

/* A part of the program that is asked by dumps. Texts are copied. The functions are called in a thread of Heapledger's, one at
 * a time; the second may be null. */
typedef struct heapledger_provider {
    uint32_t size; /* sizeof of this */
    uint32_t background_count;
    const char *name;
    heapledger_dump_function *dump;
    heapledger_heap_profiling_function *heap_profiling;
    void *data;
    const char *const *background; /* names that it may use in the background; null: it is not asked there */
} heapledger_provider;

typedef struct heapledger_registered_provider heapledger_registered_provider;

/* In which scopes a block was allocated, and what it is. To be compared and hashed by its fields. */
typedef struct heapledger_allocation_context {
    uint32_t scopes; /* a number that stands for them in this process; 0: none */
    uint32_t reserved;
    const char *type_name; /* static; null: not known */
} heapledger_allocation_context;

/* Live blocks of one context, as a heap has them. */
typedef struct heapledger_heap_entry {
    heapledger_allocation_context context;
    uint64_t blocks;
    uint64_t bytes;
} heapledger_heap_entry;

/* A block in a register. */
typedef struct heapledger_allocation {
    const void *address;
    size_t size;
    heapledger_allocation_context context;
} heapledger_allocation;

/* What keeping account of blocks costs. */
typedef struct heapledger_cost {
    uint64_t count;           /* tables, or the like */
    uint64_t bytes_allocated; /* of them, by malloc */
    uint64_t bytes_mapped;    /* beside that, touched or not */
    uint64_t bytes_resident;  /* of both, as far as it is known */
} heapledger_cost;

typedef struct heapledger_allocation_register heapledger_allocation_register;

/* Flags of a trace. */
enum {
    HEAPLEDGER_TRACE_AGGREGATED = 1, /* heaps as viewers have them from 2017 on */
    HEAPLEDGER_TRACE_CHILDREN = 2,   /* descendants that have called heapledger_listen are in the dumps, too */
    HEAPLEDGER_TRACE_ON_DEMAND = 4   /* no dumps but those of heapledger_trace_dump */
};

/* How a trace is made. A null pointer: as if all fields were 0. */
typedef struct heapledger_trace_options {
    uint32_t size; /* sizeof of this */
    uint32_t flags;
    uint32_t background_ms; /* a dump of this level each so many milliseconds; 0: none. The shortest is the tick, the */
    uint32_t light_ms;      /* others are multiples of it. All 0: light every 250 ms, each eighth detailed. */
    uint32_t detailed_ms;
    uint32_t provider_deadline_ms; /* how long a provider may take; 0: 5 s */
    uint32_t deadline_ms;          /* how long a dump may take; 0: 30 s */
    uint32_t reserved;
} heapledger_trace_options;

/* For the functions below. */
typedef struct heapledger_dumps {
    uint32_t size;
    uint32_t version;
    heapledger_registered_provider *(*register_)(const heapledger_provider *provider);
    void (*unregister)(heapledger_registered_provider *provider);
    void (*set_heap_profiling)(int is_enabled);
    int (*is_heap_profiling)(void);
    uint64_t (*allocator)(heapledger_dump *dump, const char *name);
    uint64_t (*shared)(heapledger_dump *dump, const char *id, int is_weak, uint64_t bytes);
    void (*scalar)(heapledger_dump *dump, const char *name, const char *attribute, const char *units, uint64_t value);
    void (*text)(heapledger_dump *dump, const char *name, const char *attribute, const char *value);
    void (*own)(heapledger_dump *dump, uint64_t source, uint64_t target, int32_t importance);
    void (*suballocate)(heapledger_dump *dump, uint64_t source, const char *target);
    void (*heap)(heapledger_dump *dump, const char *allocator, const heapledger_heap_entry *entries, size_t count);
    void (*cost)(heapledger_dump *dump, const char *allocator, const char *purpose, const heapledger_cost *cost);
    int (*start)(const char *file, const heapledger_trace_options *options);
    int (*dump)(uint32_t level);
    int (*finish)(void);
    uint32_t (*scopes)(void);
    heapledger_allocation_register *(*new_register)(void);
    void (*delete_register)(heapledger_allocation_register *allocations);
    void (*insert)(const heapledger_allocation_register *allocations, const void *address, size_t size,
                   const heapledger_allocation_context *context);
    int (*remove)(const heapledger_allocation_register *allocations, const void *address);
    size_t (*blocks)(const heapledger_allocation_register *allocations, heapledger_allocation *into, size_t count);
    void (*register_cost)(const heapledger_allocation_register *allocations, heapledger_cost *cost);
} heapledger_dumps;

#if HEAPLEDGER_IS_ON
__asm__(".weak heapledger_dumps_v1");
HEAPLEDGER_INLINE const heapledger_dumps *heapledger_find_dumps(void) {
    const heapledger_dumps *dumps;
    __asm__("movq heapledger_dumps_v1@GOTPCREL(%%rip), %0" : "=r"(dumps));
    return __builtin_expect(dumps != NULL, 0) && dumps->size >= sizeof(heapledger_dumps) ? dumps : NULL;
}
#else
HEAPLEDGER_INLINE const heapledger_dumps *heapledger_find_dumps(void) { return NULL; }
#endif

/* ---------------------------------------------------------------------------------------------------- providers */

/* Registers a provider. Null where libheapledger is not in the process, and where the provider, its name or its function is
 * null. */
HEAPLEDGER_INLINE heapledger_registered_provider *heapledger_register_provider(const heapledger_provider *provider) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->register_(provider) : NULL;
}

/* What heapledger_register_provider returned is not called any more when this returns: if it is being called, that is waited
 * for, unless this is called in it. So not with a lock held that it takes. Null is nothing. */
HEAPLEDGER_INLINE void heapledger_unregister_provider(heapledger_registered_provider *provider) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->unregister(provider);
}

/* Has all providers keep account of their blocks, those that are registered later too (not 0), or not any more; and starts the
 * ledger, for the heap of malloc. As early as possible: of what was allocated before, nothing is known.
 * HEAPLEDGER_HEAP_PROFILING=1 in the environment is earlier than main. */
HEAPLEDGER_INLINE void heapledger_set_heap_profiling(int is_enabled) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->set_heap_profiling(is_enabled);
}

/* Whether they do. */
HEAPLEDGER_INLINE int heapledger_is_heap_profiling(void) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL && dumps->is_heap_profiling();
}

/* ------------------------------------------------------------------------------------------------ what a dump has */

/* The number of the allocator dump with this name, such as `cache/pages`, which is made if it is not there: what others refer
 * to it by. */
HEAPLEDGER_INLINE uint64_t heapledger_dump_allocator(heapledger_dump *dump, const char *name) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->allocator(dump, name) : 0;
}

/* Gives it an attribute in these units, such as "bytes" or "objects". */
HEAPLEDGER_INLINE void heapledger_dump_scalar(heapledger_dump *dump, const char *name, const char *attribute,
                                              const char *units, uint64_t value) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->scalar(dump, name, attribute, units, value);
}

/* Says how large it is: all below it included. Returns its number. */
HEAPLEDGER_INLINE uint64_t heapledger_dump_size(heapledger_dump *dump, const char *name, uint64_t bytes) {
    heapledger_dump_scalar(dump, name, "size", "bytes", bytes);
    return heapledger_dump_allocator(dump, name);
}

/* Says of how many objects it is. Returns its number. */
HEAPLEDGER_INLINE uint64_t heapledger_dump_object_count(heapledger_dump *dump, const char *name, uint64_t count) {
    heapledger_dump_scalar(dump, name, "object_count", "objects", count);
    return heapledger_dump_allocator(dump, name);
}

/* Gives it an attribute that is no number. Left out in the background. */
HEAPLEDGER_INLINE void heapledger_dump_text(heapledger_dump *dump, const char *name, const char *attribute,
                                            const char *value) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->text(dump, name, attribute, value);
}

/* Memory that several processes have: all that say the same `id` mean the same. A weak one (not 0) vanishes unless somebody
 * has it in earnest. Returns its number, to be the target of heapledger_dump_own. */
HEAPLEDGER_INLINE uint64_t heapledger_dump_shared(heapledger_dump *dump, const char *id, int is_weak, uint64_t bytes) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->shared(dump, id, is_weak, bytes) : 0;
}

/* `source` is the memory of `target`, by their numbers. Of several owners the most important bears the cost; equal ones
 * share it. */
HEAPLEDGER_INLINE void heapledger_dump_own(heapledger_dump *dump, uint64_t source, uint64_t target, int32_t importance) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->own(dump, source, target, importance);
}

/* `source` is one of the blocks of another allocator, by name: viewers take it off there, so that nothing counts twice. */
HEAPLEDGER_INLINE void heapledger_dump_suballocate(heapledger_dump *dump, uint64_t source, const char *target) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->suballocate(dump, source, target);
}

/* The heap dump writer: what is live in an allocator, grouped by context. Entries with equal contexts are added up. For
 * detailed dumps. */
HEAPLEDGER_INLINE void heapledger_dump_heap(heapledger_dump *dump, const char *allocator,
                                            const heapledger_heap_entry *entries, size_t count) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->heap(dump, allocator, entries, count);
}

/* What keeping account for that heap costs, by purpose, as `tracing/heap_profiler_ALLOCATOR/PURPOSE`: viewers take it off
 * what the program holds. */
HEAPLEDGER_INLINE void heapledger_dump_cost(heapledger_dump *dump, const char *allocator, const char *purpose,
                                            const heapledger_cost *cost) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->cost(dump, allocator, purpose, cost);
}

/* ---------------------------------------------------------------------------------------- contexts and registers */

/* The scopes that this thread is in (HEAPLEDGER_SCOPE), with a type: a static text, or null. The first time of each place in
 * the program it allocates. */
HEAPLEDGER_INLINE heapledger_allocation_context heapledger_allocation_context_now(const char *type_name) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    heapledger_allocation_context context = {0, 0, NULL};
    context.scopes = dumps != NULL ? dumps->scopes() : 0;
    context.type_name = type_name;
    return context;
}

/* An account of an allocator's live blocks by address, in memory that is mapped from the kernel; any thread may use it at any
 * time. Null where libheapledger is not in the process; of a null register, the functions below do nothing. */
HEAPLEDGER_INLINE heapledger_allocation_register *heapledger_allocation_register_new(void) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->new_register() : NULL;
}
HEAPLEDGER_INLINE void heapledger_allocation_register_delete(heapledger_allocation_register *allocations) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->delete_register(allocations);
}

/* Enters a block, in place of the one that was there, when it may be used. A null context is that of no scope and no type. */
HEAPLEDGER_INLINE void heapledger_allocation_insert(const heapledger_allocation_register *allocations, const void *address,
                                                    size_t size, const heapledger_allocation_context *context) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->insert(allocations, address, size, context);
}

/* Removes a block, before another thread can be given it. 1: it was there; 0: it was not, which is no error. */
HEAPLEDGER_INLINE int heapledger_allocation_remove(const heapledger_allocation_register *allocations,
                                                   const void *address) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->remove(allocations, address) : 0;
}

/* Writes the first `count` blocks, in no useful order, and returns how many there are. */
HEAPLEDGER_INLINE size_t heapledger_allocation_blocks(const heapledger_allocation_register *allocations,
                                                      heapledger_allocation *into, size_t count) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->blocks(allocations, into, count) : 0;
}

/* What the register costs, for heapledger_dump_cost. */
HEAPLEDGER_INLINE heapledger_cost heapledger_allocation_register_cost(const heapledger_allocation_register *allocations) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    heapledger_cost cost = {0, 0, 0, 0};
    if (dumps != NULL) dumps->register_cost(allocations, &cost);
    return cost;
}

/* ------------------------------------------------------------------------------------------------------- traces */

/* All of these answer HEAPLEDGER_OK; HEAPLEDGER_ELSEWHERE where libheapledger is not in the process; HEAPLEDGER_STATE where
 * there is a trace already, or none; HEAPLEDGER_FAILED where something cannot be done, of a null file, and of options that
 * make no sense. */

/* Begins a trace in a new file, which only this user can read. All providers are asked, those that were disabled, too. There
 * is one at a time in a process; a child made by fork has none. */
HEAPLEDGER_INLINE int heapledger_trace_start(const char *file, const heapledger_trace_options *options) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->start(file, options) : HEAPLEDGER_ELSEWHERE;
}

/* Makes a dump of this level now, and writes it. */
HEAPLEDGER_INLINE int heapledger_trace_dump(int level) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->dump((uint32_t)level) : HEAPLEDGER_ELSEWHERE;
}

/* Ends the trace: the file is complete. */
HEAPLEDGER_INLINE int heapledger_trace_finish(void) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->finish() : HEAPLEDGER_ELSEWHERE;
}

#ifdef __cplusplus
}
#endif

#endif
