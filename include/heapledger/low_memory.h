/* Heapledger, from C: giving memory back, and what happens when the system refuses some.
 * docs/low-memory.md is the guide.
 *
 * The functions reach Heapledger's allocator, if the program runs with it, through a weak symbol.
 * Nothing has to be linked for this header: without the allocator they do what their comments say.
 * They may be called in any thread, but not in signal handlers. None sets errno.
 *
 * C99 or later, and C++; gcc or clang. */
#ifndef HEAPLEDGER_LOW_MEMORY_H
#define HEAPLEDGER_LOW_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Called in the thread that is refused memory, with the bytes that the program asked for. Frees
 * memory, and returns 0 if it could not. It may allocate; its own requests fail at once if there is
 * no memory. It must not wait for locks that the program holds while it allocates, and must return:
 * no exception and no longjmp may leave it. */
typedef int heapledger_low_memory_handler(size_t size);

/* The table of functions that the functions below call. */
typedef struct heapledger_low_memory {
    uint32_t size;
    uint32_t version;
    size_t (*minimize)(void);
    void (*set_stall)(uint32_t attempts_max, uint32_t delay_milliseconds);
    void (*set_handler)(heapledger_low_memory_handler *handler);
} heapledger_low_memory;

#define HEAPLEDGER_LOW_MEMORY_INLINE __extension__ static __inline__ __attribute__((always_inline, unused))

#if defined(__x86_64__) && defined(__LP64__) && defined(__ELF__)
__asm__(".weak heapledger_low_memory_v1");
HEAPLEDGER_LOW_MEMORY_INLINE const heapledger_low_memory *heapledger_find_low_memory(void) {
    const heapledger_low_memory *table;
    __asm__("movq heapledger_low_memory_v1@GOTPCREL(%%rip), %0" : "=r"(table));
    return table != NULL && table->size >= sizeof(heapledger_low_memory) ? table : NULL;
}
#else
HEAPLEDGER_LOW_MEMORY_INLINE const heapledger_low_memory *heapledger_find_low_memory(void) { return NULL; }
#endif

/* Returns all memory to the system that the allocator can return now, and the number of bytes. With
 * glibc's allocator it calls malloc_trim(0), and returns 0; with others it does nothing. */
HEAPLEDGER_LOW_MEMORY_INLINE size_t heapledger_minimize(void) {
    const heapledger_low_memory *table = heapledger_find_low_memory();
    if (table != NULL) return table->minimize();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return 0;
}

/* Sets how the process waits for memory that the system refuses, if the limit in question can
 * change: so many attempts, each after so many milliseconds. The default is 10 and 50; a child
 * process, whose end hurts less, may want 5. With 0 attempts it does not wait. Returns 0 without
 * Heapledger's allocator, where nothing waits. */
HEAPLEDGER_LOW_MEMORY_INLINE int heapledger_set_stall(uint32_t attempts_max, uint32_t delay_milliseconds) {
    const heapledger_low_memory *table = heapledger_find_low_memory();
    if (table != NULL) table->set_stall(attempts_max, delay_milliseconds);
    return table != NULL;
}

/* Sets the function that is called when the system has refused memory, before the process waits;
 * null for none. Returns 0 without Heapledger's allocator, which alone calls it. */
HEAPLEDGER_LOW_MEMORY_INLINE int heapledger_set_low_memory_handler(heapledger_low_memory_handler *handler) {
    const heapledger_low_memory *table = heapledger_find_low_memory();
    if (table != NULL) table->set_handler(handler);
    return table != NULL;
}

#ifdef __cplusplus
}
#endif
#endif
