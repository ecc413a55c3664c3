// Heapledger, from C++11 on: containers whose allocations do not fail. See infallible.h.
//
//     std::vector<int, heapledger::InfallibleAllocator<int>> numbers;
//
// A request that cannot be met goes to heapledger_handle_oom, and no bad_alloc is thrown: for
// programs without exceptions, or whose crash reports should name the size.
#ifndef HEAPLEDGER_INFALLIBLE_HPP
#define HEAPLEDGER_INFALLIBLE_HPP

#include "infallible.h"

#include <cstddef>
#include <cstdlib>
#include <type_traits>

namespace heapledger {

// An allocator for containers of the standard library. All objects of it are equal. A request for
// more elements than a size_t has bytes for ends the program, with a size of SIZE_MAX.
template <class T> class InfallibleAllocator {
  public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    InfallibleAllocator() = default;
    template <class U> InfallibleAllocator(const InfallibleAllocator<U> &) noexcept {}

    T *allocate(std::size_t count) {
        // No handler can make room for these.
        if (count > SIZE_MAX / sizeof(T)) heapledger_end_oom(SIZE_MAX);
        const std::size_t size = count != 0 ? count * sizeof(T) : 1;
        void *block = alignof(T) > alignof(std::max_align_t) ? heapledger_xmemalign(alignof(T), size) : heapledger_xmalloc(size);
        return static_cast<T *>(block);
    }

    void deallocate(T *block, std::size_t) noexcept { std::free(block); }
};

template <class T, class U> bool operator==(const InfallibleAllocator<T> &, const InfallibleAllocator<U> &) noexcept {
    return true;
}
template <class T, class U> bool operator!=(const InfallibleAllocator<T> &, const InfallibleAllocator<U> &) noexcept {
    return false;
}

} // namespace heapledger
#endif
