// The types of a program's memory: every `new` and `malloc` below the two headers is stamped.
//
//     crates/process/capi/install ~/.local
//     export PKG_CONFIG_PATH=~/.local/lib/pkgconfig LD_LIBRARY_PATH=~/.local/lib
//     c++ -g examples/stamps.cpp -o stamps $(pkg-config --cflags --libs heapledger)
//     ./stamps
#include <cstdlib>
#include <memory>
#include <vector>

#include "heapledger/heapledger.hpp"
// After all other headers.
#include "heapledger/malloc_macros.h"
#include "heapledger/new_macro.hpp"

struct Point { double x, y; };
struct Path { std::vector<Point> points; };
struct Header { char magic[8]; };

int main() {
    heapledger_start(nullptr);
    std::vector<std::unique_ptr<Path>> paths;
    for (int number = 0; number < 100; number++) {
        paths.emplace_back(new Path);
        paths.back()->points.resize(10);
    }
    Point *grid = new Point[1000];
    Header *header = (Header *)malloc(sizeof(Header) + 500);
    heapledger_list_usage(1);
    heapledger_stop();
    free(header);
    delete[] grid;
}
