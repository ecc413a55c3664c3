// Heapledger, from C++11 on: memory reporters. Part of heapledger.hpp; the comments in reports.h
// apply here, too.
//
//     class Cache {
//         …
//         mutable std::mutex lock_;
//         std::map<std::string, Body> entries_;
//         heapledger::reporter reporter_{"explicit/cache", [this](const heapledger::collector &collector) { report(collector); }};
//     };
//
//     HEAPLEDGER_DEFINE_MALLOC_SIZE_OF(cache_size_of, "explicit/cache")
//
//     void Cache::report(const heapledger::collector &collector) const {
//         std::lock_guard<std::mutex> guard{lock_};
//         collector.heap("entries", heapledger::SizeOfExcludingThis(entries_, cache_size_of), "Response bodies, by key.");
//         collector.count("/cache-entries", entries_.size(), "Response bodies that are cached.");
//     }
#ifndef HEAPLEDGER_REPORTS_HPP
#define HEAPLEDGER_REPORTS_HPP

#include "measure.hpp"

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>

namespace heapledger {

namespace detail {

template <class T> struct marked {
    const T &value;
    char begin;
};

} // namespace detail

// A value as one part of a path, whatever its text contains: see HEAPLEDGER_PART,
// HEAPLEDGER_VARIABLE, HEAPLEDGER_PRIVATE. Use them in the arguments of a path's constructor only:
// they refer to the value.
template <class T> detail::marked<T> part(const T &value) noexcept { return {value, '\004'}; }
template <class T> detail::marked<T> variable(const T &value) noexcept { return {value, '\001'}; }
template <class T> detail::marked<T> private_(const T &value) noexcept { return {value, '\002'}; }

// A path, or a description, made of pieces: texts, strings, integers, and the above. Texts longer
// than 1,000 bytes are cut. Allocates nothing.
//
//     collector.heap({"sites/", heapledger::private_(url), " (pid ", heapledger::variable(pid), ")"}, size, "…");
class path {
  public:
    path(const char *text) noexcept : length_(0) { // NOLINT: implicit
        add(text);
        text_[length_] = 0;
    }
    template <class... Pieces> path(const Pieces &...pieces) noexcept : length_(0) { // NOLINT: implicit
        add(pieces...);
        text_[length_] = 0;
    }
    const char *text() const noexcept { return text_; }

  private:
    void add() noexcept {}
    template <class First, class... Rest> void add(const First &first, const Rest &...rest) noexcept {
        put(first, std::is_integral<First>{});
        add(rest...);
    }
    template <class T> void put(const detail::marked<T> &marked, std::false_type) noexcept {
        append(&marked.begin, 1);
        put(marked.value, std::is_integral<T>{});
        append("\003", 1);
    }
    void put(const char *text, std::false_type) noexcept {
        if (text != nullptr) append(text, std::strlen(text));
    }
    void put(const char &character, std::true_type) noexcept { append(&character, 1); }
    template <class Integer> void put(const Integer &number, std::true_type) noexcept {
        char digits[24];
        const int length = std::is_signed<Integer>::value
                               ? std::snprintf(digits, sizeof digits, "%lld", static_cast<long long>(number))
                               : std::snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(number));
        append(digits, length > 0 ? static_cast<std::size_t>(length) : 0);
    }
    // A std::string, a std::string_view, or the like.
    template <class String> auto put(const String &text, std::false_type) noexcept -> decltype(text.data(), void()) {
        append(text.data(), text.size());
    }
    void append(const char *text, std::size_t length) noexcept {
        const std::size_t room = sizeof text_ - 1 - length_, taken = length < room ? length : room;
        std::memcpy(text_ + length_, text, taken);
        length_ += taken;
    }

    std::size_t length_;
    char text_[1001];
};

class pending;

// Takes the reports of a reporter during its call. Paths are below the reporter's own, which is "";
// a path that begins with `/` is not. If a path is reported twice, the amounts are added.
class collector {
  public:
    explicit collector(const heapledger_collector &raw) noexcept : raw_(raw) {}

    // Reports bytes in blocks of malloc.
    void heap(const path &path, std::size_t bytes, const char *description) const {
        report(path, HEAPLEDGER_HEAP, HEAPLEDGER_BYTES, static_cast<std::int64_t>(bytes), description);
    }
    // Reports bytes that the program has mapped itself.
    void non_heap(const path &path, std::size_t bytes, const char *description) const {
        report(path, HEAPLEDGER_NON_HEAP, HEAPLEDGER_BYTES, static_cast<std::int64_t>(bytes), description);
    }
    // Reports bytes of other kinds, or bytes that are counted elsewhere, too. This path, and those
    // of the following, must not be below explicit/.
    void bytes(const path &path, std::size_t bytes, const char *description) const {
        report(path, HEAPLEDGER_OTHER, HEAPLEDGER_BYTES, static_cast<std::int64_t>(bytes), description);
    }
    // Reports a number that rises and falls.
    void count(const path &path, std::size_t count, const char *description) const {
        report(path, HEAPLEDGER_OTHER, HEAPLEDGER_COUNT, static_cast<std::int64_t>(count), description);
    }
    // Reports a number of events, which never falls.
    void cumulative(const path &path, std::size_t count, const char *description) const {
        report(path, HEAPLEDGER_OTHER, HEAPLEDGER_CUMULATIVE, static_cast<std::int64_t>(count), description);
    }
    // Reports a percentage, rounded to hundredths; it may be above 100.
    void percentage(const path &path, double percent, const char *description) const {
        const double hundredths = percent * 100 + (percent < 0 ? -0.5 : 0.5);
        const bool is_one = hundredths > -9e18 && hundredths < 9e18;
        report(path, HEAPLEDGER_OTHER, HEAPLEDGER_PERCENTAGE, is_one ? static_cast<std::int64_t>(hundredths) : 0, description);
    }
    // Reports a measurement of any kind.
    void report(const path &path, int kind, int unit, std::int64_t amount, const char *description) const {
        heapledger_report(&raw_, path.text(), kind, unit, amount, description);
    }

    // Says that the reporter failed, with a reason. An exception that it throws is reported, too.
    void failed(const char *reason) const { heapledger_report_failed(&raw_, reason); }
    // True if private texts are left out; private_ does that by itself.
    bool is_anonymous() const noexcept { return heapledger_is_anonymous(&raw_) != 0; }
    // Announces that the reporter answers later, or continues to, in any thread: until all objects
    // that this returns are destroyed.
    pending later() const noexcept;

  private:
    heapledger_collector raw_;
};

// An answer that has not been completed.
class pending {
  public:
    explicit pending(const heapledger_collector &raw) noexcept : raw_(heapledger_report_later(&raw)), is_owner_(true) {}
    pending(pending &&other) noexcept : raw_(other.raw_), is_owner_(other.is_owner_) { other.is_owner_ = false; }
    pending(const pending &other) noexcept : raw_(heapledger_report_later(&other.raw_)), is_owner_(true) {}
    pending &operator=(const pending &) = delete;
    ~pending() {
        if (is_owner_) heapledger_report_done(&raw_);
    }
    collector operator*() const noexcept { return collector{raw_}; }

  private:
    heapledger_collector raw_;
    bool is_owner_;
};

inline pending collector::later() const noexcept { return pending{raw_}; }

// A reporter, registered from its construction to its destruction. It is static, for before main or
// the loading of a library, or a member of the class that it measures. It must then be the last
// member, so that it is destroyed before what it measures, and that must be freed by destructors of
// members, not in the body of the class's own. `report(collector)` is called in another thread,
// never twice at a time: it takes the locks that guard what it measures. The path must stay to the
// end of the process, as a literal does. The destructor waits for a call in progress, so it must
// not run with such a lock held.
//
//     static heapledger::reporter names{"explicit/names", [](const heapledger::collector &collector) { … }};
class reporter {
  public:
#if HEAPLEDGER_IS_ON
    template <class Report>
    reporter(const char *path, Report report)
        : callable_(new (std::nothrow) callable_of<Report>(report)),
          registered_(callable_ != nullptr ? heapledger_register(path, call, callable_) : nullptr) {}
    ~reporter() {
        heapledger_unregister(registered_);
        delete callable_;
    }
    reporter(const reporter &) = delete;
    reporter &operator=(const reporter &) = delete;

  private:
    struct callable {
        virtual ~callable() {}
        virtual void report(const collector &collector) = 0;
        // The memory is Heapledger's own, whatever the callable refers to.
        static void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
            const heapledger_scope untracked = heapledger_begin_ignoring();
            void *const memory = ::operator new(size, std::nothrow);
            heapledger_end_ignoring(untracked);
            return memory;
        }
        static void operator delete(void *memory) noexcept {
            const heapledger_scope untracked = heapledger_begin_ignoring();
            ::operator delete(memory);
            heapledger_end_ignoring(untracked);
        }
        static void operator delete(void *memory, const std::nothrow_t &) noexcept { ::operator delete(memory); }
#ifdef __cpp_aligned_new
        static void *operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
            const heapledger_scope untracked = heapledger_begin_ignoring();
            void *const memory = ::operator new(size, alignment, std::nothrow);
            heapledger_end_ignoring(untracked);
            return memory;
        }
        static void operator delete(void *memory, std::align_val_t alignment) noexcept { ::operator delete(memory, alignment); }
        static void operator delete(void *memory, std::align_val_t alignment, const std::nothrow_t &) noexcept {
            ::operator delete(memory, alignment);
        }
#endif
    };
    template <class Report> struct callable_of final : callable {
        explicit callable_of(const Report &report) : report_(report) {}
        void report(const collector &collector) override { report_(collector); }
        Report report_;
    };

    static void call(const heapledger_collector *raw, void *own) {
        const collector collector{*raw};
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
        try {
            static_cast<callable *>(own)->report(collector);
        } catch (const std::exception &error) {
            collector.failed(error.what());
        } catch (...) {
            collector.failed("it threw something that is no std::exception");
        }
#else
        static_cast<callable *>(own)->report(collector);
#endif
    }

    callable *const callable_;
    heapledger_reporter *const registered_;
#else
    template <class Report> reporter(const char *, const Report &) noexcept {}
    reporter(const reporter &) = delete;
    reporter &operator=(const reporter &) = delete;
#endif
};

} // namespace heapledger

#endif
