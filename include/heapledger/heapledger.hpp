// Heapledger, from C++11 on: what heapledger.h offers, as classes.
//
//     static heapledger::category layout{"layout"};
//
//     void reflow() {
//         heapledger::context scope{"reflow", layout};  // to the end of the block
//         heapledger::pool lines{"lines"};
//         …
//     }
//
// Everything is as in heapledger.h; names are string literals, or other texts that stay for ever. Nothing throws or
// allocates.
#ifndef HEAPLEDGER_HPP
#define HEAPLEDGER_HPP

#include "heapledger.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace heapledger {

// Whether allocations are being recorded now.
inline bool is_observed() noexcept { return heapledger_is_observed() != 0; }

// Leaves a moment with a name in a recording.
inline void marker(const char *text) noexcept { heapledger_marker(text); }

// Scopes that are switched on and off together. Of static storage duration.
class category {
  public:
    explicit category(const char *name, bool enabled = true) noexcept
        : value_{{name, static_cast<std::uint32_t>(std::strlen(name)), 0, nullptr}, enabled, 0} {}
    category(const category &) = delete;
    category &operator=(const category &) = delete;

    // For scopes that are entered from now on, in all threads.
    void enable(bool enabled) noexcept { heapledger_enable(&value_, enabled); }
    bool is_enabled() const noexcept { return __atomic_load_n(&value_.enabled, __ATOMIC_RELAXED) != 0; }
    const heapledger_category *get() const noexcept { return &value_; }

  private:
    heapledger_category value_;
};

namespace detail {

// Names of scopes and pools, made of texts when they are first used: observers keep their addresses. A text is known by
// its address, so this is for literals; of more than 1,024, the rest share one name. About two kilobytes per hundred.
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
        // One that is being written right now is passed by: another is made, and shown as the same.
        if (place.is_written.load(std::memory_order_acquire) && place.text.load(std::memory_order_relaxed) == text &&
            place.category == category && place.flags == flags)
            return &place.name;
    }
    return &other;
}

} // namespace detail

// In a scope, from here to the end of the block.
class context {
  public:
    explicit context(const char *name) noexcept : context{name, 0, nullptr} {}
    // Where the category is switched on.
    context(const char *name, const category &in) noexcept : context{name, 0, in.get()} {}
    // Without a look-up: of a static name.
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

// In a scope that is a task, a piece of work that threads take up, from here to the end of the block.
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

// A heap of the program's own; see the pools of heapledger.h. Its blocks go with it.
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

} // namespace heapledger

#endif
