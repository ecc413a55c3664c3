/* Heapledger, from C99 and C++98 on: the dark matter of a program that links libheapledger. Part of heapledger.h's family:
 *
 *     #include "heapledger/dmd.h"
 *
 *     heapledger_dmd_on_signal(SIGRTMIN, "/var/tmp", NULL);     // kill -s RTMIN PID writes /var/tmp/dmd-TIME-PID.json.gz
 *     heapledger_dmd_save("server.dmd.json.gz", NULL);          // now
 *
 * A log has the live blocks of the ledger, by where they were allocated and by which reporters have reported them (reports.h).
 * `heapledger dmd FILE` shows what nobody reports, and what is reported twice; `heapledger dmd PID` asks a program for a log
 * that has called heapledger_listen. */
#ifndef HEAPLEDGER_DMD_H
#define HEAPLEDGER_DMD_H

#include "reports.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a log is of. */
enum {
    HEAPLEDGER_DMD_DARK_MATTER = 0, /* live blocks, and who has reported them */
    HEAPLEDGER_DMD_LIVE = 1,        /* live blocks */
    HEAPLEDGER_DMD_CUMULATIVE = 2,  /* live blocks and those that have been freed, if the ledger keeps these */
    HEAPLEDGER_DMD_SCAN = 3         /* live blocks one by one, with their addresses and contents, up to a gigabyte of these */
};

/* Flags. */
enum {
    HEAPLEDGER_DMD_ANONYMOUS = 1, /* reporters leave out what is private; contents of blocks are left out */
    HEAPLEDGER_DMD_AS_IT_IS = 2   /* reporters are not asked: the marks are those that blocks have */
};

/* What is to be in a log. A null pointer: as if all fields were 0. */
typedef struct heapledger_dmd_options {
    uint32_t size; /* sizeof of this */
    uint32_t mode;
    uint32_t flags;
    uint32_t reporter_deadline_ms; /* how long a reporter may take; 0: 5 s */
    uint32_t deadline_ms;          /* how long all may take; 0: 30 s */
} heapledger_dmd_options;

/* For the functions below. */
typedef struct heapledger_dmd {
    uint32_t size;
    uint32_t version;
    int (*save)(const char *file, const heapledger_dmd_options *options);
    int (*on_signal)(int signal, const char *directory, const heapledger_dmd_options *options);
    int (*at_exit)(const char *directory, const heapledger_dmd_options *options);
} heapledger_dmd;

#if HEAPLEDGER_IS_ON
__asm__(".weak heapledger_dmd_v1");
HEAPLEDGER_INLINE const heapledger_dmd *heapledger_find_dmd(void) {
    const heapledger_dmd *dmd;
    __asm__("movq heapledger_dmd_v1@GOTPCREL(%%rip), %0" : "=r"(dmd));
    return dmd != NULL && dmd->size >= sizeof(heapledger_dmd) ? dmd : NULL;
}
#else
HEAPLEDGER_INLINE const heapledger_dmd *heapledger_find_dmd(void) { return NULL; }
#endif

/* All of these answer HEAPLEDGER_OK; HEAPLEDGER_ELSEWHERE where libheapledger is not in the process; HEAPLEDGER_FAILED where
 * something cannot be done, and of a null file or directory. Null options are the defaults. */

/* Asks all reporters, and writes a log of the same heap to a file: gzipped JSON, for `heapledger dmd` and for Mozilla's dmd.py.
 * HEAPLEDGER_STATE if no ledger runs; HEAPLEDGER_ELSEWHERE under `heapledger record`: reporters have been asked, and the recording
 * has what they say. Whoever allocates or frees while the ledger is copied waits: some 20 ms for a million blocks. */
HEAPLEDGER_INLINE int heapledger_dmd_save(const char *file, const heapledger_dmd_options *options) {
    const heapledger_dmd *dmd = heapledger_find_dmd();
    return dmd != NULL ? dmd->save(file, options) : HEAPLEDGER_ELSEWHERE;
}

/* From now on a signal has a log written into a directory, by a thread of its own: dmd-TIME-PID.json.gz, where the time is in
 * seconds since 1970. For the rest of the process's life; children made by fork write none. What fails is said on standard
 * error. */
HEAPLEDGER_INLINE int heapledger_dmd_on_signal(int signal, const char *directory, const heapledger_dmd_options *options) {
    const heapledger_dmd *dmd = heapledger_find_dmd();
    return dmd != NULL ? dmd->on_signal(signal, directory, options) : HEAPLEDGER_ELSEWHERE;
}

/* The same when the program ends, by exit or by returning from main. */
HEAPLEDGER_INLINE int heapledger_dmd_at_exit(const char *directory, const heapledger_dmd_options *options) {
    const heapledger_dmd *dmd = heapledger_find_dmd();
    return dmd != NULL ? dmd->at_exit(directory, options) : HEAPLEDGER_ELSEWHERE;
}

#ifdef __cplusplus
}
#endif

#endif
