// Heapledger, from C++11 on: the functions of heapledger.h, as classes.
//
//     static heapledger::category layout{"layout"};
//
//     void reflow() {
//         heapledger::context scope{"reflow", layout};  // to the end of the block
//         heapledger::pool lines{"lines"};
//         Line *line = HEAPLEDGER_NEW(Line, 80);         // a block that is known to be a Line
//         …
//     }
//
// Everything is as in heapledger.h; names are string literals, or other texts that stay to the end
// of the process. Nothing throws or allocates.
#ifndef HEAPLEDGER_HPP
#define HEAPLEDGER_HPP

#include "heapledger.h"
#include "reports.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace heapledger {

// True if allocations are being recorded now.
inline bool is_observed() noexcept { return heapledger_is_observed() != 0; }

// Records a named moment in a recording.
inline void marker(const char *text) noexcept { heapledger_marker(text); }

// Scopes that are switched on and off together. Must have static storage duration.
class category {
  public:
    explicit category(const char *name, bool enabled = true) noexcept
        : value_{{name, static_cast<std::uint32_t>(name == nullptr ? 0 : std::strlen(name)), 0, nullptr}, enabled, 0} {}
    category(const category &) = delete;
    category &operator=(const category &) = delete;

    // Switches the category on or off, for scopes that are entered from now on, in all threads.
    void enable(bool enabled) noexcept { heapledger_enable(&value_, enabled); }
    bool is_enabled() const noexcept { return __atomic_load_n(&value_.enabled, __ATOMIC_RELAXED) != 0; }
    const heapledger_category *get() const noexcept { return &value_; }

  private:
    heapledger_category value_;
};

namespace detail {

// Names of scopes and pools, made from texts at their first use: observers keep their addresses. A
// text is identified by its address, so this is for literals; after 1,024 texts, the rest share one
// name. Takes about two kilobytes per hundred.
struct name_place {
    std::atomic<const char *> text;
    const heapledger_category *category;
    std::uint32_t flags;
    std::atomic<bool> is_written;
    heapledger_name name;
};

inline const heapledger_name *name(const char *text, std::uint32_t flags, const heapledger_category *category) noexcept {
    static const std::size_t places_max = 1024, tried_max = 16;
    static name_place places[places_max];
    static const heapledger_name other = HEAPLEDGER_NAME("(other)");
    if (text == nullptr) return nullptr;
    std::size_t at = (reinterpret_cast<std::uintptr_t>(text) ^ reinterpret_cast<std::uintptr_t>(category)) * 0x9e3779b1u;
    for (std::size_t tried = 0; tried < tried_max; tried++) {
        name_place &place = places[((at >> 8) + tried) % places_max];
        const char *taken = place.text.load(std::memory_order_acquire);
        if (taken == nullptr && place.text.compare_exchange_strong(taken, text, std::memory_order_acq_rel)) {
            place.category = category;
            place.flags = flags;
            place.name = heapledger_name{text, static_cast<std::uint32_t>(std::strlen(text)), flags, category};
            place.is_written.store(true, std::memory_order_release);
        }
        // An entry that is being written right now is skipped: another one is made, and shown as
        // the same.
        if (place.is_written.load(std::memory_order_acquire) && place.text.load(std::memory_order_relaxed) == text &&
            place.category == category && place.flags == flags)
            return &place.name;
    }
    return &other;
}

} // namespace detail

// A scope, from here to the end of the block; with a null name there is no scope.
class context {
  public:
    explicit context(const char *name) noexcept : context{name, 0, nullptr} {}
    // Enters the scope if the category is switched on.
    context(const char *name, const category &in) noexcept : context{name, 0, in.get()} {}
    // Takes a static name, and saves the look-up.
    explicit context(const heapledger_name &name, const heapledger_name *value = nullptr) noexcept
        : scope_(heapledger_enter(&name, value)) {}
    ~context() { heapledger_leave(scope_); }
    context(const context &) = delete;
    context &operator=(const context &) = delete;

  protected:
    context(const char *name, std::uint32_t flags, const heapledger_category *category) noexcept : scope_{nullptr, 0} {
        if (heapledger_find_bridge() != nullptr) scope_ = heapledger_enter(detail::name(name, flags, category), nullptr);
    }

  private:
    heapledger_scope scope_;
};

// A scope that is a task, a piece of work that threads take up, from here to the end of the block.
class task : public context {
  public:
    explicit task(const char *name) noexcept : context{name, HEAPLEDGER_TASK_FLAG, nullptr} {}
};

// From here to the end of the block, allocations of this thread are not recorded.
class ignore {
  public:
    ignore() noexcept : scope_(heapledger_begin_ignoring()) {}
    ~ignore() { heapledger_end_ignoring(scope_); }
    ignore(const ignore &) = delete;
    ignore &operator=(const ignore &) = delete;

  private:
    heapledger_scope scope_;
};

// A heap of the program's own; see the pools of heapledger.h. Its blocks are taken back when it is
// destroyed.
class pool {
  public:
    explicit pool(const char *name) noexcept : text_{name}, pool_{nullptr, 0, 0} {}
    ~pool() { heapledger_pool_close(&pool_); }
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;

    __attribute__((always_inline)) inline void alloc(const void *block, std::size_t size) noexcept {
        if (heapledger_find_bridge() == nullptr) return;
        if (__atomic_load_n(&pool_.name, __ATOMIC_RELAXED) == nullptr)
            __atomic_store_n(&pool_.name, detail::name(text_, 0, nullptr), __ATOMIC_RELAXED);
        heapledger_pool_alloc(&pool_, block, size);
    }
    void free(const void *block) noexcept { heapledger_pool_free(&pool_, block); }
    void reset() noexcept { heapledger_pool_reset(&pool_); }
    void back(const void *block) noexcept { heapledger_pool_back(&pool_, block); }

  private:
    const char *text_;
    heapledger_pool pool_;
};

// ------------------------------------------------------------------------------------------ stamps

// HEAPLEDGER_NEW(T, arguments…) is `new T(arguments…)`, stamped with its type, file and line. It
// takes up to 15 arguments; a type with a comma in it needs an alias.
//
// HEAPLEDGER_STAMPED(pointer) returns the pointer, plain or smart (with `get()`), and stamps the
// block that it points into with its static type. HEAPLEDGER_STAMP(pointer, "T") names the type
// itself.
//
// <heapledger/new_macro.hpp> does this for every `new`, <heapledger/malloc_macros.h> for the malloc
// family.
//
// The type name is the compiler's own text, without run-time type information: -fno-rtti works.

#if __cplusplus >= 202002L
#define HEAPLEDGER_CONSTEXPR constexpr
#define HEAPLEDGER_IS_CONSTANT __builtin_is_constant_evaluated()
#else
#define HEAPLEDGER_CONSTEXPR
#define HEAPLEDGER_IS_CONSTANT false
#endif

namespace detail {

struct text {
    const char *start;
    std::size_t length;
};

// Takes T from "… [with HeapledgerType = T]" of gcc, or "… [HeapledgerType = T]" of clang.
template <class HeapledgerType> text type_name() noexcept {
    const char *const whole = __PRETTY_FUNCTION__;
    const char *const name = std::strstr(whole, "HeapledgerType = ");
    if (name == nullptr) return text{HEAPLEDGER_UNKNOWN_TYPE, sizeof HEAPLEDGER_UNKNOWN_TYPE - 1};
    const char *const start = name + sizeof "HeapledgerType = " - 1;
    return text{start, std::strlen(start) - 1};
}

// Places of stamps, made at their first use: observers keep their addresses. After 4,096 places,
// and for those whose slots are taken by too many others, the rest share one place.
struct place_slot {
    std::atomic<std::uint32_t> state; // 0: free, 1: being written, 2: written
    heapledger_place place;
};

inline const heapledger_place *place(const char *file, std::uint32_t line, const char *label) noexcept {
    static const std::size_t slots_max = 4096, tried_max = 32;
    static place_slot slots[slots_max];
    static const heapledger_place other = {"(other)", 7, 0, nullptr, 0};
    const std::size_t key = reinterpret_cast<std::uintptr_t>(file) + line * std::size_t{0x9e3779b1u} +
                            reinterpret_cast<std::uintptr_t>(label) * 31;
    const std::size_t at = key * std::size_t{0x9e3779b97f4a7c15u} >> 40;
    for (std::size_t tried = 0; tried < tried_max; tried++) {
        place_slot &slot = slots[(at + tried) % slots_max];
        std::uint32_t state = slot.state.load(std::memory_order_acquire);
        if (state == 0 && slot.state.compare_exchange_strong(state, 1, std::memory_order_acq_rel)) {
            slot.place = heapledger_place{file, static_cast<std::uint32_t>(std::strlen(file)), line, label,
                                          label == nullptr ? 0 : static_cast<std::uint32_t>(std::strlen(label))};
            slot.state.store(2, std::memory_order_release);
            return &slot.place;
        }
        // An entry that is being written right now is skipped: another one is made, and shown as
        // the same.
        if (state == 2 && slot.place.file == file && slot.place.line == line && slot.place.label == label)
            return &slot.place;
    }
    return &other;
}

inline void stamp(const volatile void *block, text type, const char *file, std::uint32_t line,
                  const char *label) noexcept {
    heapledger_stamp_text(const_cast<const void *>(block), type.start, type.length, place(file, line, label));
}

// The type name of a block, from the static type of a pointer to it.
template <class T> struct named {
    static text name() noexcept { return type_name<T>(); }
};
template <> struct named<void> {
    static text name() noexcept { return text{HEAPLEDGER_UNKNOWN_TYPE, sizeof HEAPLEDGER_UNKNOWN_TYPE - 1}; }
};

template <class T>
__attribute__((noinline, cold)) void stamp_as(T *block, const char *file, std::uint32_t line,
                                              const char *label) noexcept {
    if (block != nullptr) stamp(block, named<T>::name(), file, line, label);
}

} // namespace detail

// A place in the source: `at{__FILE__, __LINE__} * pointer` stamps the block that it points to, and
// is the pointer.
class at {
  public:
    constexpr at(const char *file, std::uint32_t line, const char *label = nullptr) noexcept
        : file_(file), line_(line), label_(label) {}

    // The same for `*new T`: returns the object.
    struct dereferenced {
        const char *file;
        std::uint32_t line;
    };
    constexpr dereferenced operator*() const noexcept { return dereferenced{file_, line_}; }

    template <class T> __attribute__((always_inline)) inline HEAPLEDGER_CONSTEXPR T *stamped(T *block) const noexcept {
        if (!HEAPLEDGER_IS_CONSTANT && __builtin_expect(heapledger_find_bridge() != nullptr, 0))
            detail::stamp_as(block, file_, line_, label_);
        return block;
    }
    template <class Pointer> __attribute__((always_inline)) inline Pointer &&stamped_within(Pointer &&smart) const {
        stamped(smart.get());
        return static_cast<Pointer &&>(smart);
    }
    template <class T> inline T *stamped_within(T *block) const noexcept { return stamped(block); }

    template <class T> inline T *stamped_as(T *block, const char *type) const noexcept {
        if (__builtin_expect(heapledger_find_bridge() != nullptr, 0) && block != nullptr)
            detail::stamp(block, detail::text{type, std::strlen(type)}, file_, line_, label_);
        return block;
    }

  private:
    const char *file_;
    std::uint32_t line_;
    const char *label_;
};

template <class T> __attribute__((always_inline)) inline HEAPLEDGER_CONSTEXPR T *operator*(at here, T *block) noexcept {
    return here.stamped(block);
}

template <class T>
__attribute__((always_inline)) inline HEAPLEDGER_CONSTEXPR T &operator*(at::dereferenced here, T *block) noexcept {
    return *at{here.file, here.line}.stamped(block);
}

// For a macro within a macro: the inner place is used.
constexpr at operator*(at, at inner) noexcept { return inner; }

} // namespace heapledger

#define HEAPLEDGER_AT_ ::heapledger::at(__FILE__, __LINE__)
#if HEAPLEDGER_IS_ON
#define HEAPLEDGER_STAMPED(pointer) (HEAPLEDGER_AT_.stamped_within(pointer))
#define HEAPLEDGER_STAMP(pointer, literal) (HEAPLEDGER_AT_.stamped_as((pointer), "" literal ""))
#define HEAPLEDGER_NEW_ALONE_(T) (HEAPLEDGER_AT_ * new T())
#define HEAPLEDGER_NEW_WITH_(T, ...) (HEAPLEDGER_AT_ * new T(__VA_ARGS__))
#else
#define HEAPLEDGER_STAMPED(pointer) (pointer)
#define HEAPLEDGER_STAMP(pointer, literal) (pointer)
#define HEAPLEDGER_NEW_ALONE_(T) (new T())
#define HEAPLEDGER_NEW_WITH_(T, ...) (new T(__VA_ARGS__))
#endif
#define HEAPLEDGER_COUNT_(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, which, ...) which
#define HEAPLEDGER_NEW_WHICH_(...)                                                                                    \
    HEAPLEDGER_COUNT_(__VA_ARGS__, WITH_, WITH_, WITH_, WITH_, WITH_, WITH_, WITH_, WITH_, WITH_, WITH_, WITH_,       \
                      WITH_, WITH_, WITH_, WITH_, ALONE_, none)
#define HEAPLEDGER_NEW(...)                                                                                           \
    HEAPLEDGER_PASTE(HEAPLEDGER_NEW_, HEAPLEDGER_NEW_WHICH_(__VA_ARGS__))(__VA_ARGS__)

#endif
