// Heapledger, from C++11 on: memory dumps. The comments in dumps.h apply here, too.
//
//     class Cache final : public heapledger::dump_provider {
//         bool on_memory_dump(const heapledger::dump_args &args, heapledger::process_dump &dump) override {
//             const auto pages = dump.allocator("cache/pages").set_size(bytes()).set_object_count(count());
//             dump.suballocate(pages, HEAPLEDGER_MALLOC_OBJECTS);
//             return true;
//         }
//         …
//         heapledger::dump_registration registration_{"Cache", *this};
//     };
//
// examples/dumps.cpp is an allocator with a heap of its own.
#ifndef HEAPLEDGER_DUMPS_HPP
#define HEAPLEDGER_DUMPS_HPP

#include "dumps.h"
#include "heapledger.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace heapledger {

enum class dump_level : std::uint32_t {
    background = HEAPLEDGER_BACKGROUND,
    light = HEAPLEDGER_LIGHT,
    detailed = HEAPLEDGER_DETAILED,
};

enum class dump_kind : std::uint32_t {
    periodic = HEAPLEDGER_DUMP_PERIODIC,
    explicitly = HEAPLEDGER_DUMP_EXPLICIT,
    peak = HEAPLEDGER_DUMP_PEAK,
    summary = HEAPLEDGER_DUMP_SUMMARY,
};

// The level, the reason and the number of a dump.
struct dump_args {
    dump_level level_of_detail;
    dump_kind kind;
    std::uint64_t guid;
};

// The key by which blocks are grouped: the scopes in which a block was allocated, and its type.
class allocation_context {
  public:
    allocation_context() noexcept : raw_() {}
    explicit allocation_context(const heapledger_allocation_context &raw) noexcept : raw_(raw) {}

    // Returns the scopes that the calling thread is in (heapledger::context), with a type if it is
    // known: a static text.
    static allocation_context current(const char *type_name = nullptr) {
        return allocation_context{heapledger_allocation_context_now(type_name)};
    }

    const char *type_name() const noexcept { return raw_.type_name; }
    void set_type_name(const char *type_name) noexcept { raw_.type_name = type_name; }
    const heapledger_allocation_context &raw() const noexcept { return raw_; }

    friend bool operator==(const allocation_context &one, const allocation_context &other) noexcept {
        return one.raw_.scopes == other.raw_.scopes && one.raw_.type_name == other.raw_.type_name;
    }
    friend bool operator!=(const allocation_context &one, const allocation_context &other) noexcept { return !(one == other); }

  private:
    heapledger_allocation_context raw_;
};

} // namespace heapledger

template <> struct std::hash<heapledger::allocation_context> {
    std::size_t operator()(const heapledger::allocation_context &context) const noexcept {
        return std::hash<const void *>{}(context.type_name()) * 31 + context.raw().scopes;
    }
};

namespace heapledger {

// An allocator dump: a name, under which it is a part of others (`cache/pages` is part of `cache`),
// and its attributes.
class allocator_dump {
  public:
    allocator_dump(heapledger_dump *dump, const char *name) noexcept
        : dump_(dump), name_(name), guid_(heapledger_dump_allocator(dump, name)) {}

    const allocator_dump &set_size(std::uint64_t bytes) const {
        heapledger_dump_size(dump_, name_, bytes);
        return *this;
    }
    const allocator_dump &set_object_count(std::uint64_t count) const {
        heapledger_dump_object_count(dump_, name_, count);
        return *this;
    }
    const allocator_dump &set_scalar(const char *attribute, const char *units, std::uint64_t value) const {
        heapledger_dump_scalar(dump_, name_, attribute, units, value);
        return *this;
    }
    const allocator_dump &set_text(const char *attribute, const char *value) const {
        heapledger_dump_text(dump_, name_, attribute, value);
        return *this;
    }
    std::uint64_t guid() const noexcept { return guid_; }

  private:
    heapledger_dump *dump_;
    const char *name_; // the caller's, for as long as it uses this
    std::uint64_t guid_;
};

// The live blocks by context, from export_heap_dump.
class heap_dump {
  public:
    void add(const allocation_context &context, std::uint64_t blocks, std::uint64_t bytes) {
        const ignore untracked;
        entries_.push_back(heapledger_heap_entry{context.raw(), blocks, bytes});
    }
    const std::vector<heapledger_heap_entry> &entries() const noexcept { return entries_; }

  private:
    std::vector<heapledger_heap_entry> entries_;
};

// The number of blocks, and their bytes. Adding a size to it adds a block.
struct heap_amount {
    std::uint64_t blocks;
    std::uint64_t bytes;
    heap_amount(std::uint64_t blocks = 0, std::uint64_t bytes = 0) noexcept : blocks(blocks), bytes(bytes) {}
    heap_amount &operator+=(std::uint64_t size) noexcept {
        ++blocks;
        bytes += size;
        return *this;
    }
};

namespace detail {
inline heap_amount amount_of(const heap_amount &amount) noexcept { return amount; }
inline heap_amount amount_of(std::uint64_t bytes) noexcept { return heap_amount(0, bytes); }
} // namespace detail

// Makes a heap dump from a map of contexts to bytes, or to heap_amount, which has numbers of
// blocks, too.
template <class Map> heap_dump export_heap_dump(const Map &by_context) {
    heap_dump heap;
    for (const auto &group : by_context) {
        const heap_amount amount = detail::amount_of(group.second);
        heap.add(group.first, amount.blocks, amount.bytes);
    }
    return heap;
}

// The dump that a provider fills in.
class process_dump {
  public:
    explicit process_dump(heapledger_dump *raw) noexcept : raw_(raw) {}

    // Returns the allocator dump with this name. Names go from the general to the special, with `/`
    // between them. The name must stay valid as long as the result is used.
    allocator_dump allocator(const char *name) const noexcept { return allocator_dump{raw_, name}; }
    // Adds memory that several processes share, by a text that they agree on. Returns the number of
    // its dump.
    std::uint64_t shared(const char *id, std::uint64_t bytes) const { return heapledger_dump_shared(raw_, id, 0, bytes); }
    std::uint64_t weak_shared(const char *id, std::uint64_t bytes) const { return heapledger_dump_shared(raw_, id, 1, bytes); }
    void own(const allocator_dump &source, std::uint64_t target, std::int32_t importance = 0) const {
        heapledger_dump_own(raw_, source.guid(), target, importance);
    }
    void suballocate(const allocator_dump &source, const char *target) const {
        heapledger_dump_suballocate(raw_, source.guid(), target);
    }
    void add_heap_dump(const char *allocator, const heap_dump &heap) const {
        heapledger_dump_heap(raw_, allocator, heap.entries().data(), heap.entries().size());
    }
    heapledger_dump *raw() const noexcept { return raw_; }

  private:
    heapledger_dump *raw_;
};

// The cost of a provider's account of blocks, by purpose.
class dump_overhead {
  public:
    void add(const char *purpose, const heapledger_cost &cost) {
        const ignore untracked;
        costs_.emplace_back(purpose, cost);
    }
    // Writes it as `tracing/heap_profiler_ALLOCATOR`.
    void dump_into(const char *allocator, process_dump &dump) const {
        for (const auto &cost : costs_) heapledger_dump_cost(dump.raw(), allocator, cost.first, &cost.second);
    }

  private:
    std::vector<std::pair<const char *, heapledger_cost>> costs_;
};

// A block in a register.
struct allocation {
    const void *address;
    std::size_t size;
    allocation_context context;
};

// An account of an allocator's live blocks by address; any thread may use it at any time. It maps
// no memory before the first block.
class allocation_register {
  public:
    allocation_register() : raw_(heapledger_allocation_register_new()) {}
    ~allocation_register() { heapledger_allocation_register_delete(raw_); }
    allocation_register(const allocation_register &) = delete;
    allocation_register &operator=(const allocation_register &) = delete;

    void insert(const void *address, std::size_t size, const allocation_context &context) const {
        heapledger_allocation_insert(raw_, address, size, &context.raw());
    }
    bool remove(const void *address) const { return heapledger_allocation_remove(raw_, address) != 0; }
    void estimate_overhead(dump_overhead *overhead) const {
        overhead->add("AllocationRegister", heapledger_allocation_register_cost(raw_));
    }

    // An iterator over the blocks that are there when `begin` is called.
    class const_iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = allocation;
        using difference_type = std::ptrdiff_t;
        using pointer = const allocation *;
        using reference = const allocation &;

        const_iterator() noexcept : at_(0) {}
        explicit const_iterator(std::vector<allocation> blocks)
            : blocks_(std::make_shared<const std::vector<allocation>>(std::move(blocks))), at_(0) {}
        reference operator*() const { return (*blocks_)[at_]; }
        pointer operator->() const { return &(*blocks_)[at_]; }
        const_iterator &operator++() noexcept {
            ++at_;
            return *this;
        }
        // Compares only whether both are at the end.
        friend bool operator==(const const_iterator &one, const const_iterator &other) noexcept {
            return one.left() == other.left();
        }
        friend bool operator!=(const const_iterator &one, const const_iterator &other) noexcept { return !(one == other); }

      private:
        std::size_t left() const noexcept { return blocks_ == nullptr ? 0 : blocks_->size() - at_; }
        std::shared_ptr<const std::vector<allocation>> blocks_;
        std::size_t at_;
    };

    const_iterator begin() const {
        const ignore untracked;
        std::vector<heapledger_allocation> raw;
        std::size_t count = heapledger_allocation_blocks(raw_, nullptr, 0);
        // Other threads may add blocks meanwhile.
        while (count > raw.size()) {
            raw.resize(count + count / 8);
            count = heapledger_allocation_blocks(raw_, raw.data(), raw.size());
        }
        raw.resize(count);
        std::vector<allocation> blocks;
        blocks.reserve(count);
        for (const heapledger_allocation &block : raw)
            blocks.push_back(allocation{block.address, block.size, allocation_context{block.context}});
        return const_iterator{std::move(blocks)};
    }
    const_iterator end() const noexcept { return const_iterator{}; }

  private:
    heapledger_allocation_register *raw_;
};

// A part of the program that dumps ask, in a thread of Heapledger's, one call at a time. An
// exception counts as a failure.
class dump_provider {
  public:
    virtual ~dump_provider() {}
    // Adds the provider's part to a dump. If it returns false, its part is left out.
    virtual bool on_memory_dump(const dump_args &args, process_dump &dump) = 0;
    // Called when the provider should start (or stop) keeping account of its blocks, as early as
    // possible.
    virtual void on_heap_profiling_enabled(bool is_enabled) { (void)is_enabled; }
};

// Registers a provider from its construction to its destruction, which waits for the provider if it
// is being called. In the provider's own class it must be the last member.
class dump_registration {
  public:
#if HEAPLEDGER_IS_ON
    dump_registration(const char *name, dump_provider &provider) : registered_(nullptr) {
        heapledger_provider raw = {};
        raw.size = sizeof raw;
        raw.name = name;
        raw.dump = dump;
        raw.heap_profiling = heap_profiling;
        raw.data = &provider;
        registered_ = heapledger_register_provider(&raw);
    }
    ~dump_registration() { heapledger_unregister_provider(registered_); }

  private:
    static int dump(const heapledger_dump_args *raw, heapledger_dump *into, void *provider) {
        const dump_args args = {static_cast<dump_level>(raw->level), static_cast<dump_kind>(raw->kind), raw->guid};
        process_dump dump{into};
        bool is_done = false;
        guarded([&] { is_done = static_cast<dump_provider *>(provider)->on_memory_dump(args, dump); });
        return is_done ? 0 : 1;
    }
    static void heap_profiling(int is_enabled, void *provider) {
        guarded([&] { static_cast<dump_provider *>(provider)->on_heap_profiling_enabled(is_enabled != 0); });
    }
    template <class Call> static void guarded(const Call &call) {
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
        try {
            call();
        } catch (...) { // it is not done
        }
#else
        call();
#endif
    }

    heapledger_registered_provider *registered_;

  public:
#else
    dump_registration(const char *, dump_provider &) noexcept {}
#endif
    dump_registration(const dump_registration &) = delete;
    dump_registration &operator=(const dump_registration &) = delete;
};

} // namespace heapledger

#endif
