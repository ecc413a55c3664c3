// A bump arena that declares its blocks to Heapledger: each arena is a heap of its own, and its
// memory is not counted twice. Runs the same without Heapledger.
//
//     cc -g -I include examples/bump.c -o bump
//     heapledger record -- ./bump
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

#include "heapledger/heapledger.h"

static const heapledger_name frames = HEAPLEDGER_NAME("frames");

struct arena {
    char *start, *next, *end;
    heapledger_pool pool;
};

static int arena_open(struct arena *arena, size_t size) {
    char *memory = malloc(size);
    *arena = (struct arena){memory, memory, memory + size, HEAPLEDGER_POOL(&frames)};
    // From here on the arena's blocks are counted instead of its memory.
    heapledger_pool_back(&arena->pool, memory);
    return memory != NULL;
}

static void *arena_alloc(struct arena *arena, size_t size) {
    size_t whole = (size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    if (whole > (size_t)(arena->end - arena->next)) return NULL;
    void *block = arena->next;
    arena->next += whole;
    heapledger_pool_alloc(&arena->pool, block, size);
    return block;
}

static void arena_reset(struct arena *arena) {
    heapledger_pool_reset(&arena->pool);
    arena->next = arena->start;
}

static void arena_close(struct arena *arena) {
    heapledger_pool_close(&arena->pool);
    free(arena->start);
}

struct sprite {
    int x, y;
    char label[24];
};

static int draw(struct arena *arena, int frame) {
    HEAPLEDGER_SCOPE("draw");
    int drawn = 0;
    for (int number = 0; number < 100 + frame; number++) {
        struct sprite *sprite = arena_alloc(arena, sizeof *sprite);
        if (sprite == NULL) break;
        sprite->x = number;
        drawn++;
    }
    return drawn;
}

int main(void) {
    struct arena arena;
    if (!arena_open(&arena, 64 << 10)) return 1;
    int drawn = 0;
    for (int frame = 0; frame < 60; frame++) {
        arena_reset(&arena);
        drawn += draw(&arena, frame);
    }
    printf("%d sprites\n", drawn);
    arena_close(&arena);
    return 0;
}
