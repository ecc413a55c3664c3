// Heapledger, from C++11 on: `new` that does not fail. Include this in one source file of the
// program, which then defines all forms of the operators for the whole program; a second file that
// includes it is an error of the linker. See infallible.h.
//
// A `new` that cannot be met calls the program's new-handler, if it has one, again and again, as
// the standard wants it: the handler may free memory, throw, or end the program. Without a handler
// the request goes to heapledger_handle_oom, and std::bad_alloc is not thrown. The forms with
// std::nothrow return null: they call the new-handler too, and catch what it throws.
//
// An alignment that is not a power of two is an error of the program, not a lack of memory: the
// program ends, and the forms with std::nothrow return null, without a call of a handler.
//
// Blocks come from malloc and are freed by free, whichever form allocates and frees them.
#ifndef HEAPLEDGER_INFALLIBLE_NEW_HPP
#define HEAPLEDGER_INFALLIBLE_NEW_HPP

#include "infallible.h"

#include <cstdlib>
#include <new>

namespace heapledger {
namespace infallible {

// Returns a block, or null. An alignment of 0 is that of malloc; others are powers of two.
inline void *attempt(std::size_t size, std::size_t alignment) noexcept {
    if (size == 0) size = 1;
    if (alignment == 0) return std::malloc(size);
    void *block = nullptr;
    if (alignment < sizeof(void *)) alignment = sizeof(void *);
    return posix_memalign(&block, alignment, size) == 0 ? block : nullptr;
}

inline bool is_power_of_two(std::size_t alignment) noexcept {
    return alignment != 0 && (alignment & (alignment - 1)) == 0;
}

inline void *allocate(std::size_t size, std::size_t alignment) {
    for (;;) {
        if (void *block = attempt(size, alignment)) return block;
        if (std::new_handler handler = std::get_new_handler()) handler();
        else heapledger_handle_oom(size);
    }
}

inline void *allocate_or_null(std::size_t size, std::size_t alignment) noexcept {
    for (;;) {
        if (void *block = attempt(size, alignment)) return block;
        std::new_handler handler = std::get_new_handler();
        if (handler == nullptr) return nullptr;
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
        try {
            handler();
        } catch (...) {
            return nullptr;
        }
#else
        handler();
#endif
    }
}

inline void *allocate_aligned(std::size_t size, std::size_t alignment) {
    if (!is_power_of_two(alignment)) heapledger_abort("new: the alignment is not a power of two");
    return allocate(size, alignment);
}

inline void *allocate_aligned_or_null(std::size_t size, std::size_t alignment) noexcept {
    return is_power_of_two(alignment) ? allocate_or_null(size, alignment) : nullptr;
}

} // namespace infallible
} // namespace heapledger

// Not inlined: compilers take malloc and `delete`, or `new` and free, for a mismatch.
#define HEAPLEDGER_OPERATOR __attribute__((noinline))

HEAPLEDGER_OPERATOR void *operator new(std::size_t size) { return heapledger::infallible::allocate(size, 0); }
HEAPLEDGER_OPERATOR void *operator new[](std::size_t size) { return heapledger::infallible::allocate(size, 0); }
HEAPLEDGER_OPERATOR void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    return heapledger::infallible::allocate_or_null(size, 0);
}
HEAPLEDGER_OPERATOR void *operator new[](std::size_t size, const std::nothrow_t &) noexcept {
    return heapledger::infallible::allocate_or_null(size, 0);
}
HEAPLEDGER_OPERATOR void operator delete(void *block) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete[](void *block) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete(void *block, const std::nothrow_t &) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete[](void *block, const std::nothrow_t &) noexcept { std::free(block); }
// C++14. In C++11 these are functions that nothing calls.
void operator delete(void *block, std::size_t) noexcept;
void operator delete[](void *block, std::size_t) noexcept;
HEAPLEDGER_OPERATOR void operator delete(void *block, std::size_t) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete[](void *block, std::size_t) noexcept { std::free(block); }

#ifdef __cpp_aligned_new
HEAPLEDGER_OPERATOR void *operator new(std::size_t size, std::align_val_t alignment) {
    return heapledger::infallible::allocate_aligned(size, static_cast<std::size_t>(alignment));
}
HEAPLEDGER_OPERATOR void *operator new[](std::size_t size, std::align_val_t alignment) {
    return heapledger::infallible::allocate_aligned(size, static_cast<std::size_t>(alignment));
}
HEAPLEDGER_OPERATOR void *operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return heapledger::infallible::allocate_aligned_or_null(size, static_cast<std::size_t>(alignment));
}
HEAPLEDGER_OPERATOR void *operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return heapledger::infallible::allocate_aligned_or_null(size, static_cast<std::size_t>(alignment));
}
HEAPLEDGER_OPERATOR void operator delete(void *block, std::align_val_t) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete[](void *block, std::align_val_t) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete(void *block, std::align_val_t, const std::nothrow_t &) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete[](void *block, std::align_val_t, const std::nothrow_t &) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete(void *block, std::size_t, std::align_val_t) noexcept { std::free(block); }
HEAPLEDGER_OPERATOR void operator delete[](void *block, std::size_t, std::align_val_t) noexcept { std::free(block); }
#endif

#undef HEAPLEDGER_OPERATOR
#endif
