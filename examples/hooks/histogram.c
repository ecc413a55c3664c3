/* A hook library: the number of blocks of each size that a program allocates.
 *
 *     $ cc -O2 -shared -fPIC -Iinclude -o libhistogram.so examples/hooks/histogram.c
 *     $ heapledger run --hook ./libhistogram.so -- sqlite3 :memory: 'select 1'
 *     $ HISTOGRAM=sizes.txt heapledger run --hook ./libhistogram.so -- make
 *
 * Each process writes its histogram when it exits: to stderr, or to the end of the file that
 * HISTOGRAM names. (A process that ends by _exit, by a signal or by exec does not.) Name a file for
 * programs that close stderr before they end, as GNU's ls does: the destructor runs after that. A
 * child that was forked begins with the counts of its parent. Counters are static, and the output
 * is written by write(2): nothing here allocates. */
#include <errno.h>
#include <fcntl.h>
#include <heapledger/hooks.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

HEAPLEDGER_HOOK_LIBRARY;

#define CLASSES 64

/* By the number of bits in the size: class 4 is 8 to 15 bytes. */
static uint64_t blocks[CLASSES + 1];
static uint64_t allocations, frees, failures;

static void count(uint64_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

static void allocated(void *block, size_t size, heapledger_caller caller) {
    (void)block, (void)caller;
    count(&allocations);
    count(&blocks[size == 0 ? 0 : CLASSES - __builtin_clzll(size)]);
}

static void freed(void *block, heapledger_caller caller) {
    (void)block, (void)caller;
    count(&frees);
}

static void reallocation_begins(uint32_t api, void *old, heapledger_caller caller) {
    /* reallocation_ends counts the old block, once it is known whether that was freed. */
    (void)api, (void)old, (void)caller;
}

static void failed(uint32_t api, size_t size, size_t alignment, size_t many, heapledger_caller caller) {
    (void)api, (void)size, (void)alignment, (void)many, (void)caller;
    count(&failures);
}

static void reallocation_ends(void *old, void *block, size_t size, heapledger_caller caller) {
    if (block != NULL) allocated(block, size, caller);
    if (block == NULL && (old == NULL || size != 0)) count(&failures);
    if (old != NULL && (block != NULL || size == 0)) freed(old, caller);
}

static heapledger_observer observer = HEAPLEDGER_OBSERVER(10, "histogram", allocated, freed);

int heapledger_hook_init(const heapledger_functions *real, const heapledger_hooks *hooks) {
    (void)real;
    observer.realloc_begins = reallocation_begins;
    observer.realloc_ends = reallocation_ends;
    observer.failed = failed;
    return hooks->install_observer(&observer);
}

/* ------------------------------------------------------------------------------------------------------ printing */

static char text[8192];
static size_t length;

static void put(const char *part) {
    size_t more = strlen(part);
    if (more > sizeof text - length) more = sizeof text - length;
    memcpy(text + length, part, more);
    length += more;
}

static void put_number(uint64_t number, int width) {
    char digits[24];
    int at = sizeof digits - 1;
    digits[at] = '\0';
    do digits[--at] = (char)('0' + number % 10); while ((number /= 10) != 0);
    while ((int)sizeof digits - 1 - at < width && at > 0) digits[--at] = ' ';
    put(digits + at);
}

__attribute__((destructor)) static void print(void) {
    int saved = errno;
    put("process ");
    put_number((uint64_t)getpid(), 0);
    put(": allocations ");
    put_number(allocations, 0);
    put(" frees ");
    put_number(frees, 0);
    put(" failures ");
    put_number(failures, 0);
    put("\n");
    for (int class = 0; class <= CLASSES; class++) {
        if (blocks[class] == 0) continue;
        put_number(class == 0 ? 0 : UINT64_C(1) << (class - 1), 20);
        put(" bytes and more: ");
        put_number(blocks[class], 12);
        put(" blocks\n");
    }
    const char *path = getenv("HISTOGRAM");
    int file = path == NULL ? STDERR_FILENO : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    /* A failed write cannot be reported to anybody. */
    if (file >= 0 && write(file, text, length) < 0) length = 0;
    if (path != NULL && file >= 0) close(file);
    errno = saved;
}
