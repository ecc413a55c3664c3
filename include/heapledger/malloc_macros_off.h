/* Ends what <heapledger/malloc_macros.h> began; including that again begins it anew. */
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
