// Heapledger, from C++11 on: how much memory an object owns. Part of heapledger.hpp.
//
// A class says it by two members, of which the first is the one that matters:
//
//     size_t SizeOfExcludingThis(heapledger::MallocSizeOf malloc_size_of) const;  // what it owns
//     size_t SizeOfIncludingThis(heapledger::MallocSizeOf malloc_size_of) const;  // and itself, a block of its own
//
// There is no class to inherit from; they may be virtual. examples/sizes.cpp has them with inheritance of each kind, and
// docs/reporters.md is the guide. <heapledger/containers.hpp> measures what the standard library has.
#ifndef HEAPLEDGER_MEASURE_HPP
#define HEAPLEDGER_MEASURE_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace heapledger {

// Asks the allocator for the size of a block: heapledger_malloc_size_of, or what HEAPLEDGER_DEFINE_MALLOC_SIZE_OF has made.
using MallocSizeOf = size_t (*)(const void *block);

namespace detail {

template <class T> const void *whole(const T *object, std::true_type) noexcept {
    return dynamic_cast<const void *>(object);
}
template <class T> const void *whole(const T *object, std::false_type) noexcept { return object; }

} // namespace detail

// Where the block begins that `new` has made for an object: for a class with virtual functions, the beginning of the whole
// object, of which the pointer may be to a base that lies further in. So `malloc_size_of(heapledger::block_of(this))` is right
// in a base class, too, with several bases and virtual ones. The object is none within another, and no element of an array.
template <class T> const void *block_of(const T *object) noexcept {
    return object == nullptr ? nullptr : detail::whole(object, std::is_polymorphic<T>{});
}

// The same, for what `new T[n]` returned: where elements have destructors, their number stands before them.
template <class T> const void *block_of_array(const T *first) noexcept {
    const std::size_t before = alignof(T) > sizeof(std::size_t) ? alignof(T) : sizeof(std::size_t);
    if (first == nullptr || std::is_trivially_destructible<T>::value) return first;
    return reinterpret_cast<const char *>(first) - before;
}

} // namespace heapledger

#endif
