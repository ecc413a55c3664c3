// A program that holds its own ledger: totals, the largest sites, and the block of a pointer.
//
//     crates/process/capi/install ~/.local
//     cc -g examples/ledger.c -o ledger $(PKG_CONFIG_PATH=~/.local/lib/pkgconfig pkg-config --cflags --libs heapledger)
//     LD_LIBRARY_PATH=~/.local/lib ./ledger
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "heapledger/heapledger.h"

static void *load(size_t size) {
    HEAPLEDGER_SCOPE("load");
    return malloc(size);
}

static int show(const heapledger_site *site, void *data) {
    (void)data;
    printf("site      %" PRIu64 " bytes in %" PRIu64 " blocks, context \"%s\"\n", site->bytes_live, site->blocks_live,
           site->at.context);
    return 0;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (heapledger_start(NULL) != HEAPLEDGER_OK) {
        puts("no ledger here");
        return 1;
    }
    HEAPLEDGER_TASK("start");
    char *blocks[10];
    for (int number = 0; number < 10; number++) blocks[number] = load(1000);
    char *volatile other = malloc(50);
    for (int number = 0; number < 5; number++) free(blocks[number]);

    heapledger_totals totals;
    heapledger_get_totals(&totals);
    printf("live      %" PRIu64 " bytes in %" PRIu64 " blocks, peak %" PRIu64 " bytes\n", totals.bytes_live,
           totals.blocks_live, totals.bytes_live_max);
    heapledger_sites(3, show, NULL);
    heapledger_block block;
    if (heapledger_block_at(blocks[7] + 123, &block) == HEAPLEDGER_OK)
        printf("block     %" PRIu64 " bytes, 123 bytes into it: %s, context \"%s\"\n", block.bytes,
               block.address == (uint64_t)(uintptr_t)blocks[7] ? "yes" : "no", block.at.context);
    printf("no block  %s\n", heapledger_block_at(&block, &block) == HEAPLEDGER_NOTHING ? "on the stack" : "?");
    free(other);
    return 0;
}
