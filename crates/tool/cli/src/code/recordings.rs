//! The codes about recordings, and what each means.

/// Defines the codes: those before the ones here, these, and those after them.
macro_rules! codes_with_recordings {
    (before { $($before:tt)* } after { $($after:tt)* }) => {
        codes! {
            $($before)*

            /// Slop is not known
            NoUsableSizes = 59 {
                cause: "Slop is what an allocator lets a program use beyond the size that it asked for. The recording was made without \
                        `--usable`, and the program's allocator is none of those whose sizes can be computed (glibc, jemalloc, \
                        tcmalloc, mimalloc, Heapledger's own), or the recording is older than this question.",
                consequence: "There is no answer, which is not the same as no slop. Exit status 2.",
                remedy: "Record again with `heapledger record --usable`, which asks the allocator for the size of each block.",
            }
            /// The recording is not finished
            Unfinished = 60 {
                cause: "The file has no end: the recorder still runs, or was killed, or the file was cut.",
                consequence: "All figures are of what is in the file, which ends with a whole chunk: at most some seconds are missing.",
                remedy: "Wait until `heapledger record` has ended; or record again.",
            }
            /// The recording is incomplete
            Incomplete = 61 {
                cause: "Something went wrong while it was recorded: a disk was full, or memory ran out. Or it was made of \
                        another tool's file, which ends before the program did.",
                consequence: "Figures are of what is there.",
                remedy: "`heapledger info FILE` shows what is there; record again.",
            }
            /// The recording is damaged
            Damaged = 62 {
                cause: "A part of the file does not have the checksum that it was written with.",
                consequence: "That part is left out of all figures.",
                remedy: "Copy the file again from where it came from; `heapledger info FILE` lists the damage.",
            }
            /// Events were lost
            Lost = 63 {
                cause: "There was no room in a ring (`--on-full drop`), or no ring for a thread, or a signal handler interrupted the \
                        recorder, or the program wrote over its ring.",
                consequence: "Totals are lower bounds; frees of unseen allocations may be counted as unknown.",
                remedy: "`heapledger info --json FILE` counts them by cause. Without `--on-full drop` threads wait instead.",
            }
            /// The program itself was not recorded
            NotRecorded = 64 {
                cause: "What was started did not load the recorder's library, but something that it started did.",
                consequence: "All figures are of what it started.",
                remedy: "`heapledger doctor COMMAND` says why.",
            }
            /// Nothing was recorded
            Nothing = 65 {
                cause: "No call of the malloc family was seen: the program makes none, or it did not load the recorder's library.",
                consequence: "There is nothing to show.",
                remedy: "`heapledger doctor COMMAND` says why.",
            }
            /// The recording ended before the program did
            Ended = 66 {
                cause: "The recorder could not go on: the disk was full, or its memory ran out.",
                consequence: "The program ran on to its end, unrecorded. The file is good up to that moment.",
                remedy: "Give it more room: another directory (`-o FILE`), fewer live blocks.",
            }
            /// Stacks are not what glibc says
            Mismatch = 67 {
                cause: "`record --verify-stacks` compared each stack with glibc's `backtrace`, and some differ. The known cause is code \
                        that registers its unwind information at run time (JIT compilers): that is not followed.",
                consequence: "Those stacks end too early, or are wrong. Counts and sizes are right.",
                remedy: "`heapledger info FILE` shows both stacks of the first few. If the frame that differs is not of code made at run \
                         time, please report it.",
            }
            /// The file cannot be read
            Unreadable = 68 {
                cause: "The file is not there, or may not be read, or is no recording, or is of a newer format.",
                consequence: "There is no answer.",
                remedy: "The cause is beside the message. `heapledger info FILE` says what is in a recording.",
            }
            /// A report is not shown
            LeftOut = 69 {
                cause: "There is a report with a path, and another one with a longer path that begins with it: `a/b` and `a/b/c`. One of \
                        the reporters is wrong.",
                consequence: "The amount of the shorter path is in no tree and in no sum. Firefox leaves it out, too: what is shown is \
                              the same as there.",
                remedy: "Give the shorter path a last part of its own, such as `a/b/other`. The amount is in the file: \
                         `heapledger reports save --to json -o - SOURCE`.",
            }
            /// A file is of another build than the log
            OtherBuild = 70 {
                cause: "The log has the build id of each program and library, and the file that is at its place now has another: it \
                        was built or installed anew since.",
                consequence: "Its frames are shown as the log has them: file and offset, without names.",
                remedy: "Keep the file that ran, or its debug information, and name it: `--symbols PATH` or `--debug-dir DIR`.",
            }
            /// The program ran in another network namespace
            OtherNetwork = 71 {
                cause: "A process moved into a network namespace of its own (`unshare --net`, `bwrap --unshare-net`, a container) and \
                        started the program there. The recorder's abstract Unix socket is found in its own network namespace only, and \
                        the one in its directory of XDG_RUNTIME_DIR, TMPDIR or /tmp could not be reached: the program has other mounts \
                        or another root directory, or the path is longer than 100 bytes.",
                consequence: "The program ran as always, and nothing of it was recorded; nor of what it started.",
                remedy: "Record inside of the namespace: `unshare --net heapledger record -- COMMAND`.",
            }
            /// The recorder's library could not be read there
            LibraryUnreadable = 72 {
                cause: "The library is in a directory of TMPDIR or /tmp that only you may read. The program was started by a process \
                        that had become another user (`su`, `setpriv`), or had another root directory (`chroot`) or other mounts.",
                consequence: "The program ran as always, and nothing of it was recorded; nor of what it started.",
                remedy: "Record as that user, or inside: `su USER -c 'heapledger record -- COMMAND'`.",
            }
            /// There was no room for the recorder
            NoRoom = 73 {
                cause: "The process may use little address space (`ulimit -v`), or had no descriptor or memory left for the recorder.",
                consequence: "The program ran as always, and nothing of it was recorded; what it started may have been.",
                remedy: "Raise the limit: `ulimit -v unlimited`, `ulimit -n 1024`.",
            }
            /// The program never reached the recorder
            Silent = 74 {
                cause: "It was started with the recorder's library in LD_PRELOAD, and did not introduce itself: it ended before it had \
                        loaded its libraries, a sandbox keeps it from sockets, its file has capabilities, or the recording was over first.",
                consequence: "Nothing of it was recorded. What it started may have been.",
                remedy: "`heapledger doctor PROGRAM` looks closer. For a program in a sandbox: switch the sandbox off.",
            }

            /// Frees were not seen
            MissedFrees = 75 {
                cause: "The allocator returned an address whose block was live by all that was recorded: so the block had been released \
                        in a way that the recorder does not see. A library calls the C library's own `free` (HL0023), a sandbox \
                        or a signal handler kept the recorder out, or events were lost because a ring was full.",
                consequence: "Each of these blocks counts as freed from the moment at which its address was handed out again; until then it \
                              counted as live. There may be more such blocks whose addresses were not used again: they look like leaks.",
                remedy: "`heapledger summary FILE` has the number for each process (`--json`: frees_missed). Compare what is live at the end \
                         with what you know of the libraries in those stacks.",
            }
            /// The recorder stood still
            Stalled = 76 {
                cause: "For longer than `--stall-timeout` (5 s) the recorder did nothing: it was stopped (SIGSTOP, a debugger), or the \
                        disk or network drive that it writes to did not answer.",
                consequence: "The program went on. Calls for which there was no room meanwhile are lost, and counted by every report; \
                              blocks whose frees are among them seem live. What came after is recorded in full.",
                remedy: "Write to a local disk: `heapledger record -o FILE -- COMMAND`. With `--stall-timeout never` the program waits \
                         instead.",
            }

            /// A program has put itself in a sandbox
            Sandboxed = 77 {
                cause: "The program has restricted its own system calls (seccomp, as `man`, sshd and browsers do). Any call of the \
                        recorder's could kill it, so the recorder makes none in it from then on.",
                consequence: "Its threads are recorded on, and so are new ones: all but the first twelve without stacks. Children and the \
                              programs that it starts are not, and threads do not wait for long where there is no room: what is lost \
                              is counted. Under `check` nothing is reported any more in that process.",
                remedy: "Turn the sandbox off for the recording, where the program has an option for it: \
                         `MAN_DISABLE_SECCOMP=1 man …`, `chromium --no-sandbox`.",
            }
            /// The peak of several sessions is known within bounds
            PeakBounds = 78 {
                cause: "The recording is merged from several, at least one of which has totals only (`record --aggregate`), and they ran \
                        at the same time. What one of them had live when another had its peak is in no file.",
                consequence: "The peak shown is the sum of theirs: no more was live at once. Figures of functions and stacks at the peak \
                              are those at the peak of each session. What was allocated in all, and what was live at the end, is exact.",
                remedy: "Record without `--aggregate`, and merge those. `heapledger summary FILE` shows both bounds (`--json`: \
                         bytes_live_max_least, blocks_live_max_least), and each process with its own exact peak.",
            }
            /// Stacks were folded into their callers
            Folded = 79 {
                cause: "The recorder keeps the stacks of a program in the program's memory, 27 to 48 bytes for each frame that is not on \
                        an earlier stack. It had come to the limit of `record --target-memory`, or the program may have no more memory \
                        (`ulimit -v`).",
                consequence: "From then on a stack that is new ends at the innermost frame that was known: what is allocated there counts \
                              for that caller. Sizes and numbers of blocks are complete; stacks that were known stay whole.",
                remedy: "Give it more: `heapledger record --target-memory 256MiB -- COMMAND`. The report says what it took.",
            }
            /// Debug information cannot be used
            DebugInformation = 80 {
                cause: "A file with debug information or symbols of a program or library is damaged, or is of another build. Of a \
                        symbol file of Breakpad the line, the byte and the reason are beside the message.",
                consequence: "Names are taken from what else there is: frames may have no functions, files or lines.",
                remedy: "Make the file again: `dump_syms PROGRAM >NAME/DEBUGID/NAME.sym`, or install the package of debug symbols again.",
            }
            /// Names may be those of another build
            Rebuilt = 81 {
                cause: "The program or library was linked without a build id, the recording has no names of its own for it \
                        (`record --names none`), and the file has changed since.",
                consequence: "Functions and lines are those that the file has now at the recorded places. If it was built anew they are wrong.",
                remedy: "Name the file that ran: `heapledger top --symbols DIR FILE`. Link with build ids (`-Wl,--build-id`), and let the \
                         recording carry its names (`--names auto`, the default).",
            }

            /// Calls are missing in the log
            CallsLost = 82 {
                cause: "A process could not write to the log: the disk was full, or the reader of the pipe had gone away, or it had put \
                        itself in a sandbox. Or a signal handler called the allocator, or jumped away, while a line was written.",
                consequence: "The log has gaps: blocks may be allocated twice in it, or freed without having been allocated.",
                remedy: "Write to a disk with more room, and log again; `heapledger log info` counts the gaps.",
            }

            $($after)*
        }
    };
}
pub(super) use codes_with_recordings;
