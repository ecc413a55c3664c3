/* `launch FILE LIBRARY COMMAND…` runs a command with a preloaded library, or none if it is empty, and
 * writes its processor time in microseconds, its peak of resident memory in KiB, its page faults and
 * its status to a file. It is small, because a process that starts a command hands its own peak on. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 4) return 2;
    pid_t child = fork();
    if (child == 0) {
        if (*arguments[2]) setenv("LD_PRELOAD", arguments[2], 1);
        execvp(arguments[3], arguments + 3);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) != child) return 1;
    FILE *file = fopen(arguments[1], "w");
    if (!file) return 1;
    long seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    long rest = usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    fprintf(file, "%ld %ld %ld %d\n", seconds * 1000000 + rest, usage.ru_maxrss, usage.ru_minflt, status);
    return fclose(file) != 0;
}
