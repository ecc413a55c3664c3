// Heapledger, from C++11 on: how much memory an object owns. Part of heapledger.hpp.
//
// A class has two members for it, of which the first is the important one:
//
//     size_t SizeOfExcludingThis(heapledger::MallocSizeOf malloc_size_of) const;  // what it owns
//     size_t SizeOfIncludingThis(heapledger::MallocSizeOf malloc_size_of) const;  // and itself, a block of its own
//
// There is no class to inherit from; the members may be virtual. examples/sizes.cpp has them with
// inheritance of each kind, and docs/reporters.md is the guide. <heapledger/containers.hpp>
// measures types of the standard library.
#ifndef HEAPLEDGER_MEASURE_HPP
#define HEAPLEDGER_MEASURE_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace heapledger {

// A function that asks the allocator for the size of a block: heapledger_malloc_size_of, or one
// that HEAPLEDGER_DEFINE_MALLOC_SIZE_OF has defined.
using MallocSizeOf = size_t (*)(const void *block);

namespace detail {

template <class T> const void *whole(const T *object, std::true_type) noexcept {
    return dynamic_cast<const void *>(object);
}
template <class T> const void *whole(const T *object, std::false_type) noexcept { return object; }

} // namespace detail

// Returns the beginning of the block that `new` has made for an object. For a class with virtual
// functions this is the beginning of the whole object, even if the pointer is to a base further in.
// So `malloc_size_of(heapledger::block_of(this))` is right in a base class, too, with several bases
// and virtual ones. The object must not be a member of another or an element of an array.
template <class T> const void *block_of(const T *object) noexcept {
    return object == nullptr ? nullptr : detail::whole(object, std::is_polymorphic<T>{});
}

// The same, for the result of `new T[n]`: if elements have destructors, their number is stored
// before them.
template <class T> const void *block_of_array(const T *first) noexcept {
    const std::size_t before = alignof(T) > sizeof(std::size_t) ? alignof(T) : sizeof(std::size_t);
    if (first == nullptr || std::is_trivially_destructible<T>::value) return first;
    return reinterpret_cast<const char *>(first) - before;
}

} // namespace heapledger

#endif
