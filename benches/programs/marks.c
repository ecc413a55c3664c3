// A reporter that marks blocks: `marks BLOCKS`.
#include "heapledger/heapledger.h"
#include <stdlib.h>

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1;
    void *blocks[64];
    for (int block = 0; block < 64; block++) blocks[block] = malloc(100);
    for (long done = 0; done < count; done++) heapledger_mark(blocks[done % 64], "benchmark", 0);
    for (int block = 0; block < 64; block++) free(blocks[block]);
    return 0;
}
