// The program of keeps.sym, which Mozilla's dump_syms has made:
//     g++ -g -O1 -ffile-prefix-map=$PWD=/home/me/store -Wl,--build-id -o keeps keeps.cc
//     dump_syms --inlines keeps >keeps.sym
#include <cstdlib>

namespace store {
void *kept[100];

template <typename Value> struct List {
    __attribute__((always_inline)) void push(int at) {
        kept[at] = std::malloc(sizeof(Value) * 100);
    }
    __attribute__((noinline)) void fill(int count) {
        for (int at = 0; at < count; at++) {
            push(at);
        }
    }
};
} // namespace store

int main() {
    store::List<int> list;
    list.fill(100);
    return store::kept[99] == nullptr;
}
