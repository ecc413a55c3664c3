// Heapledger, from C++11 on: how much memory types of the standard library own.
//
//     #include <heapledger/containers.hpp>
//
//     size_t Cache::SizeOfExcludingThis(heapledger::MallocSizeOf malloc_size_of) const {
//         return heapledger::SizeOfExcludingThis(names_, malloc_size_of) +      // a std::map<std::string, Entry>
//                heapledger::ShallowSizeOfExcludingThis(order_, malloc_size_of) // a std::vector<Entry *>: not what it points to
//     }
//
// Measured are string, vector, deque, list, forward_list, set, map, unordered_set, unordered_map
// and their multi variants, stack, queue, priority_queue, array, pair, tuple, unique_ptr, optional
// and variant, nested in any way, and a shared_ptr if the caller says who owns it. The elements are
// measured by their SizeOfExcludingThis or an overload of owned<T>; for a type with neither, the
// caller passes a function. No size is computed: the allocator is asked for each block. The
// positions of blocks are known for libstdc++ and libc++; with another standard library nodes are
// looked up in the ledger, and count 0 if they are not found.
//
// Not measured, because it is unknown what they own: function, any, promise and future, locale,
// streams, regex, and types with an allocator other than std::allocator: see uses_malloc.
//
// Each function walks the elements, so the container must not be changed meanwhile. It is as
// thread-safe as a const member function.
#ifndef HEAPLEDGER_CONTAINERS_HPP
#define HEAPLEDGER_CONTAINERS_HPP

#include "heapledger.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <stack>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>
#if __cplusplus >= 201703L
#include <optional>
#include <variant>
#endif

namespace heapledger {

// True if an allocator's blocks come from malloc: only then can their sizes be asked for.
// Specialise it for your own allocators that pass each call on to malloc or new:
// `template <class T> struct heapledger::uses_malloc<Counting<T>> : std::true_type {};`
template <class Allocator> struct uses_malloc : std::false_type {};
template <class T> struct uses_malloc<std::allocator<T>> : std::true_type {};

// The memory that a T owns. Specialise it for types that cannot be given a member:
//
//     template <> struct heapledger::owned<Foreign> {
//         static size_t size(const Foreign &value, heapledger::MallocSizeOf malloc_size_of) { … }
//     };
template <class T, class = void> struct owned;

// Returns the size of all that a value owns, without the value itself.
template <class T> std::size_t SizeOfExcludingThis(const T &value, MallocSizeOf malloc_size_of) {
    return owned<T>::size(value, malloc_size_of);
}

// Returns the size of the blocks of a container itself, without what its elements own.
template <class Container>
std::size_t ShallowSizeOfExcludingThis(const Container &container, MallocSizeOf malloc_size_of) {
    return owned<Container>::shallow(container, malloc_size_of);
}

// The same, with what each element owns, as returned by `each(element, malloc_size_of)`. Elements
// of maps are pairs.
template <class Container, class Each>
std::size_t SizeOfExcludingThis(const Container &container, MallocSizeOf malloc_size_of, Each each) {
    std::size_t size = ShallowSizeOfExcludingThis(container, malloc_size_of);
    for (const auto &element : owned<Container>::elements(container)) size += each(element, malloc_size_of);
    return size;
}

// Returns the size of an object made by `new`, with all that it owns; 0 for null. Uses
// SizeOfIncludingThis if the class has it.
template <class T> std::size_t SizeOfIncludingThis(const T *object, MallocSizeOf malloc_size_of);

// The set of visited addresses, for shared objects and graphs. Use one per measurement; its own
// memory is not recorded.
class visited {
  public:
    visited() : addresses_(nullptr) {}
    ~visited() {
        ignore own;
        delete addresses_;
    }
    visited(const visited &) = delete;
    visited &operator=(const visited &) = delete;

    // True if the address is visited for the first time; false for null.
    bool is_first(const void *address) {
        if (address == nullptr) return false;
        ignore own;
        if (addresses_ == nullptr) addresses_ = new std::unordered_set<const void *>;
        return addresses_->insert(address).second;
    }

  private:
    std::unordered_set<const void *> *addresses_;
};

// ---------------------------------------------------------------------------------- what owns what

namespace detail {

template <class...> struct make_void { typedef void type; };
template <class... T> using void_t = typename make_void<T...>::type;
template <class T> struct never : std::false_type {};

template <class T, class = void> struct has_excluding : std::false_type {};
template <class T>
struct has_excluding<T, void_t<decltype(std::declval<const T &>().SizeOfExcludingThis(MallocSizeOf()))>>
    : std::true_type {};

template <class T, class = void> struct has_excluding_visited : std::false_type {};
template <class T>
struct has_excluding_visited<T, void_t<decltype(std::declval<const T &>().SizeOfExcludingThis(
                                    MallocSizeOf(), std::declval<visited &>()))>> : std::true_type {};

template <class T, class = void> struct has_including : std::false_type {};
template <class T>
struct has_including<T, void_t<decltype(std::declval<const T &>().SizeOfIncludingThis(MallocSizeOf()))>>
    : std::true_type {};

template <class T> std::size_t by_member(const T &value, MallocSizeOf malloc_size_of, std::true_type) {
    return value.SizeOfExcludingThis(malloc_size_of);
}
// A type without a destructor owns nothing: numbers, plain structs, and pointers, which only refer
// to what others own.
template <class T> std::size_t by_member(const T &, MallocSizeOf, std::false_type) {
    static_assert(std::is_trivially_destructible<T>::value,
                  "Heapledger cannot tell what this type owns: give it a member `size_t SizeOfExcludingThis(heapledger::"
                  "MallocSizeOf) const`, specialise heapledger::owned, or pass a function that measures each element");
    return 0;
}

template <class T> std::size_t including(const T *object, MallocSizeOf malloc_size_of, std::true_type) {
    return object->SizeOfIncludingThis(malloc_size_of);
}
template <class T> std::size_t including(const T *object, MallocSizeOf malloc_size_of, std::false_type) {
    return malloc_size_of(block_of(object)) + heapledger::SizeOfExcludingThis(*object, malloc_size_of);
}

// A container with elements: it owns its own blocks, and what the elements own.
template <class Container, class Allocator> struct container {
    static_assert(uses_malloc<Allocator>::value,
                  "Heapledger cannot ask for the sizes of this allocator's blocks: see heapledger::uses_malloc");
    static const Container &elements(const Container &value) { return value; }
    static std::size_t size(const Container &value, MallocSizeOf malloc_size_of) {
        std::size_t size = owned<Container>::shallow(value, malloc_size_of);
        for (const auto &element : value) size += heapledger::SizeOfExcludingThis(element, malloc_size_of);
        return size;
    }
};

// The offset of an element in its node, in the standard libraries whose ABI fixes it; for others
// the ledger is asked.
#if defined(_LIBCPP_VERSION) && _LIBCPP_ABI_VERSION == 1
static const std::size_t list_head = 16, forward_list_head = 8, tree_head = 25, hash_head = 16;
#elif defined(__GLIBCXX__) && !_GLIBCXX_INLINE_VERSION
static const std::size_t list_head = 16, forward_list_head = 8, tree_head = 32, hash_head = 8;
#else
static const std::size_t list_head = 0, forward_list_head = 0, tree_head = 0, hash_head = 0;
#endif

template <class T> std::size_t node(const T &element, std::size_t head, MallocSizeOf malloc_size_of) {
    const char *const at = reinterpret_cast<const char *>(std::addressof(element));
    const std::size_t before = (head + alignof(T) - 1) / alignof(T) * alignof(T);
    return malloc_size_of(sizeof(void *) == 8 && head != 0 ? at - before : heapledger_start_of(at));
}

template <class Container> std::size_t nodes(const Container &value, std::size_t head, MallocSizeOf malloc_size_of) {
    std::size_t size = 0;
    for (const auto &element : value) size += node(element, head, malloc_size_of);
    return size;
}

#ifdef __GLIBCXX__
// Returns an iterator without the additions of -D_GLIBCXX_DEBUG.
#ifdef _GLIBCXX_DEBUG
template <class Iterator> auto plain(const Iterator &iterator) -> decltype(iterator.base()) { return iterator.base(); }
#else
template <class Iterator> Iterator plain(Iterator iterator) { return iterator; }
#endif
#endif

// Searches the object itself, word by word, for a private member: `matches` identifies it by public
// values.
template <class Container, class Matches> const void *find_word(const Container &value, std::size_t words, Matches matches) {
    std::uintptr_t held[sizeof(Container) / sizeof(std::uintptr_t)];
    std::memcpy(held, static_cast<const void *>(std::addressof(value)), sizeof held);
    for (std::size_t at = 0; at + words <= sizeof held / sizeof *held; at++)
        if (matches(held + at)) return reinterpret_cast<const void *>(held[at]);
    return nullptr;
}

// Returns the size of the array of a hash table: {array, number of buckets, first node, number of
// elements} in both standard libraries. If there is one bucket, it is in the table itself.
template <class Container> std::size_t buckets(const Container &value, MallocSizeOf malloc_size_of) {
    const std::size_t count = value.bucket_count(), size = value.size();
#ifdef _LIBCPP_VERSION
    if (count == 0) return 0;
#else
    if (count <= 1) return 0;
#endif
    return malloc_size_of(find_word(value, 4, [=](const std::uintptr_t *word) {
        return word[0] != 0 && word[1] == count && word[3] == size;
    }));
}

template <class Container, class Allocator> struct tree : container<Container, Allocator> {
    static std::size_t shallow(const Container &value, MallocSizeOf malloc_size_of) {
        return nodes(value, tree_head, malloc_size_of);
    }
};

template <class Container, class Allocator> struct hash_table : container<Container, Allocator> {
    static std::size_t shallow(const Container &value, MallocSizeOf malloc_size_of) {
        return buckets(value, malloc_size_of) + nodes(value, hash_head, malloc_size_of);
    }
};

// The underlying container of a stack or a queue is a protected member.
template <class Adapter> struct adapter {
    typedef typename Adapter::container_type inner;
    struct opened : Adapter {
        static const inner &of(const Adapter &value) { return value.*(&opened::c); }
    };
    static const inner &elements(const Adapter &value) { return opened::of(value); }
    static std::size_t shallow(const Adapter &value, MallocSizeOf malloc_size_of) {
        return owned<inner>::shallow(opened::of(value), malloc_size_of);
    }
    static std::size_t size(const Adapter &value, MallocSizeOf malloc_size_of) {
        return owned<inner>::size(opened::of(value), malloc_size_of);
    }
};

// Returns the sum over the parts of a value, each of which may own something.
inline std::size_t sum_of(MallocSizeOf) { return 0; }
template <class First, class... Rest>
std::size_t sum_of(MallocSizeOf malloc_size_of, const First &first, const Rest &...rest) {
    return heapledger::SizeOfExcludingThis(first, malloc_size_of) + sum_of(malloc_size_of, rest...);
}
template <std::size_t at, class Tuple, bool more> struct parts_from {
    static std::size_t size(const Tuple &value, MallocSizeOf malloc_size_of) {
        return heapledger::SizeOfExcludingThis(std::get<at>(value), malloc_size_of) +
               parts_from<at + 1, Tuple, (at + 1 < std::tuple_size<Tuple>::value)>::size(value, malloc_size_of);
    }
};
template <std::size_t at, class Tuple> struct parts_from<at, Tuple, false> {
    static std::size_t size(const Tuple &, MallocSizeOf) { return 0; }
};

} // namespace detail

template <class T> std::size_t SizeOfIncludingThis(const T *object, MallocSizeOf malloc_size_of) {
    return object == nullptr ? 0 : detail::including(object, malloc_size_of, detail::has_including<T>{});
}

template <class T, class> struct owned {
    static std::size_t size(const T &value, MallocSizeOf malloc_size_of) {
        return detail::by_member(value, malloc_size_of, detail::has_excluding<T>{});
    }
};

// --------------------------------------------------------------------------------------- sequences

template <class C, class Traits, class A> struct owned<std::basic_string<C, Traits, A>> {
    typedef std::basic_string<C, Traits, A> string;
    static_assert(uses_malloc<A>::value,
                  "Heapledger cannot ask for the sizes of this allocator's blocks: see heapledger::uses_malloc");
    static std::size_t shallow(const string &value, MallocSizeOf malloc_size_of) { return size(value, malloc_size_of); }
    static std::size_t size(const string &value, MallocSizeOf malloc_size_of) {
        const char *const data = reinterpret_cast<const char *>(value.data());
#if defined(__GLIBCXX__) && !_GLIBCXX_USE_CXX11_ABI
        // If strings share their text, each counts it: measure only the one that owns it.
        return value.capacity() == 0 ? 0 : malloc_size_of(data - 3 * sizeof(std::size_t));
#else
        // A short string is in the object.
        const char *const object = reinterpret_cast<const char *>(std::addressof(value));
        const std::uintptr_t into = reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(object);
        return into < sizeof value ? 0 : malloc_size_of(data);
#endif
    }
};

template <class T, class A> struct owned<std::vector<T, A>> : detail::container<std::vector<T, A>, A> {
    static std::size_t shallow(const std::vector<T, A> &value, MallocSizeOf malloc_size_of) {
        return malloc_size_of(value.data());
    }
};

template <class A> struct owned<std::vector<bool, A>> : detail::container<std::vector<bool, A>, A> {
    typedef std::vector<bool, A> vector;
    static std::size_t size(const vector &value, MallocSizeOf malloc_size_of) { return shallow(value, malloc_size_of); }
    static std::size_t shallow(const vector &value, MallocSizeOf malloc_size_of) {
#ifdef __GLIBCXX__
        return malloc_size_of(detail::plain(value.begin())._M_p);
#elif defined(_LIBCPP_VERSION)
        return malloc_size_of(detail::find_word(value, 1, [](const std::uintptr_t *) { return true; }));
#else
        return 0;
#endif
    }
};

// Chunks of elements, and a map of the chunks.
template <class T, class A> struct owned<std::deque<T, A>> : detail::container<std::deque<T, A>, A> {
    static std::size_t shallow(const std::deque<T, A> &value, MallocSizeOf malloc_size_of) {
        const T *const *chunk = nullptr, *const *end = nullptr;
#ifdef __GLIBCXX__
        const auto first = detail::plain(value.begin()), last = detail::plain(value.end());
        const void *const map = detail::find_word(value, 4, [&](const std::uintptr_t *word) {
            return word[2] == reinterpret_cast<std::uintptr_t>(first._M_cur) &&
                   word[3] == reinterpret_cast<std::uintptr_t>(first._M_first);
        });
        if (map != nullptr) chunk = first._M_node, end = last._M_node + 1;
#elif defined(_LIBCPP_VERSION)
        const void *const map = detail::find_word(value, 3, [&](const std::uintptr_t *word) {
            chunk = reinterpret_cast<const T *const *>(word[1]), end = reinterpret_cast<const T *const *>(word[2]);
            return true;
        });
#else
        const void *const map = nullptr;
#endif
        std::size_t size = malloc_size_of(map);
        for (; chunk != end; chunk++) size += malloc_size_of(*chunk);
        return size;
    }
};

template <class T, class A> struct owned<std::list<T, A>> : detail::container<std::list<T, A>, A> {
    static std::size_t shallow(const std::list<T, A> &value, MallocSizeOf malloc_size_of) {
        return detail::nodes(value, detail::list_head, malloc_size_of);
    }
};

template <class T, class A> struct owned<std::forward_list<T, A>> : detail::container<std::forward_list<T, A>, A> {
    static std::size_t shallow(const std::forward_list<T, A> &value, MallocSizeOf malloc_size_of) {
        return detail::nodes(value, detail::forward_list_head, malloc_size_of);
    }
};

template <class T, std::size_t count> struct owned<std::array<T, count>> {
    static const std::array<T, count> &elements(const std::array<T, count> &value) { return value; }
    static std::size_t shallow(const std::array<T, count> &, MallocSizeOf) { return 0; }
    static std::size_t size(const std::array<T, count> &value, MallocSizeOf malloc_size_of) {
        std::size_t size = 0;
        for (const T &element : value) size += SizeOfExcludingThis(element, malloc_size_of);
        return size;
    }
};

template <class T, class C> struct owned<std::stack<T, C>> : detail::adapter<std::stack<T, C>> {};
template <class T, class C> struct owned<std::queue<T, C>> : detail::adapter<std::queue<T, C>> {};
template <class T, class C, class L>
struct owned<std::priority_queue<T, C, L>> : detail::adapter<std::priority_queue<T, C, L>> {};

// ------------------------------------------------------------------------------------------- trees

template <class K, class L, class A> struct owned<std::set<K, L, A>> : detail::tree<std::set<K, L, A>, A> {};
template <class K, class L, class A> struct owned<std::multiset<K, L, A>> : detail::tree<std::multiset<K, L, A>, A> {};
template <class K, class V, class L, class A>
struct owned<std::map<K, V, L, A>> : detail::tree<std::map<K, V, L, A>, A> {};
template <class K, class V, class L, class A>
struct owned<std::multimap<K, V, L, A>> : detail::tree<std::multimap<K, V, L, A>, A> {};

// ------------------------------------------------------------------------------------- hash tables

template <class K, class H, class E, class A>
struct owned<std::unordered_set<K, H, E, A>> : detail::hash_table<std::unordered_set<K, H, E, A>, A> {};
template <class K, class H, class E, class A>
struct owned<std::unordered_multiset<K, H, E, A>> : detail::hash_table<std::unordered_multiset<K, H, E, A>, A> {};
template <class K, class V, class H, class E, class A>
struct owned<std::unordered_map<K, V, H, E, A>> : detail::hash_table<std::unordered_map<K, V, H, E, A>, A> {};
template <class K, class V, class H, class E, class A>
struct owned<std::unordered_multimap<K, V, H, E, A>> : detail::hash_table<std::unordered_multimap<K, V, H, E, A>, A> {};

// ------------------------------------------------------------------------------------ other values

template <class A, class B> struct owned<std::pair<A, B>> {
    static std::size_t size(const std::pair<A, B> &value, MallocSizeOf malloc_size_of) {
        return detail::sum_of(malloc_size_of, value.first, value.second);
    }
};

template <class... T> struct owned<std::tuple<T...>> {
    static std::size_t size(const std::tuple<T...> &value, MallocSizeOf malloc_size_of) {
        return detail::parts_from<0, std::tuple<T...>, (sizeof...(T) > 0)>::size(value, malloc_size_of);
    }
};

template <class T> struct owned<const T> : owned<T> {};

#if __cplusplus >= 201703L
template <class T> struct owned<std::optional<T>> {
    static std::size_t size(const std::optional<T> &value, MallocSizeOf malloc_size_of) {
        return value ? SizeOfExcludingThis(*value, malloc_size_of) : 0;
    }
};

template <class... T> struct owned<std::variant<T...>> {
    static std::size_t size(const std::variant<T...> &value, MallocSizeOf malloc_size_of) {
        if (value.valueless_by_exception()) return 0;
        return std::visit([&](const auto &held) { return SizeOfExcludingThis(held, malloc_size_of); }, value);
    }
};
#endif

// ---------------------------------------------------------------------------------------- pointers

// A unique_ptr owns the object, and what that owns.
template <class T> struct owned<std::unique_ptr<T>> {
    static std::size_t shallow(const std::unique_ptr<T> &value, MallocSizeOf malloc_size_of) {
        return malloc_size_of(block_of(value.get()));
    }
    static std::size_t size(const std::unique_ptr<T> &value, MallocSizeOf malloc_size_of) {
        return SizeOfIncludingThis(value.get(), malloc_size_of);
    }
};

// The number of elements is known if they have destructors: then all are measured.
template <class T> struct owned<std::unique_ptr<T[]>> {
    static std::size_t shallow(const std::unique_ptr<T[]> &value, MallocSizeOf malloc_size_of) {
        return malloc_size_of(block_of_array(value.get()));
    }
    static std::size_t size(const std::unique_ptr<T[]> &value, MallocSizeOf malloc_size_of) {
        return shallow(value, malloc_size_of) +
               elements_size(value.get(), malloc_size_of, std::is_trivially_destructible<T>{});
    }

  private:
    static std::size_t elements_size(const T *, MallocSizeOf, std::true_type) { return 0; }
    static std::size_t elements_size(const T *first, MallocSizeOf malloc_size_of, std::false_type) {
        std::size_t size = 0, count = 0;
        if (first != nullptr)
            std::memcpy(&count, reinterpret_cast<const char *>(first) - sizeof count, sizeof count);
        for (std::size_t at = 0; at < count; at++) size += SizeOfExcludingThis(first[at], malloc_size_of);
        return size;
    }
};

template <class T> struct owned<std::shared_ptr<T>> {
    static std::size_t size(const std::shared_ptr<T> &, MallocSizeOf) {
        static_assert(detail::never<T>::value, "who owns what is shared? Measure it where it belongs, by heapledger::SharedSizeOf "
                                               "with a heapledger::visited, or pass a function that measures each element");
        return 0;
    }
};

namespace detail {

template <class T> std::size_t with_visited(const T &value, MallocSizeOf malloc_size_of, visited &seen, std::true_type) {
    return value.SizeOfExcludingThis(malloc_size_of, seen);
}
template <class T> std::size_t with_visited(const T &value, MallocSizeOf malloc_size_of, visited &, std::false_type) {
    return heapledger::SizeOfExcludingThis(value, malloc_size_of);
}

} // namespace detail

// Returns the size of the object that a shared_ptr refers to, of all that it owns, and of its
// reference counts; 0 if `seen` has it already. Classes that have shared_ptrs to others pass the
// visited on, by `SizeOfExcludingThis(MallocSizeOf, visited &)`. For results of make_shared, and
// for shared_ptrs made from the result of `new`; not for a pointer into another object, nor for one
// with a deleter that does not free the object.
template <class T>
std::size_t SharedSizeOf(const std::shared_ptr<T> &shared, MallocSizeOf malloc_size_of, visited &seen) {
    std::uintptr_t held[2]; // The object, and its counts.
    static_assert(sizeof held == sizeof shared, "a shared_ptr of another kind");
    std::memcpy(held, static_cast<const void *>(std::addressof(shared)), sizeof held);
    const void *const counts = reinterpret_cast<const void *>(held[1]);
    if (shared == nullptr || !seen.is_first(counts)) return 0;
    std::size_t size = malloc_size_of(counts);
    // The object of make_shared is behind its counts, in the same block.
    if (held[0] - held[1] >= heapledger_usable_size(counts)) size += malloc_size_of(block_of(shared.get()));
    return size + detail::with_visited(*shared, malloc_size_of, seen, detail::has_excluding_visited<T>{});
}

} // namespace heapledger

#endif
