/* Heapledger, from C: allocation that does not fail. docs/low-memory.md is the guide.
 *
 * The functions here call the program's malloc, whichever that is. If it has no memory, they go the
 * one way that all of them share, heapledger_handle_oom: the size is recorded, the program's
 * handler may free memory and ask for another attempt; else the program ends with a message. So
 * their results are not checked.
 *
 * Nothing has to be linked for this header. What the files of a program must share is defined in
 * each of them as weak symbols, of which the linker keeps one. The crate `heapledger-infallible`
 * defines the same symbols but for heapledger_oom_depth, of which it has its own form, so that C and
 * Rust in one program share the handler too.
 *
 * C99 or later, and C++ (see infallible.hpp for containers, and infallible_new.hpp for `new`); gcc
 * or clang, on systems with POSIX. All functions may be called in any thread. */
#ifndef HEAPLEDGER_INFALLIBLE_H
#define HEAPLEDGER_INFALLIBLE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__cplusplus) && __cplusplus >= 201103L
#define HEAPLEDGER_NOEXCEPT noexcept
#elif defined(__cplusplus)
#define HEAPLEDGER_NOEXCEPT throw()
#else
#define HEAPLEDGER_NOEXCEPT
#endif
#define HEAPLEDGER_XINLINE __extension__ static __inline__ __attribute__((unused))
/* One definition in the program, which debuggers and crash reporters find by its name. */
#define HEAPLEDGER_SHARED __attribute__((weak, visibility("default")))
#define HEAPLEDGER_SIZED(...) __attribute__((malloc, alloc_size(__VA_ARGS__), warn_unused_result))

/* The bytes of the request that could not be met: of the latest one that came to
 * heapledger_handle_oom, and 0 before. */
extern size_t heapledger_oom_size;
/* The message with which the program ends, empty before. */
extern char heapledger_oom_message[64];

/* Frees memory. Returns 0 if it could not; otherwise the request is made again, as often as
 * this goes on. Called in the thread that allocates, with the bytes of the request. It may allocate
 * with functions that fail; if it comes to heapledger_handle_oom itself, the program ends. It does
 * not throw, nor leave by longjmp: in C++ an exception that leaves it ends the program. */
typedef int heapledger_oom_handler(size_t size);

extern heapledger_oom_handler *heapledger_oom_hook;
/* Greater than 0 while the thread is in the handler. */
__extension__ extern __thread unsigned heapledger_oom_depth;

/* Prints a message and a newline to standard error, and ends the program by abort(). Does not
 * allocate. */
void heapledger_abort(const char *message) __attribute__((noreturn, cold));

/* Handles a request of `size` bytes that malloc did not meet. Returns if it should be made again;
 * ends the program otherwise. Does not allocate. */
void heapledger_handle_oom(size_t size) HEAPLEDGER_NOEXCEPT __attribute__((cold));

HEAPLEDGER_SHARED size_t heapledger_oom_size = 0;
HEAPLEDGER_SHARED char heapledger_oom_message[64] = "";
HEAPLEDGER_SHARED heapledger_oom_handler *heapledger_oom_hook = NULL;
__extension__ HEAPLEDGER_SHARED __thread unsigned heapledger_oom_depth = 0;

HEAPLEDGER_SHARED __attribute__((noinline)) void heapledger_abort(const char *message) {
    const char *parts[2];
    int part;
    parts[0] = message;
    parts[1] = "\n";
    for (part = 0; part < 2; part++) {
        size_t left = strlen(parts[part]);
        while (left > 0) {
            ssize_t written = write(STDERR_FILENO, parts[part] + strlen(parts[part]) - left, left);
            if (written > 0) left -= (size_t)written;
            else if (written == 0 || errno != EINTR) break;
        }
    }
    abort();
}

/* Ends the program with the message about a request of `size` bytes, without asking the handler. */
HEAPLEDGER_XINLINE __attribute__((noreturn, cold)) void heapledger_end_oom(size_t size) {
    static const char before[] = "out of memory: 0x", after[] = " bytes requested";
    char *to = heapledger_oom_message;
    int shift;
    __atomic_store_n(&heapledger_oom_size, size, __ATOMIC_RELAXED);
    memcpy(to, before, sizeof before - 1);
    to += sizeof before - 1;
    for (shift = 60; shift >= 0; shift -= 4) *to++ = "0123456789abcdef"[((uint64_t)size >> shift) & 15];
    memcpy(to, after, sizeof after);
    heapledger_abort(heapledger_oom_message);
}

HEAPLEDGER_SHARED __attribute__((noinline)) void heapledger_handle_oom(size_t size) HEAPLEDGER_NOEXCEPT {
    heapledger_oom_handler *handler;
    __atomic_store_n(&heapledger_oom_size, size, __ATOMIC_RELAXED);
    handler = __atomic_load_n(&heapledger_oom_hook, __ATOMIC_ACQUIRE);
    if (handler != NULL && heapledger_oom_depth == 0) {
        int has_freed;
        heapledger_oom_depth++;
        has_freed = handler(size);
        heapledger_oom_depth--;
        if (has_freed) return;
    }
    heapledger_end_oom(size);
}

/* Sets the handler, or removes it if null. Returns the one before. */
HEAPLEDGER_XINLINE heapledger_oom_handler *heapledger_set_oom_handler(heapledger_oom_handler *handler) {
    return __atomic_exchange_n(&heapledger_oom_hook, handler, __ATOMIC_ACQ_REL);
}

/* Allocates like malloc. Null only for a size of 0, if malloc answers so. */
HEAPLEDGER_XINLINE HEAPLEDGER_SIZED(1) void *heapledger_xmalloc(size_t size) {
    void *block;
    while ((block = malloc(size)) == NULL && size != 0) heapledger_handle_oom(size);
    return block;
}

/* Allocates like calloc. If the product is too large for a size_t, the program ends, with a size of
 * SIZE_MAX: no handler can make room. */
HEAPLEDGER_XINLINE HEAPLEDGER_SIZED(1, 2) void *heapledger_xcalloc(size_t count, size_t size) {
    void *block;
    if (size != 0 && count > SIZE_MAX / size) heapledger_end_oom(SIZE_MAX);
    while ((block = calloc(count, size)) == NULL && count != 0 && size != 0) heapledger_handle_oom(count * size);
    return block;
}

/* Reallocates like realloc. For a size of 0 the result is that of realloc, which may be null. */
HEAPLEDGER_XINLINE __attribute__((alloc_size(2), warn_unused_result)) void *heapledger_xrealloc(void *block, size_t size) {
    void *moved;
    while ((moved = realloc(block, size)) == NULL && size != 0) heapledger_handle_oom(size);
    return moved;
}

#ifndef __cplusplus
/* Not declared by stdlib.h if the compiler is asked for C without extensions. */
extern int posix_memalign(void **block, size_t alignment, size_t size);
#endif

/* Allocates with an alignment, a power of two. For any other the result is null, and errno is
 * EINVAL. */
HEAPLEDGER_XINLINE HEAPLEDGER_SIZED(2) void *heapledger_xmemalign(size_t alignment, size_t size) {
    void *block = NULL;
    int error;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    if (alignment < sizeof(void *)) alignment = sizeof(void *);
    while ((error = posix_memalign(&block, alignment, size)) != 0) {
        if (error == EINVAL) {
            errno = EINVAL;
            return NULL;
        }
        heapledger_handle_oom(size);
    }
    return block;
}

/* Copies memory to a new block. */
HEAPLEDGER_XINLINE HEAPLEDGER_SIZED(2) void *heapledger_xmemdup(const void *from, size_t size) {
    void *block = heapledger_xmalloc(size);
    if (size != 0) memcpy(block, from, size);
    return block;
}

/* Copies up to `length` bytes of a text to a new block, and a NUL. */
HEAPLEDGER_XINLINE __attribute__((malloc, warn_unused_result)) char *heapledger_xstrndup(const char *text, size_t length) {
    const char *end = (const char *)memchr(text, 0, length);
    size_t size = end != NULL ? (size_t)(end - text) : length;
    char *block;
    if (size == SIZE_MAX) heapledger_end_oom(SIZE_MAX);
    block = (char *)heapledger_xmalloc(size + 1);
    memcpy(block, text, size);
    block[size] = 0;
    return block;
}

/* Copies a text to a new block. */
HEAPLEDGER_XINLINE __attribute__((malloc, warn_unused_result)) char *heapledger_xstrdup(const char *text) {
    return (char *)heapledger_xmemdup(text, strlen(text) + 1);
}

#ifdef __cplusplus
}
#endif
#endif
