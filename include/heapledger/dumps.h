/* Heapledger, from C99 and C++98 on: memory dumps of a program that links libheapledger. Belongs to
 * heapledger.h; for C++ there is dumps.hpp.
 *
 * A dump asks all parts of a program, in all its processes, for what they hold at one moment. It is
 * written to a trace for Chrome's about:tracing, with the heap by stack and type. A part that is
 * asked is a *provider*:
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
 * Nothing has to be linked: if libheapledger is not in the process, a call is a load and a test.
 * With HEAPLEDGER_HEAP_PROFILING=1 in the environment, or after heapledger_set_heap_profiling,
 * detailed dumps contain the heap of malloc, and providers keep account of their blocks.
 * docs/dumps.md is the guide.
 *
 * Null: if a pointer to a dump, a name or a text is null, nothing happens and the result is 0 or
 * null. Functions that take a dump are for the provider that has been given it, during its call.
 * All other functions may be called in any thread, but not in signal handlers, and not in
 * providers, except for heapledger_allocation_context_now and the functions of registers. */
#ifndef HEAPLEDGER_DUMPS_H
#define HEAPLEDGER_DUMPS_H

#include "heapledger.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The level of detail of a dump. */
enum {
    HEAPLEDGER_BACKGROUND = 0, /* only numbers, under names that the provider has listed */
    HEAPLEDGER_LIGHT = 1,      /* a few entries */
    HEAPLEDGER_DETAILED = 2    /* everything, heaps too */
};

/* The reason for a dump. */
enum {
    HEAPLEDGER_DUMP_PERIODIC = 0, /* at the regular interval */
    HEAPLEDGER_DUMP_EXPLICIT = 1, /* on request */
    HEAPLEDGER_DUMP_PEAK = 2,     /* at a new maximum of live memory */
    HEAPLEDGER_DUMP_SUMMARY = 3   /* for its numbers only, without a file */
};

/* The allocator dump of all blocks of malloc, as a target of heapledger_dump_suballocate. */
#define HEAPLEDGER_MALLOC_OBJECTS "malloc/allocated_objects"

typedef struct heapledger_dump_args {
    uint32_t size;
    uint32_t level;
    uint32_t kind;
    uint32_t reserved;
    uint64_t guid; /* the dump's number, the same in all processes */
} heapledger_dump_args;

/* The dump that a provider fills in. */
typedef struct heapledger_dump heapledger_dump;

/* Adds the provider's part to a dump. Returns 0 on success; with anything else its part is left
 * out. A provider that fails three times in a row, or takes longer than five seconds as often, is
 * not asked again until the next trace. */
typedef int heapledger_dump_function(const heapledger_dump_args *args, heapledger_dump *dump, void *data);

/* Called when the provider should start (or stop) keeping account of its blocks, as early as
 * possible: when the provider is registered, if heap profiling is on by then. */
typedef void heapledger_heap_profiling_function(int is_enabled, void *data);

/* A provider: a part of the program that dumps ask. Texts are copied. The functions are called in a
 * thread of Heapledger's, one at a time; the second may be null. */
typedef struct heapledger_provider {
    uint32_t size; /* sizeof of this */
    uint32_t background_count;
    const char *name;
    heapledger_dump_function *dump;
    heapledger_heap_profiling_function *heap_profiling;
    void *data;
    /* names that it may use in the background; null: not asked then */
    const char *const *background;
} heapledger_provider;

typedef struct heapledger_registered_provider heapledger_registered_provider;

/* The scopes in which a block was allocated, and its type. May be compared and hashed by its
 * fields. */
typedef struct heapledger_allocation_context {
    uint32_t scopes; /* a number that identifies them in this process; 0: none */
    uint32_t reserved;
    const char *type_name; /* static; null: not known */
} heapledger_allocation_context;

/* The live blocks of one context, for a heap dump. */
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

/* The memory that an account of blocks takes. */
typedef struct heapledger_cost {
    uint64_t count;           /* the number of tables, or the like */
    uint64_t bytes_allocated; /* the bytes in blocks of malloc */
    uint64_t bytes_mapped;    /* the bytes mapped besides, touched or not */
    uint64_t bytes_resident;  /* the resident bytes of both, as far as known */
} heapledger_cost;

typedef struct heapledger_allocation_register heapledger_allocation_register;

/* Flags of a trace. */
enum {
    HEAPLEDGER_TRACE_AGGREGATED = 1, /* heaps in the format of viewers since 2017 */
    HEAPLEDGER_TRACE_CHILDREN = 2,   /* includes descendants that have called heapledger_listen */
    HEAPLEDGER_TRACE_ON_DEMAND = 4   /* only the dumps of heapledger_trace_dump */
};

/* Options of a trace. A null pointer is the same as all fields 0. */
typedef struct heapledger_trace_options {
    uint32_t size; /* sizeof of this */
    uint32_t flags;
    uint32_t background_ms; /* intervals in ms, multiples of the shortest; 0: none. */
    uint32_t light_ms;      /* All 0: light every 250 ms, each eighth one detailed. */
    uint32_t detailed_ms;
    uint32_t provider_deadline_ms; /* the time limit of one provider; 0: 5 s */
    uint32_t deadline_ms;          /* the time limit of one dump; 0: 30 s */
    uint32_t reserved;
} heapledger_trace_options;

/* The table of functions that the functions below call. */
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

/* Registers a provider. Returns null if libheapledger is not in the process, or if the provider,
 * its name or its function is null. */
HEAPLEDGER_INLINE heapledger_registered_provider *heapledger_register_provider(const heapledger_provider *provider) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->register_(provider) : NULL;
}

/* Unregisters a provider, which heapledger_register_provider returned: it is not called any more
 * when this returns. If the provider is being called, this waits for it, unless this is called in
 * the provider itself; so do not hold a lock that the provider takes. Does nothing for null. */
HEAPLEDGER_INLINE void heapledger_unregister_provider(heapledger_registered_provider *provider) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->unregister(provider);
}

/* Turns heap profiling on (not 0) or off: all providers, also those registered later, keep account
 * of their blocks, and the ledger is started for the heap of malloc. Call it as early as possible:
 * blocks allocated before are not known. HEAPLEDGER_HEAP_PROFILING=1 in the environment takes
 * effect before main. */
HEAPLEDGER_INLINE void heapledger_set_heap_profiling(int is_enabled) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->set_heap_profiling(is_enabled);
}

/* True if heap profiling is on. */
HEAPLEDGER_INLINE int heapledger_is_heap_profiling(void) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL && dumps->is_heap_profiling();
}

/* ------------------------------------------------------------------------------------------------ what a dump has */

/* Returns the number of the allocator dump with this name, such as `cache/pages`, by which others
 * refer to it. Adds the dump if there is none. */
HEAPLEDGER_INLINE uint64_t heapledger_dump_allocator(heapledger_dump *dump, const char *name) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->allocator(dump, name) : 0;
}

/* Gives an allocator dump an attribute in these units, such as "bytes" or "objects". */
HEAPLEDGER_INLINE void heapledger_dump_scalar(heapledger_dump *dump, const char *name, const char *attribute,
                                              const char *units, uint64_t value) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->scalar(dump, name, attribute, units, value);
}

/* Sets the size of an allocator dump, including all dumps below it. Returns its number. */
HEAPLEDGER_INLINE uint64_t heapledger_dump_size(heapledger_dump *dump, const char *name, uint64_t bytes) {
    heapledger_dump_scalar(dump, name, "size", "bytes", bytes);
    return heapledger_dump_allocator(dump, name);
}

/* Sets the number of objects of an allocator dump. Returns its number. */
HEAPLEDGER_INLINE uint64_t heapledger_dump_object_count(heapledger_dump *dump, const char *name, uint64_t count) {
    heapledger_dump_scalar(dump, name, "object_count", "objects", count);
    return heapledger_dump_allocator(dump, name);
}

/* Gives an allocator dump a text attribute. Left out in background dumps. */
HEAPLEDGER_INLINE void heapledger_dump_text(heapledger_dump *dump, const char *name, const char *attribute,
                                            const char *value) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->text(dump, name, attribute, value);
}

/* Adds memory that several processes share: all that give the same `id` mean the same memory. A
 * weak dump (not 0) is left out unless some process adds it as not weak. Returns its number, as a
 * target of heapledger_dump_own. */
HEAPLEDGER_INLINE uint64_t heapledger_dump_shared(heapledger_dump *dump, const char *id, int is_weak, uint64_t bytes) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->shared(dump, id, is_weak, bytes) : 0;
}

/* Declares that `source` is the memory of `target`, by their numbers. The most important of several
 * owners is charged with the size; equally important ones share it. */
HEAPLEDGER_INLINE void heapledger_dump_own(heapledger_dump *dump, uint64_t source, uint64_t target, int32_t importance) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->own(dump, source, target, importance);
}

/* Declares that `source` consists of blocks of another allocator, given by its name: viewers
 * subtract them there, so that nothing is counted twice. */
HEAPLEDGER_INLINE void heapledger_dump_suballocate(heapledger_dump *dump, uint64_t source, const char *target) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->suballocate(dump, source, target);
}

/* Adds a heap dump: the live blocks of an allocator, grouped by context. Entries with equal
 * contexts are added up. For detailed dumps. */
HEAPLEDGER_INLINE void heapledger_dump_heap(heapledger_dump *dump, const char *allocator,
                                            const heapledger_heap_entry *entries, size_t count) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->heap(dump, allocator, entries, count);
}

/* Adds the cost of keeping account for that heap, by purpose, as
 * `tracing/heap_profiler_ALLOCATOR/PURPOSE`: viewers subtract it from the memory of the program. */
HEAPLEDGER_INLINE void heapledger_dump_cost(heapledger_dump *dump, const char *allocator, const char *purpose,
                                            const heapledger_cost *cost) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->cost(dump, allocator, purpose, cost);
}

/* ---------------------------------------------------------------------------------------- contexts and registers */

/* Returns the scopes that this thread is in (HEAPLEDGER_SCOPE), with a type: a static text, or
 * null. Allocates at the first call in each place of the program. */
HEAPLEDGER_INLINE heapledger_allocation_context heapledger_allocation_context_now(const char *type_name) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    heapledger_allocation_context context = {0, 0, NULL};
    context.scopes = dumps != NULL ? dumps->scopes() : 0;
    context.type_name = type_name;
    return context;
}

/* Makes an account of an allocator's live blocks by address, in memory that is mapped from the
 * kernel; any thread may use it at any time. Returns null if libheapledger is not in the process;
 * with a null register, the functions below do nothing. */
HEAPLEDGER_INLINE heapledger_allocation_register *heapledger_allocation_register_new(void) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->new_register() : NULL;
}
HEAPLEDGER_INLINE void heapledger_allocation_register_delete(heapledger_allocation_register *allocations) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->delete_register(allocations);
}

/* Adds a block, replacing one at the same address. Call it when the block may be used. A null
 * context means no scope and no type. */
HEAPLEDGER_INLINE void heapledger_allocation_insert(const heapledger_allocation_register *allocations, const void *address,
                                                    size_t size, const heapledger_allocation_context *context) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    if (dumps != NULL) dumps->insert(allocations, address, size, context);
}

/* Removes a block. Call it before another thread can be given the address. Returns 1 if the block
 * was there, 0 if it was not, which is not an error. */
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

/* Returns the cost of the register, for heapledger_dump_cost. */
HEAPLEDGER_INLINE heapledger_cost heapledger_allocation_register_cost(const heapledger_allocation_register *allocations) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    heapledger_cost cost = {0, 0, 0, 0};
    if (dumps != NULL) dumps->register_cost(allocations, &cost);
    return cost;
}

/* ------------------------------------------------------------------------------------------------------- traces */

/* The functions below return HEAPLEDGER_OK; HEAPLEDGER_ELSEWHERE if libheapledger is not in the
 * process; HEAPLEDGER_STATE if there is a trace already, or none; HEAPLEDGER_FAILED if something
 * cannot be done, the file is null, or the options are invalid. */

/* Begins a trace in a new file, which only this user can read. All providers are asked, including
 * those that were disabled. A process has one trace at a time; a child made by fork has none. */
HEAPLEDGER_INLINE int heapledger_trace_start(const char *file, const heapledger_trace_options *options) {
    const heapledger_dumps *dumps = heapledger_find_dumps();
    return dumps != NULL ? dumps->start(file, options) : HEAPLEDGER_ELSEWHERE;
}

/* Writes a dump of this level now. */
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
