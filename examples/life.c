/* Conway's Game of Life on a torus: a source for a compiler to work on. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world {
    size_t width, height;
    uint8_t *cells, *next;
};

static struct world *world_new(size_t width, size_t height) {
    struct world *world = malloc(sizeof *world);
    if (!world)
        abort();
    world->width = width;
    world->height = height;
    world->cells = calloc(height, width);
    world->next = calloc(height, width);
    if (!world->cells || !world->next)
        abort();
    return world;
}

static void world_free(struct world *world) {
    free(world->cells);
    free(world->next);
    free(world);
}

static uint8_t cell(const struct world *world, size_t x, size_t y) {
    return world->cells[(y % world->height) * world->width + x % world->width];
}

static void world_step(struct world *world) {
    for (size_t y = 0; y < world->height; y++) {
        for (size_t x = 0; x < world->width; x++) {
            unsigned neighbours = 0;
            for (size_t dy = 0; dy < 3; dy++)
                for (size_t dx = 0; dx < 3; dx++)
                    if (dx != 1 || dy != 1)
                        neighbours += cell(world, x + world->width + dx - 1, y + world->height + dy - 1);
            world->next[y * world->width + x] = neighbours == 3 || (neighbours == 2 && cell(world, x, y));
        }
    }
    uint8_t *cells = world->cells;
    world->cells = world->next;
    world->next = cells;
}

int main(int count, char **arguments) {
    size_t generations = count > 1 ? strtoul(arguments[1], NULL, 10) : 100;
    struct world *world = world_new(64, 24);
    static const char glider[3][4] = {".#.", "..#", "###"};
    for (size_t y = 0; y < 3; y++)
        for (size_t x = 0; x < 3; x++)
            world->cells[y * world->width + x] = glider[y][x] == '#';
    while (generations-- > 0)
        world_step(world);
    for (size_t y = 0; y < world->height; y++) {
        for (size_t x = 0; x < world->width; x++)
            putchar(cell(world, x, y) ? '#' : '.');
        putchar('\n');
    }
    world_free(world);
    return 0;
}
