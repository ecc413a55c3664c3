// Memory that is not what it seems. Prints the bytes of each sort, then `end`, and waits until its stdin is closed:
// - `huge`: 64 MiB for which huge pages are asked, with a byte written to each 2 MiB, so that the rest is padding;
// - `reserved`: 1 GiB that may be written to, of which nothing was;
// - `guards`: 64 pages that may not be accessed, between pages that were written to;
// - `tables`: a byte in each 2 MiB of 2 GiB without huge pages, for each of which the kernel needs a page table.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(void) {
    const size_t huge = 64 << 20, piece = 2 << 20, reserved = 1 << 30, tables = 2UL << 30, guards = 64;
    char *memory = map(huge + piece), *rest = map(reserved), *pages = map(2 * guards * 4096), *wide = map(tables);
    if (memory == NULL || rest == NULL || pages == NULL || wide == NULL) return 1;
    memory += piece - (size_t)memory % piece;
    if (madvise(memory, huge, MADV_HUGEPAGE) != 0) perror("madvise");
    madvise(wide, tables, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < huge; at += piece) memory[at] = 1;
    for (size_t at = 0; at < tables; at += piece) wide[at] = 1;
    for (size_t page = 0; page < guards; page++) {
        pages[2 * page * 4096] = 1;
        mprotect(pages + (2 * page + 1) * 4096, 4096, PROT_NONE);
    }
    printf("huge %zu\nreserved %zu\nguards %zu\ntables %zu\nend\n", huge, reserved, guards * 4096, tables);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {}
    return 0;
}
