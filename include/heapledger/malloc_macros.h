/* Every call of the malloc family below this line stamps its block with its file and line; in C++
 * also with a type, if the result is cast to a pointer to an object:
 * `(Node *)malloc(sizeof(Node))`. Opt-in, for C99 on and C++11 on: include it at the end of a
 * header that all files of a project include, after the headers of libraries; or pass
 * `-include heapledger/malloc_macros.h` to the compiler.
 *
 * The type of such a block is [unknown] until HEAPLEDGER_STAMP declares one. A reallocation keeps
 * the stamp of its block.
 *
 * The macros have arguments, so a name without parentheses behind it is unchanged: `&malloc`,
 * `.malloc = malloc` and members named `malloc` may be declared and assigned. The following does
 * not compile:
 *   - a declaration or definition of a function of the name: `void *malloc(size_t size);`
 *   - in C, a call of a member: `heap->malloc(8)`. `(heap->malloc)(8)` compiles. In C++ both
 *     compile if the member returns a pointer.
 * Around such lines, include <heapledger/malloc_macros_off.h>, and this header again behind
 * them. */
#ifdef __cplusplus
#include "heapledger.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#else
#include "heapledger.h"
#endif

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>

#ifndef HEAPLEDGER_MALLOC_MACROS_H
#define HEAPLEDGER_MALLOC_MACROS_H

#ifdef __cplusplus
namespace heapledger {

// Stands to the right of a call: `malloc(8) ->* here(FILE, LINE)`. So whatever stands to its left,
// `std::` or a cast, still compiles.
struct here {
    const char *file;
    std::uint32_t line;
    constexpr here(const char *file_, std::uint32_t line_) noexcept : file(file_), line(line_) {}
};
template <class T> __attribute__((always_inline)) inline T *operator->*(T *block, here place) noexcept {
    return at(place.file, place.line).stamped(block);
}
// For `!malloc(8)`, and for members that return something else.
template <class T> constexpr T operator->*(T value, here) noexcept { return value; }

// For reallocations: without a type the stamp is not changed.
struct here_again : here {
    using here::here;
};
template <class T> __attribute__((always_inline)) inline T *operator->*(T *block, here_again place) noexcept {
    return at(place.file, place.line).stamped(block);
}
inline void *operator->*(void *block, here_again) noexcept { return block; }
template <class T> constexpr T operator->*(T value, here_again) noexcept { return value; }

} // namespace heapledger

// Outside of the namespace, because the name may stand behind `::`.
inline int heapledger_stamped_posix_memalign(void **out, std::size_t alignment, std::size_t size, heapledger::at place) noexcept {
    const int error = ::posix_memalign(out, alignment, size);
    if (error == 0) place.stamped(*out);
    return error;
}
#endif
#endif

#if HEAPLEDGER_IS_ON
#include "malloc_macros_off.h"
#ifdef __cplusplus
#define HEAPLEDGER_CALL_(call) call->*::heapledger::here(__FILE__, __LINE__)
#define HEAPLEDGER_CALL_AGAIN_(call) call->*::heapledger::here_again(__FILE__, __LINE__)
#define realloc(...) HEAPLEDGER_CALL_AGAIN_(realloc(__VA_ARGS__))
#define reallocarray(...) HEAPLEDGER_CALL_AGAIN_(reallocarray(__VA_ARGS__))
#define posix_memalign(out, alignment, size)                                                                          \
    heapledger_stamped_posix_memalign((out), (alignment), (size), HEAPLEDGER_AT_)
#else
#define HEAPLEDGER_CALL_(call) heapledger_stamped(call, HEAPLEDGER_UNKNOWN_TYPE, HEAPLEDGER_HERE_PLACE_)
#define HEAPLEDGER_CALL_AGAIN_(call, old)                                                                             \
    __extension__({                                                                                                   \
        void *heapledger_old_ = (old);                                                                                \
        void *heapledger_new_ = call;                                                                                 \
        heapledger_old_ == NULL ? HEAPLEDGER_CALL_(heapledger_new_) : heapledger_new_;                                \
    })
#define realloc(old, ...) HEAPLEDGER_CALL_AGAIN_(realloc(heapledger_old_, __VA_ARGS__), old)
#define reallocarray(old, ...) HEAPLEDGER_CALL_AGAIN_(reallocarray(heapledger_old_, __VA_ARGS__), old)
#define posix_memalign(out, ...)                                                                                      \
    __extension__({                                                                                                   \
        void **heapledger_out_ = (out);                                                                               \
        int heapledger_error_ = posix_memalign(heapledger_out_, __VA_ARGS__);                                         \
        if (heapledger_error_ == 0) (void)HEAPLEDGER_CALL_(*heapledger_out_);                                         \
        heapledger_error_;                                                                                            \
    })
#endif
#define malloc(...) HEAPLEDGER_CALL_(malloc(__VA_ARGS__))
#define calloc(...) HEAPLEDGER_CALL_(calloc(__VA_ARGS__))
#define aligned_alloc(...) HEAPLEDGER_CALL_(aligned_alloc(__VA_ARGS__))
#define memalign(...) HEAPLEDGER_CALL_(memalign(__VA_ARGS__))
#define valloc(...) HEAPLEDGER_CALL_(valloc(__VA_ARGS__))
#define strdup(...) HEAPLEDGER_CALL_(strdup(__VA_ARGS__))
#define strndup(...) HEAPLEDGER_CALL_(strndup(__VA_ARGS__))
#endif
