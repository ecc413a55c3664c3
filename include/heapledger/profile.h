/* Heapledger, from C99 and C++98 on: the profile of a program that links libheapledger, always on.
 * Belongs to heapledger.h:
 *
 *     #include "heapledger/profile.h"
 *
 *     char url[128];
 *     heapledger_profile_start(0);                            // one sample point in 512 KiB
 *     heapledger_profile_serve(6060, url, sizeof url);        // go tool pprof http://127.0.0.1:6060/debug/pprof/heap
 *     heapledger_profile_save("server.heap.pb.gz");           // now, into a file
 *
 * The profile estimates how much each function holds and has allocated, from a sample that costs
 * next to nothing. */
#ifndef HEAPLEDGER_PROFILE_H
#define HEAPLEDGER_PROFILE_H

#include "heapledger.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The table of functions that the functions below call. */
typedef struct heapledger_profile {
    uint32_t size;
    uint32_t version;
    int (*start)(uint64_t sample_every);
    int (*stop)(void);
    int (*set_rate)(uint64_t sample_every);
    int (*save)(const char *file);
    int (*serve)(uint32_t port, char *url, size_t length);
} heapledger_profile;

#if HEAPLEDGER_IS_ON
__asm__(".weak heapledger_profile_v1");
HEAPLEDGER_INLINE const heapledger_profile *heapledger_find_profile(void) {
    const heapledger_profile *profile;
    __asm__("movq heapledger_profile_v1@GOTPCREL(%%rip), %0" : "=r"(profile));
    return profile != NULL && profile->size >= sizeof(heapledger_profile) ? profile : NULL;
}
#else
HEAPLEDGER_INLINE const heapledger_profile *heapledger_find_profile(void) { return NULL; }
#endif

/* The functions below return HEAPLEDGER_OK; HEAPLEDGER_ELSEWHERE if no libheapledger with the
 * profile is in the process (crates/process/capi/install --profile), and under `heapledger record`;
 * HEAPLEDGER_FAILED if something cannot be done or the file is null. A null `url` is
 * HEAPLEDGER_FAILED, too, although the server has been started. They may be called in any thread at
 * any time, but not in signal handlers. */

/* Begins to sample, at any time: one sample point in `sample_every` allocated bytes, on average; 0
 * means 512 KiB. The number is rounded to a power of two. Blocks that are live already are not in
 * the profile. Blocks and sites take at most 64 MiB. Returns HEAPLEDGER_STATE if the ledger runs
 * already. */
HEAPLEDGER_INLINE int heapledger_profile_start(uint64_t sample_every) {
    const heapledger_profile *profile = heapledger_find_profile();
    return profile != NULL ? profile->start(sample_every) : HEAPLEDGER_ELSEWHERE;
}

/* Ends sampling. The profile until then can still be saved. Returns HEAPLEDGER_STATE if sampling is
 * not on. */
HEAPLEDGER_INLINE int heapledger_profile_stop(void) {
    const heapledger_profile *profile = heapledger_find_profile();
    return profile != NULL ? profile->stop() : HEAPLEDGER_ELSEWHERE;
}

/* Changes the rate for allocations from now on. Returns HEAPLEDGER_STATE if sampling is not on. */
HEAPLEDGER_INLINE int heapledger_profile_set_rate(uint64_t sample_every) {
    const heapledger_profile *profile = heapledger_find_profile();
    return profile != NULL ? profile->set_rate(sample_every) : HEAPLEDGER_ELSEWHERE;
}

/* Writes a profile for `go tool pprof`. The first one reads the program's debug information, which takes time. */
HEAPLEDGER_INLINE int heapledger_profile_save(const char *file) {
    const heapledger_profile *profile = heapledger_find_profile();
    return profile != NULL ? profile->save(file) : HEAPLEDGER_ELSEWHERE;
}

/* Serves profiles on this port of the loopback, or on any free one if it is 0, for the rest of the
 * process's life. Writes the address of the server (profiles are at URL/heap and URL/allocs): 128
 * bytes are enough. Once it serves, further calls return the same address, whatever the port. */
HEAPLEDGER_INLINE int heapledger_profile_serve(uint32_t port, char *url, size_t length) {
    const heapledger_profile *profile = heapledger_find_profile();
    return profile != NULL ? profile->serve(port, url, length) : HEAPLEDGER_ELSEWHERE;
}

#ifdef __cplusplus
}
#endif

#endif
