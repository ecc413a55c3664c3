// A long run: N allocations of 16 to 255 bytes from S stacks, of which L are live at any time.
// usage: long N L S
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

// Two call sites at each of 16 levels: up to 65,536 paths.
__attribute__((noinline)) static void *descend(int levels, unsigned path, size_t size) {
    void *block;
    if (levels == 0) {
        block = malloc(size);
    } else if (path & 1) {
        block = descend(levels - 1, path >> 1, size);
        __asm__ volatile("# odd" ::: "memory");
    } else {
        block = descend(levels - 1, path >> 1, size);
        __asm__ volatile("# even" ::: "memory");
    }
    __asm__ volatile("" ::: "memory");
    return block;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    unsigned long allocations = strtoul(argv[1], 0, 0), live = strtoul(argv[2], 0, 0), stacks = strtoul(argv[3], 0, 0);
    void **window = mmap(0, live * sizeof *window, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (window == MAP_FAILED) return 1;
    uint64_t state = 88172645463325252ull;
    for (unsigned long count = 0; count < allocations; count++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        void **slot = &window[count % live];
        free(*slot);
        *slot = descend(16, state % stacks, 16 + (state >> 32) % 240);
    }
    return 0;
}
