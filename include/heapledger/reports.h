/* Heapledger, from C: memory reporters, and the collection of their reports. Part of heapledger.h.
 *
 * A *reporter* is a function that measures memory of the process when a collection asks for it. It
 * measures by the functions of measure.h, and reports a path, an amount and a description.
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
 * To register a reporter, nothing has to be linked: it is put on a list of its executable or
 * library, where collectors find it. A collector is libheapledger, by the functions at the end of
 * this file, or a Rust program's reports. The reporters of a library are removed when it is
 * unloaded.
 *
 * Paths have parts, from the general to the special, with `/` between them. A path is below the
 * reporter's own path, unless it begins with `/`. Reports below `explicit/` are heap or non-heap
 * memory in bytes, and are counted once. Descriptions are sentences. docs/reporters.md is the
 * guide. */
#ifndef HEAPLEDGER_REPORTS_H
#define HEAPLEDGER_REPORTS_H

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of memory. */
enum {
    HEAPLEDGER_NON_HEAP = 0, /* mapped by the program itself */
    HEAPLEDGER_HEAP = 1,     /* in blocks of malloc */
    HEAPLEDGER_OTHER = 2     /* neither, or not memory: not below explicit/ */
};

/* The unit of an amount. */
enum {
    HEAPLEDGER_BYTES = 0,
    HEAPLEDGER_COUNT = 1,      /* a number that rises and falls */
    HEAPLEDGER_CUMULATIVE = 2, /* a number of events, which never falls */
    HEAPLEDGER_PERCENTAGE = 3  /* hundredths of a percent */
};

/* Flags of a collection. */
enum {
    HEAPLEDGER_ANONYMOUS = 1, /* private texts are left out */
    HEAPLEDGER_MARK = 2,      /* measured blocks are marked in the ledger, if one runs */
    HEAPLEDGER_CHILDREN = 4,  /* descendants of this process that listen are asked, too */
    HEAPLEDGER_VERBOSE = 8    /* printed output has exact amounts and hides nothing */
};

/* For parts of a path or a description; the text between may contain formats of heapledger_reportf.
 * It is one part of the path, whatever it contains: a `/` in it is shown, and does not divide. A
 * VARIABLE part changes from one run to the next, such as a process number or an address: reports
 * that differ only in such parts are compared with each other. A PRIVATE part may be confidential,
 * such as a file's name, and is left out of an anonymous collection. */
#define HEAPLEDGER_PART(format) "\004" format "\003"
#define HEAPLEDGER_VARIABLE(format) "\001" format "\003"
#define HEAPLEDGER_PRIVATE(format) "\002" format "\003"

/* ------------------------------------------------------------------------------------------------------- tables */

/* The interface between a program and its collectors, for the functions below. Tables grow at their
 * ends only. */

typedef struct heapledger_text {
    const char *start;
    size_t length;
} heapledger_text;

typedef struct heapledger_raw_report {
    heapledger_text path;
    /* null: path and description have HEAPLEDGER_PART marks or the like */
    heapledger_text stable_path;
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

/* Takes reports, during the call of the reporter that it is passed to. */
typedef struct heapledger_collector {
    heapledger_sink sink;
    const char *path;
} heapledger_collector;

typedef void heapledger_reporter_function(const heapledger_collector *collector, void *data);

/* A registered reporter. */
typedef struct heapledger_reporter {
    const char *path;
    heapledger_reporter_function *function;
    void *data;
    struct heapledger_reporter *next;
    uint32_t users; /* the registry, and collections; the last one frees it if it was allocated */
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

/* In the following, a null collector ignores reports; a null path, description or reason is "".
 *
 * Reports an amount. The path is a format as for printf; its result has at most 1,023 bytes. */
static __attribute__((unused, cold, format(printf, 6, 7))) void
heapledger_reportf(const heapledger_collector *collector, int kind, int unit, int64_t amount, const char *description,
                   const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    heapledger_report_list(collector, kind, unit, amount, description, format, arguments);
    va_end(arguments);
}

/* The same, with a path that is not a format; "" means the path of the reporter. */
HEAPLEDGER_INLINE void heapledger_report(const heapledger_collector *collector, const char *path, int kind, int unit,
                                         int64_t amount, const char *description) {
    heapledger_reportf(collector, kind, unit, amount, description, "%s", path != NULL ? path : "");
}

/* Says that the reporter failed: the collection then has a report heapledger-failed/PATH. The
 * reports that it has made count. */
static __attribute__((unused, cold)) void heapledger_report_failed(const heapledger_collector *collector, const char *reason) {
    heapledger_text text;
    if (collector == NULL) return;
    text.start = reason != NULL ? reason : "";
    text.length = strlen(text.start);
    collector->sink.fail(collector->sink.context, text);
}

/* True if private texts are left out. HEAPLEDGER_PRIVATE does that by itself; use this to save the
 * effort of finding them out. */
HEAPLEDGER_INLINE int heapledger_is_anonymous(const heapledger_collector *collector) {
    return collector != NULL && (collector->sink.flags & HEAPLEDGER_ANONYMOUS) != 0;
}

/* Announces that the reporter will answer later, or continue to, in any thread, with the collector
 * that this returns. That is valid until heapledger_report_done, which ends the answer. The
 * collection waits for it, as long as it waits for any reporter; later reports are ignored. */
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
    uint32_t size; /* 0: not initialised */
    uint32_t version;
    void (*visit)(void *context, void (*each)(void *context, const heapledger_entry *entry));
    heapledger_reporter *first;
    uint32_t lock;
};

/* Returns the registry of all that is linked together, to which an ELF note leads. */
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

/* Takes the registry's spin lock, which is held only while a list is walked. */
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

/* Appends a reporter to the list. */
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

/* Registers a reporter: `function(collector, data)` is called by each collection, in a thread of
 * the collector's, never twice at a time. The path must not change until the reporter is
 * unregistered. Allocates; returns null without memory, or if the path or the function is null. */
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

/* Unregisters a reporter, which heapledger_register returned: it is not called any more when this
 * returns. If the reporter is being called, this waits for it; so do not hold a lock that the
 * reporter takes. In the reporter itself this does not wait. Does nothing for null. */
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

/* Defines a reporter that is registered before main, or when its library is loaded, until that is
 * unloaded. Write it outside of functions, one per line, without a semicolon. In C++ there is
 * heapledger::reporter. */
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

/* The functions below need libheapledger, and work under `heapledger record`, too. They return
 * HEAPLEDGER_ELSEWHERE if it is not in the process, and HEAPLEDGER_FAILED if something cannot be
 * done or a file or function is null. A null `url` is HEAPLEDGER_FAILED, too, although the server
 * has been started. */

/* The extent of a collection. A null pointer, like all fields 0, means all of this process. */
typedef struct heapledger_collection {
    uint32_t size; /* sizeof of this */
    uint32_t flags;
    uint32_t reporter_deadline_ms; /* the time limit of one reporter; 0: 5 s */
    uint32_t deadline_ms;          /* the time limit of the collection; 0: 30 s */
} heapledger_collection;

/* A measurement. Texts end with NUL, and are valid during the call only. */
typedef struct heapledger_report_found {
    uint32_t size;
    uint32_t kind;
    uint32_t unit;
    uint32_t reserved;
    int64_t amount;
    const char *process;
    const char *path;        /* within a part, `\` replaces `/` */
    const char *stable_path; /* with NNN for variable parts; null if there are none */
    const char *description;
} heapledger_report_found;

/* Called for one after the other, until it returns something other than 0. */
typedef int heapledger_each_report(const heapledger_report_found *report, void *data);

/* The table of functions that the functions below call. */
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

/* The collector if it has this function, else null. */
#define HEAPLEDGER_REPORTS_WITH(function)                                                                             \
    heapledger_find_reports(offsetof(heapledger_reports, function) + sizeof(void (*)(void)))

/* Asks all reporters of this process, one after the other in a thread made for it, and calls back
 * with their measurements and Heapledger's own. A reporter that exceeds its time limit has a report
 * heapledger-failed/PATH, and the others are still asked. */
HEAPLEDGER_INLINE int heapledger_collect(const heapledger_collection *what, heapledger_each_report *each, void *data) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(collect);
    return reports != NULL ? reports->collect(what, each, data) : HEAPLEDGER_ELSEWHERE;
}

/* The same, into a file for `heapledger reports show` and for Firefox's about:memory: gzipped JSON.
 * As in all functions that write a file, the file is the first argument. */
HEAPLEDGER_INLINE int heapledger_save_reports(const char *file, const heapledger_collection *what) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(save);
    return reports != NULL ? reports->save(what, file) : HEAPLEDGER_ELSEWHERE;
}

/* The same, as text: the trees of about:memory. Needs a libheapledger that was installed with
 * --page; otherwise returns HEAPLEDGER_ELSEWHERE, and `heapledger reports show PID` prints them. */
HEAPLEDGER_INLINE int heapledger_print_reports(const heapledger_collection *what, int descriptor) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(print);
    return reports != NULL ? reports->print(what, descriptor) : HEAPLEDGER_ELSEWHERE;
}

/* Starts a thread that answers `heapledger reports show PID` of this user, and a parent that
 * collects with HEAPLEDGER_CHILDREN, for the rest of the process's life. */
HEAPLEDGER_INLINE int heapledger_listen(void) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(listen);
    return reports != NULL ? reports->listen() : HEAPLEDGER_ELSEWHERE;
}

/* Serves about:memory, in a thread of its own, for the rest of the process's life: a page for a
 * browser on this machine. Writes its address, which cannot be guessed, to `url`, which has
 * `length` bytes; 128 are enough. Needs a libheapledger that was installed with --page. */
HEAPLEDGER_INLINE int heapledger_serve(char *url, size_t length) {
    const heapledger_reports *reports = HEAPLEDGER_REPORTS_WITH(serve);
    return reports != NULL ? reports->serve(url, length) : HEAPLEDGER_ELSEWHERE;
}

#ifdef __cplusplus
}
#endif

#endif
