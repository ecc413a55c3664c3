/* Heapledger, from C99 and C++98 on: the dark matter of a program that links libheapledger. Belongs
 * to heapledger.h:
 *
 *     #include "heapledger/dmd.h"
 *
 *     heapledger_dmd_on_signal(SIGRTMIN, "/var/tmp", NULL);     // kill -s RTMIN PID writes /var/tmp/dmd-TIME-PID.json.gz
 *     heapledger_dmd_save("server.dmd.json.gz", NULL);          // now
 *
 * A log has the live blocks of the ledger, by where they were allocated and by which reporters have
 * reported them (reports.h). `heapledger dmd FILE` shows the unreported and the twice-reported
 * blocks; `heapledger dmd PID` asks a program that has called heapledger_listen for a log. */
#ifndef HEAPLEDGER_DMD_H
#define HEAPLEDGER_DMD_H

#include "reports.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The contents of a log. */
enum {
    HEAPLEDGER_DMD_DARK_MATTER = 0, /* live blocks, and the reporters that have reported them */
    HEAPLEDGER_DMD_LIVE = 1,        /* live blocks */
    HEAPLEDGER_DMD_CUMULATIVE = 2,  /* live blocks and freed blocks, if the ledger keeps these */
    /* live blocks singly, with addresses and contents, up to a gigabyte */
    HEAPLEDGER_DMD_SCAN = 3
};

/* Flags. */
enum {
    HEAPLEDGER_DMD_ANONYMOUS = 1, /* private texts and the contents of blocks are left out */
    HEAPLEDGER_DMD_AS_IT_IS = 2   /* reporters are not asked: the marks are the present ones */
};

/* Options of a log. A null pointer is the same as all fields 0. */
typedef struct heapledger_dmd_options {
    uint32_t size; /* sizeof of this */
    uint32_t mode;
    uint32_t flags;
    uint32_t reporter_deadline_ms; /* the time limit of one reporter; 0: 5 s */
    uint32_t deadline_ms;          /* the time limit of all reporters; 0: 30 s */
} heapledger_dmd_options;

/* The table of functions that the functions below call. */
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

/* The functions below return HEAPLEDGER_OK; HEAPLEDGER_ELSEWHERE if libheapledger is not in the
 * process; HEAPLEDGER_FAILED if something cannot be done, or a file or directory is null. Null
 * options are the defaults. */

/* Asks all reporters, and writes a log of the same heap to a file: gzipped JSON, for
 * `heapledger dmd` and for Mozilla's dmd.py. Returns HEAPLEDGER_STATE if no ledger runs;
 * HEAPLEDGER_ELSEWHERE under `heapledger record`, where reporters have been asked, and the
 * recording has their reports. Threads that allocate or free while the ledger is copied wait: some
 * 20 ms for a million blocks. */
HEAPLEDGER_INLINE int heapledger_dmd_save(const char *file, const heapledger_dmd_options *options) {
    const heapledger_dmd *dmd = heapledger_find_dmd();
    return dmd != NULL ? dmd->save(file, options) : HEAPLEDGER_ELSEWHERE;
}

/* Makes a signal write a log into a directory, in a thread of its own, for the rest of the
 * process's life. The file is dmd-TIME-PID.json.gz, where TIME is in seconds since 1970. Children
 * made by fork write none. Errors are printed on standard error. */
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
