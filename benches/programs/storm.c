// A malloc storm: each of T threads makes N allocations of 64 to 8192 bytes from 256 different
// stacks of about ten frames, with a window of 1,000 live blocks. usage: storm THREADS ALLOCATIONS
// [EXTRA-FRAMES [STACKS [SCOPES [NAMES]]]]
// SCOPES is the number of nested scopes that each thread is in; the innermost takes NAMES different
// names in turn.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { WINDOW = 1000 };

static unsigned long allocations;
static int extra_frames;
static unsigned stacks = 256;

// Contexts, as in heapledger.h.
struct name { const char *text; uint32_t length, flags; const void *category; };
struct frame { const struct name *name, *value; };
struct stack { uint32_t depth, ignore; struct frame frames[128]; };
struct bridge { uint32_t size, version; void *functions[2]; struct stack *(*contexts)(struct stack *); };
extern const struct bridge heapledger_bridge_v1 __attribute__((weak));
static const struct name names[] = {{"one", 3, 0, 0}, {"two", 3, 0, 0}, {"three", 5, 0, 0}, {"four", 4, 0, 0}};
static unsigned scopes, innermost = 1;

static struct stack *enter_scopes(void) {
    static __thread struct stack own;
    const struct bridge *volatile bridge = &heapledger_bridge_v1;
    struct stack *stack = bridge && scopes ? bridge->contexts(&own) : &own;
    for (unsigned scope = 0; scope < scopes; scope++)
        stack->frames[scope].name = &names[scope % 4];
    stack->depth = scopes;
    return stack;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

__attribute__((noinline)) static void *leaf(size_t size) {
    char *block = malloc(size);
    block[0] = 1;
    return block;
}

// Eight levels, each with two call sites: 256 paths.
#define STEP(name, inner)                                            \
    __attribute__((noinline)) static void *name(unsigned path, size_t size) { \
        void *block;                                                 \
        if (path & 1) {                                              \
            block = inner(path >> 1, size);                          \
            __asm__ volatile("# odd" ::: "memory");                  \
        } else {                                                     \
            block = inner(path >> 1, size);                          \
            __asm__ volatile("# even" ::: "memory");                 \
        }                                                            \
        return block;                                                \
    }
#define level0_inner(path, size) leaf(size)
STEP(level0, level0_inner)
STEP(level1, level0)
STEP(level2, level1)
STEP(level3, level2)
STEP(level4, level3)
STEP(level5, level4)
STEP(level6, level5)
STEP(level7, level6)

__attribute__((noinline)) static void *descend(int frames, unsigned path, size_t size) {
    void *block = frames > 0 ? descend(frames - 1, path, size) : level7(path, size);
    __asm__ volatile("" ::: "memory");
    return block;
}

static void *run(void *argument) {
    uint64_t state = 88172645463325252ull + (uintptr_t)argument * 7919;
    void *window[WINDOW] = {0};
    struct stack *stack = enter_scopes();
    struct frame *inner = &stack->frames[scopes ? scopes - 1 : 0];
    for (unsigned long count = 0; count < allocations; count++) {
        uint64_t random = next_random(&state);
        void **slot = &window[random % WINDOW];
        free(*slot);
        __atomic_store_n(&inner->name, &names[count % innermost], __ATOMIC_RELAXED);
        *slot = descend(extra_frames, (random >> 20) % stacks, 64 + (random >> 32) % 8129);
    }
    for (int slot = 0; slot < WINDOW; slot++)
        free(window[slot]);
    return 0;
}

int main(int count, char **arguments) {
    unsigned long threads = count > 1 ? strtoul(arguments[1], 0, 10) : 1;
    allocations = count > 2 ? strtoul(arguments[2], 0, 10) : 1000000;
    extra_frames = count > 3 ? atoi(arguments[3]) : 0;
    stacks = count > 4 ? strtoul(arguments[4], 0, 10) : 256;
    scopes = count > 5 ? strtoul(arguments[5], 0, 10) : 0;
    innermost = count > 6 ? strtoul(arguments[6], 0, 10) : 1;
    pthread_t ids[256];
    for (unsigned long thread = 1; thread < threads && thread < 256; thread++)
        pthread_create(&ids[thread], 0, run, (void *)thread);
    run(0);
    for (unsigned long thread = 1; thread < threads && thread < 256; thread++)
        pthread_join(ids[thread], 0);
    return 0;
}
