// Heap profiling for an allocator of the program's own: a provider of memory dumps that keeps
// account of its blocks, and groups them by context and type for each dump. `dumps [TRACE]` writes
// a trace for Chrome's about:tracing, and prints its expected contents. With
// HEAPLEDGER_HEAP_PROFILING=1 in the environment the trace has the heap of malloc, too.
//
//     c++ -g examples/dumps.cpp -o dumps $(pkg-config --cflags --libs heapledger)
#include "heapledger/dumps.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

class FooDumpProvider final : public heapledger::dump_provider {
  public:
    static FooDumpProvider *GetInstance() {
        static FooDumpProvider instance;
        return &instance;
    }

    void InsertAllocation(void *address, size_t size, const char *type_name) {
        heapledger::allocation_context context = heapledger::allocation_context::current(type_name);
        std::lock_guard<std::mutex> lock(allocation_register_lock_);
        if (allocation_register_) allocation_register_->insert(address, size, context);
    }

    void RemoveAllocation(void *address) {
        std::lock_guard<std::mutex> lock(allocation_register_lock_);
        if (allocation_register_) allocation_register_->remove(address);
    }

    // Called as early as possible.
    void on_heap_profiling_enabled(bool enabled) override {
        std::lock_guard<std::mutex> lock(allocation_register_lock_);
        // From now on, InsertAllocation and RemoveAllocation are called for every block.
        allocation_register_.reset(enabled ? new heapledger::allocation_register() : nullptr);
    }

    bool on_memory_dump(const heapledger::dump_args &args, heapledger::process_dump &pmd) override {
        // Do regular dumping here.
        pmd.allocator("foo_allocator").set_size(foo_bytes);

        // Dump the heap only for detailed dumps.
        if (args.level_of_detail == heapledger::dump_level::detailed) {
            heapledger::dump_overhead overhead;
            std::unordered_map<heapledger::allocation_context, size_t> bytes_by_context;

            {
                std::lock_guard<std::mutex> lock(allocation_register_lock_);
                if (allocation_register_) {
                    // Group allocations in the register into |bytes_by_context|, but do no
                    // additional processing inside the lock.
                    for (const auto &alloc_size : *allocation_register_)
                        bytes_by_context[alloc_size.context] += alloc_size.size;

                    allocation_register_->estimate_overhead(&overhead);
                }
            }

            if (!bytes_by_context.empty()) {
                heapledger::heap_dump heap_dump = heapledger::export_heap_dump(bytes_by_context);
                pmd.add_heap_dump("foo_allocator", heap_dump);
                overhead.dump_into("foo_allocator", pmd);
            }
        }

        return true;
    }

    size_t foo_bytes = 0;

  private:
    // A pointer, made when heap profiling is enabled.
    std::unique_ptr<heapledger::allocation_register> allocation_register_;
    std::mutex allocation_register_lock_;
};

// An allocator that hands out parts of one piece of memory, and never reuses them.
static unsigned char memory[1 << 16];
static size_t used;

static void *foo_alloc(size_t size, const char *type_name) {
    void *block = memory + used;
    used += (size + 15) / 16 * 16;
    FooDumpProvider::GetInstance()->foo_bytes = used;
    FooDumpProvider::GetInstance()->InsertAllocation(block, size, type_name);
    return block;
}

static std::vector<void *> render(int widgets) {
    heapledger::context render{"render"};
    std::vector<void *> kept;
    for (int widget = 0; widget < widgets; widget++) {
        if (widget % 4 == 0) {
            heapledger::context layout{"layout"};
            kept.push_back(foo_alloc(128, "Box"));
        } else {
            heapledger::context paint{"paint"};
            kept.push_back(foo_alloc(24, "Glyph"));
        }
    }
    return kept;
}

int main(int count, char **arguments) {
    const char *const file = count > 1 ? arguments[1] : "foo.trace.json";
    // As early as possible: earlier allocations are in no heap.
    heapledger_set_heap_profiling(1);
    heapledger::dump_registration registration("Foo", *FooDumpProvider::GetInstance());

    // Blocks from before the trace are in its dumps, too.
    const std::vector<void *> kept = render(100);
    heapledger_trace_options options = {};
    options.size = sizeof options;
    options.flags = HEAPLEDGER_TRACE_ON_DEMAND;
    int answer = heapledger_trace_start(file, &options);
    if (answer == HEAPLEDGER_ELSEWHERE) {
        std::puts("libheapledger is not in the process: there are no dumps");
        return 0;
    }
    if (answer == HEAPLEDGER_OK) answer = heapledger_trace_dump(HEAPLEDGER_LIGHT);
    if (answer == HEAPLEDGER_OK) answer = heapledger_trace_dump(HEAPLEDGER_DETAILED);
    for (size_t at = 0; at < kept.size(); at += 2) FooDumpProvider::GetInstance()->RemoveAllocation(kept[at]);
    if (answer == HEAPLEDGER_OK) answer = heapledger_trace_dump(HEAPLEDGER_DETAILED);
    if (answer == HEAPLEDGER_OK) answer = heapledger_trace_finish();
    if (answer != HEAPLEDGER_OK) {
        std::fprintf(stderr, "%s could not be written: %d\n", file, answer);
        return 1;
    }
    // 25 boxes and 75 glyphs; after that every second block is live.
    std::printf("{\"dumps\": 3, \"foo_allocator\": [%d, %d]}\n", 25 * 128 + 75 * 24, 50 * 24);
    return 0;
}
