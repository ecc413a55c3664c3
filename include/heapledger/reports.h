/* Heapledger, from C: memory reporters, and the collection of what they say. Part of heapledger.h.
 *
 * A *reporter* is a function that is called when somebody wants to know where a process's memory is. It measures, by the
 * functions of measure.h, and reports: a path, an amount, a description.
 *
 *     HEAPLEDGER_DEFINE_MALLOC_SIZE_OF(cache_size_of, "explicit/cache")
 *
 *     static void report(const heapledger_collector *collector, void *data) {
 *         pthread_mutex_lock(&cache_lock);
 *         heapledger_report(collector, "entries", HEAPLEDGER_HEAP, HEAPLEDGER_BYTES,
 *                           (int64_t)entries_size(cache_size_of), "Response bodies, by key.");
 *         pthread_mutex_unlock(&cache_lock);
 *     }
 *     HEAPLEDGER_REPORTER("explicit/cache", report, NULL)
 *
 * To register one, nothing has to be linked: it is put on a list of the executable or library that it is in, where whoever
 * collects finds it. That is libheapledger, by the functions at the end, or a Rust program's reports. What a library has
 * registered is not found any more when that is unloaded.
 *
 * Paths have parts, from the general to the special, with `/` between them, and are below the reporter's own; one that begins
 * with `/` is not. What is below `explicit/` is heap or non-heap memory in bytes, and is counted once. Descriptions are
 * sentences. docs/reporters.md is the guide. */
#ifndef HEAPLEDGER_REPORTS_H
#define HEAPLEDGER_REPORTS_H

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where memory is. */
enum {
    HEAPLEDGER_NON_HEAP = 0, /* mapped by the program itself */
    HEAPLEDGER_HEAP = 1,     /* in blocks of malloc */
    HEAPLEDGER_OTHER = 2     /* neither, or no memory at all: not below explicit/ */
};

/* What is counted. */
enum {
    HEAPLEDGER_BYTES = 0,
    HEAPLEDGER_COUNT = 1,      /* things that come and go */
    HEAPLEDGER_CUMULATIVE = 2, /* things that have happened: never less than before */
    HEAPLEDGER_PERCENTAGE = 3  /* hundredths of a percent */
};

/* What a collection is like: bits. */
enum {
    HEAPLEDGER_ANONYMOUS = 1, /* what is private is left out */
    HEAPLEDGER_MARK = 2,      /* blocks that are measured are marked in the ledger, if one runs */
    HEAPLEDGER_CHILDREN = 4,  /* descendants of this process are asked, too, those that listen */
    HEAPLEDGER_VERBOSE = 8    /* exact amounts, and nothing is hidden: of what is printed */
};

/* Around parts of a path or a description, the formats of a heapledger_reportf among them. What is between is one part of the
 * path, whatever it has in it: a `/` is shown, and does not divide. The second changes from one run to the next, such as a
 * number of a process or an address: reports that differ only there are compared with each other. The third is somebody's
 * business, such as a file's name, and is left out of an anonymous collection. */
#define HEAPLEDGER_PART(format) "\004" format "\003"
#define HEAPLEDGER_VARIABLE(format) "\001" format "\003"
#define HEAPLEDGER_PRIVATE(format) "\002" format "\003"

/* ------------------------------------------------------------------------------------------------------- tables */

/* What a program and whoever collects say to each other, for the functions below. Tables grow at their ends only. */

typedef struct heapledger_text {
    const char *start;
    size_t length;
} heapledger_text;

typedef struct heapledger_raw_report {
    heapledger_text path;
    heapledger_text stable_path; /* null: the path and the description have the marks of HEAPLEDGER_PART and its kin */
    heapledger_text description;
    uint32_t kind;
    uint32_t unit;
    int64_t amount;
} heapledger_raw_report;

typedef struct heapledger_sink {
    uint32_t size;
    uint32_t version;
    uint32_t flags; /* HEAPLEDGER_ANONYMOUS, HEAPLEDGER_MARK */
    const void *context;
    void (*report)(const void *context, const heapledger_raw_report *report);
    void (*fail)(const void *context, heapledger_text reason);
    void (*retain)(const void *context);
    void (*release)(const void *context);
} heapledger_sink;

typedef struct heapledger_entry {
    uint32_t size;
    uint32_t version;
    heapledger_text path;
    const void *reporter;
    void (*run)(const void *reporter, const heapledger_sink *sink);
    void (*release)(const void *reporter);
} heapledger_entry;

/* Takes reports, during the call of the reporter that it is given to. */
typedef struct heapledger_collector {
    heapledger_sink sink;
    const char *path;
} heapledger_collector;

typedef void heapledger_reporter_function(const heapledger_collector *collector, void *data);

/* A reporter, which is registered. */
typedef struct heapledger_reporter {
    const char *path;
    heapledger_reporter_function *function;
    void *data;
    struct heapledger_reporter *next;
    uint32_t users; /* the registry, and collections; one that was allocated goes with the last */
    uint32_t is_running;
    uint32_t is_removed;
    uint32_t reserved;
} heapledger_reporter;

/* ---------------------------------------------------------------------------------------------------- reporting */

static __attribute__((unused, cold, noinline)) void heapledger_report_list(const heapledger_collector *collector, int kind,
                                                                           int unit, int64_t amount,
                                                                           const char *description, const char *format,
                                                                           va_list arguments) {
    char path[2048];
    size_t start = 0, base, length;
    int written;
    heapledger_raw_report report;
    if (collector == NULL) return;
    base = collector->path != NULL ? strlen(collector->path) : 0;
    if (description == NULL) description = "";
    if (base > sizeof path / 2) base = sizeof path / 2;
    memcpy(path, collector->path, base);
    length = base;
    if (base > 0) path[length++] = '/';
    path[length] = 0;
    written = format != NULL ? vsnprintf(path + length, sizeof path - length, format, arguments) : 0;
    if (written < 0) written = 0;
    if ((size_t)written >= sizeof path - length) written = (int)(sizeof path - length - 1);
    if (written == 0) {
        length = base;
    } else if (path[length] == '/') {
        start = length + 1;
        length += (size_t)written;
    } else {
        length += (size_t)written;
    }
    memset(&report, 0, sizeof report);
    report.path.start = path + start;
    report.path.length = length - start;
    report.description.start = description;
    report.description.length = strlen(description);
    report.kind = (uint32_t)kind;
    report.unit = (uint32_t)unit;
    report.amount = amount;
    collector->sink.report(collector->sink.context, &report);
}

/* In the following, a null collector takes nothing; a null path, description or reason is "".
 *
 * Reports. The path is a format as those of printf, of at most 1,023 bytes when it is written. */
static __attribute__((unused, cold, format(printf, 6, 7))) void
heapledger_reportf(const heapledger_collector *collector, int kind, int unit, int64_t amount, const char *description,
                   const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    heapledger_report_list(collector, kind, unit, amount, description, format, arguments);
    va_end(arguments);
}

/* The same, with a path as it is; "": that of the reporter. */
HEAPLEDGER_INLINE void heapledger_report(const heapledger_collector *collector, const char *path, int kind, int unit,
                                         int64_t amount, const char *description) {
    heapledger_reportf(collector, kind, unit, amount, description, "%s", path != NULL ? path : "");
}

/* The reporter could not do what it should: a report heapledger-failed/PATH says so. What it has reported counts. */
static __attribute__((unused, cold)) void heapledger_report_failed(const heapledger_collector *collector, const char *reason) {
    heapledger_text text;
    if (collector == NULL) return;
    text.start = reason != NULL ? reason : "";
    text.length = strlen(text.start);
    collector->sink.fail(collector->sink.context, text);
}

/* Whether what is private is left out: HEAPLEDGER_PRIVATE sees to it; this is for what costs effort to find out. */
HEAPLEDGER_INLINE int heapledger_is_anonymous(const heapledger_collector *collector) {
    return collector != NULL && (collector->sink.flags & HEAPLEDGER_ANONYMOUS) != 0;
}

/* The reporter will answer later, or go on to, in whatever thread, with the collector that this returns: it is valid until
 * heapledger_report_done, which says that all has been reported. The collection waits for that, as long as it waits for any
 * reporter; what comes later is not heard. */
HEAPLEDGER_INLINE heapledger_collector heapledger_report_later(const heapledger_collector *collector) {
    heapledger_collector none;
    if (collector == NULL) {
        memset(&none, 0, sizeof none);
        return none;
    }
    collector->sink.retain(collector->sink.context);
    return *collector;
}
HEAPLEDGER_INLINE void heapledger_report_done(const heapledger_collector *later) {
    if (later != NULL && later->sink.release != NULL) later->sink.release(later->sink.context);
}

/* -------------------------------------------------------------------------------------------------- registration */

#if HEAPLEDGER_IS_ON
/* The reporters of this executable or library. */
struct heapledger_registry {
    uint32_t size; /* 0: there has been none */
    uint32_t version;
    void (*visit)(void *context, void (*each)(void *context, const heapledger_entry *entry));
    heapledger_reporter *first;
    uint32_t lock;
};

/* One for all that is linked together, and an ELF note that leads to it. */
static __attribute__((noinline, unused)) struct heapledger_registry *heapledger_own_registry(void) {
    struct heapledger_registry *registry;
    __asm__(".ifndef heapledger_registry_v1\n"
            ".pushsection .data.heapledger,\"awG\",@progbits,heapledger_registry_v1,comdat\n"
            ".weak heapledger_registry_v1\n"
            ".hidden heapledger_registry_v1\n"
            ".type heapledger_registry_v1,@object\n"
            ".size heapledger_registry_v1,32\n"
            ".balign 8\n"
            "heapledger_registry_v1:\n"
            ".quad 0,0,0,0\n"
            ".popsection\n"
            ".pushsection .note.heapledger,\"aG\",@note,heapledger_registry_v1,comdat\n"
            ".balign 4\n"
            ".long 11,8,1\n"
            ".asciz \"Heapledger\"\n"
            ".balign 4\n"
            ".quad heapledger_registry_v1 - .\n"
            ".popsection\n"
            ".endif\n"
            "leaq heapledger_registry_v1(%%rip), %0"
            : "=r"(registry));
    return registry;
}

/* Not for long: whoever has it goes through a list. */
HEAPLEDGER_INLINE void heapledger_lock_registry(struct heapledger_registry *registry) {
    while (__atomic_exchange_n(&registry->lock, 1, __ATOMIC_ACQUIRE) != 0) sched_yield();
}
HEAPLEDGER_INLINE void heapledger_unlock_registry(struct heapledger_registry *registry) {
    __atomic_store_n(&registry->lock, 0, __ATOMIC_RELEASE);
}

static __attribute__((unused, cold)) void heapledger_run_reporter(const void *reporter, const heapledger_sink *sink) {
    heapledger_reporter *const own = (heapledger_reporter *)(uintptr_t)reporter;
    const struct heapledger_reporting before = heapledger_reporting_v1;
    heapledger_collector collector;
    memset(&collector, 0, sizeof collector);
    memcpy(&collector.sink, sink, sink->size < sizeof *sink ? sink->size : sizeof *sink);
    collector.path = own->path;
    if (__atomic_exchange_n(&own->is_running, 1, __ATOMIC_SEQ_CST) != 0) {
        heapledger_report_failed(&collector, "it has not returned from an earlier call");
        return;
    }
    if (__atomic_load_n(&own->is_removed, __ATOMIC_SEQ_CST) == 0) {
        heapledger_reporting_v1.reporter = own;
        heapledger_reporting_v1.is_not_marking = (sink->flags & HEAPLEDGER_MARK) == 0;
        own->function(&collector, own->data);
        heapledger_reporting_v1 = before;
    }
    __atomic_store_n(&own->is_running, 0, __ATOMIC_SEQ_CST);
}

static __attribute__((unused, cold)) void heapledger_release_reporter(const void *reporter) {
    heapledger_reporter *const own = (heapledger_reporter *)(uintptr_t)reporter;
    if (__atomic_sub_fetch(&own->users, 1, __ATOMIC_ACQ_REL) == 0) {
        const heapledger_scope untracked = heapledger_begin_ignoring();
        free(own);
        heapledger_end_ignoring(untracked);
    }
}

static __attribute__((unused, cold)) void
heapledger_visit_reporters(void *context, void (*each)(void *context, const heapledger_entry *entry)) {
    struct heapledger_registry *const registry = heapledger_own_registry();
    heapledger_reporter *reporter;
    heapledger_lock_registry(registry);
    for (reporter = registry->first; reporter != NULL; reporter = reporter->next) {
        heapledger_entry entry;
        memset(&entry, 0, sizeof entry);
        entry.size = sizeof entry;
        entry.version = 1;
        entry.path.start = reporter->path;
        entry.path.length = strlen(reporter->path);
        entry.reporter = reporter;
        entry.run = heapledger_run_reporter;
        entry.release = heapledger_release_reporter;
        __atomic_add_fetch(&reporter->users, 1, __ATOMIC_RELAXED);
        each(context, &entry);
    }
    heapledger_unlock_registry(registry);
}

/* Behind those that are there. */
static __attribute__((unused, cold)) void heapledger_add_reporter(heapledger_reporter *reporter) {
    struct heapledger_registry *const registry = heapledger_own_registry();
    heapledger_reporter **place;
    heapledger_lock_registry(registry);
    if (registry->size == 0) {
        registry->version = 1;
        registry->visit = heapledger_visit_reporters;
        __atomic_store_n(&registry->size, (uint32_t)sizeof *registry, __ATOMIC_RELEASE);
    }
    for (place = &registry->first; *place != NULL; place = &(*place)->next) {
    }
    *place = reporter;
    heapledger_unlock_registry(registry);
}

/* Registers a reporter: `function(collector, data)` is called when somebody collects, in a thread of the collector's, and not
 * twice at a time. The path stays as it is until it is unregistered. Allocates; null without memory, and if the path or the
 * function is null. */
static __attribute__((unused, cold)) heapledger_reporter *
heapledger_register(const char *path, heapledger_reporter_function *function, void *data) {
    heapledger_reporter *reporter = NULL;
    if (path != NULL && function != NULL) {
        const heapledger_scope untracked = heapledger_begin_ignoring();
        reporter = (heapledger_reporter *)calloc(1, sizeof(heapledger_reporter));
        heapledger_end_ignoring(untracked);
    }
    if (reporter != NULL) {
        reporter->path = path;
        reporter->function = function;
        reporter->data = data;
        reporter->users = 1;
        heapledger_add_reporter(reporter);
    }
    return reporter;
}

/* What heapledger_register returned is not called any more when this returns: if it is being called, that is waited for. So
 * not with a lock held that it takes. In the reporter itself it does not wait. Null is nothing. */
static __attribute__((unused, cold)) void heapledger_unregister(heapledger_reporter *reporter) {
    struct heapledger_registry *const registry = heapledger_own_registry();
    heapledger_reporter **place;
    if (reporter == NULL) return;
    heapledger_lock_registry(registry);
    for (place = &registry->first; *place != NULL && *place != reporter; place = &(*place)->next) {
    }
    if (*place != NULL) *place = reporter->next;
    heapledger_unlock_registry(registry);
    __atomic_store_n(&reporter->is_removed, 1, __ATOMIC_SEQ_CST);
    while (heapledger_reporting_v1.reporter != reporter && __atomic_load_n(&reporter->is_running, __ATOMIC_SEQ_CST) != 0)
        sched_yield();
    heapledger_release_reporter(reporter);
}

/* A reporter that is registered before main, or by the loading of the library that it is in, for as long as that is there: a
 * definition outside of functions, one per line, without a semicolon. In C++ there is heapledger::reporter. */
#define HEAPLEDGER_REPORTER(path, function, data)                                                                     \
    static heapledger_reporter HEAPLEDGER_HERE(heapledger_reporter_) = {(path), (function), (data), NULL, 1, 0, 0, 0}; \
    static __attribute__((constructor)) void HEAPLEDGER_HERE(heapledger_register_)(void) {                            \
        heapledger_add_reporter(&HEAPLEDGER_HERE(heapledger_reporter_));                                              \
    }
#else
HEAPLEDGER_INLINE heapledger_reporter *heapledger_register(const char *path, heapledger_reporter_function *function,
                                                           void *data) {
    (void)path, (void)function, (void)data;
    return NULL;
}
HEAPLEDGER_INLINE void heapledger_unregister(heapledger_reporter *reporter) { (void)reporter; }
#define HEAPLEDGER_REPORTER(path, function, data)                                                                     \
    HEAPLEDGER_INLINE void HEAPLEDGER_HERE(heapledger_reporter_)(const heapledger_collector *collector) {             \
        function(collector, data);                                                                                    \
    }
#endif

/* --------------------------------------------------------------------------------------------------- collection */

/* A null file or function is HEAPLEDGER_FAILED; so is a null `url`, though the server has been started.
 *
 * By libheapledger, also under `heapledger record`. Where it is not in the process, all of these answer
 * HEAPLEDGER_ELSEWHERE; HEAPLEDGER_FAILED where something cannot be done. */

/* What to collect. A null pointer: all of this process, as if all fields were 0. */
typedef struct heapledger_collection {
    uint32_t size; /* sizeof of this */
    uint32_t flags;
    uint32_t reporter_deadline_ms; /* how long a reporter may take; 0: 5 s */
    uint32_t deadline_ms;          /* how long all may take; 0: 30 s */
} heapledger_collection;

/* A measurement. Texts end with NUL, and are there during the call only. */
typedef struct heapledger_report_found {
    uint32_t size;
    uint32_t kind;
    uint32_t unit;
    uint32_t reserved;
    int64_t amount;
    const char *process;
    const char *path;        /* in each part, `\` stands for `/` */
    const char *stable_path; /* with NNN for what changes from run to run; null where nothing does */
    const char *description;
} heapledger_report_found;

/* Called with one after the other, until it returns something else than 0. */
typedef int heapledger_each_report(const heapledger_report_found *report, void *data);

/* For the functions below. */
typedef struct heapledger_reports {
    uint32_t size;
    uint32_t version;
    int (*collect)(const heapledger_collection *what, heapledger_each_report *each, void *data);
    int (*save)(const heapledger_collection *what, const char *file);
    int (*listen)(void);
    int (*print)(const heapledger_collection *what, int descriptor);
    int (*serve)(char *url, size_t length);
} heapledger_reports;

#if HEAPLEDGER_IS_ON
__asm__(".weak heapledger_reports_v1");
HEAPLEDGER_INLINE const heapledger_reports *heapledger_find_reports(size_t size) {
    const heapledger_reports *reports;
    __asm__("movq heapledger_reports_v1@GOTPCREL(%%rip), %0" : "=r"(reports));
    return reports != NULL && reports->size >= size ? reports : NULL;
}
#else
HEAPLEDGER_INLINE const heapledger_reports *heapledger_find_reports(size_t size) {
    (void)size;
    return NULL;
}
#endif

/* Whoever collects, if it has this function; else null. */
#define HEAPLEDGER_REPORTS_WITH(function)                                                                             \
    heapledger_find_reports(offsetof(heapledger_reports, function) + sizeof(void (*)(void)))

/* Asks all reporters of this process, one after the other in a thread made for it, and calls back with what they and
 * Heapledger itself have measured. One that is late has a report heapledger-failed/PATH, and the rest go on. */
HEAPLEDGER_INLINE int heapledger_collect(const heapledger_collection *what, heapledger_each_report *each, void *data) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(collect);
    return reports != NULL ? reports->collect(what, each, data) : HEAPLEDGER_ELSEWHERE;
}

/* The same, into a file for `heapledger reports show` and for Firefox's about:memory: gzipped JSON. As in all functions that
 * write a file, the file comes first, and how it is to be made after it. */
HEAPLEDGER_INLINE int heapledger_save_reports(const char *file, const heapledger_collection *what) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(save);
    return reports != NULL ? reports->save(what, file) : HEAPLEDGER_ELSEWHERE;
}

/* The same, as text: the trees of about:memory. With a libheapledger that was installed with --page; else
 * HEAPLEDGER_ELSEWHERE, and `heapledger reports show PID` prints them. */
HEAPLEDGER_INLINE int heapledger_print_reports(const heapledger_collection *what, int descriptor) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(print);
    return reports != NULL ? reports->print(what, descriptor) : HEAPLEDGER_ELSEWHERE;
}

/* From now on, in a thread of its own, answers `heapledger reports show PID` of this user, and a parent that collects with
 * HEAPLEDGER_CHILDREN. For the rest of the process's life. */
HEAPLEDGER_INLINE int heapledger_listen(void) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(listen);
    return reports != NULL ? reports->listen() : HEAPLEDGER_ELSEWHERE;
}

/* Serves about:memory, in a thread of its own, for the rest of the process's life: a page for a browser on this machine.
 * Its address, which nobody can guess, is written to `url`, of so many bytes; 128 are enough. With a libheapledger that was
 * installed with --page. */
HEAPLEDGER_INLINE int heapledger_serve(char *url, size_t length) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(serve);
    return reports != NULL ? reports->serve(url, length) : HEAPLEDGER_ELSEWHERE;
}

#ifdef __cplusplus
}
#endif

#endif
