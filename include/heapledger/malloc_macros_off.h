/* Undoes <heapledger/malloc_macros.h>; including that again turns it on again. */
#undef malloc
#undef calloc
#undef realloc
#undef reallocarray
#undef aligned_alloc
#undef memalign
#undef posix_memalign
#undef valloc
#undef strdup
#undef strndup
