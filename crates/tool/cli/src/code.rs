//! The codes of problems, and what each means. `heapledger explain CODE` prints it.

mod recordings;
mod table;

use std::fmt;

use self::recordings::codes_with_recordings;
pub(crate) use self::table::Explanation;
use self::table::codes;

impl Code {
    /// Returns the explanation of a code such as `HL0005`, or of its number alone.
    pub(crate) fn parse(text: &str) -> Option<&'static Explanation> {
        let upper = text.trim().to_ascii_uppercase();
        let number: u16 = upper.strip_prefix("HL").unwrap_or(&upper).parse().ok()?;
        EXPLANATIONS.iter().find(|explanation| explanation.code as u16 == number)
    }

    /// Returns the explanation of the code with this number.
    pub(crate) fn of_number(number: u32) -> Option<&'static Explanation> {
        EXPLANATIONS.iter().find(|explanation| explanation.code as u32 == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HL{:04}", *self as u16)
    }
}

// The codes about recordings are in a file of their own, between these by their numbers.
codes_with_recordings! { before {
    // --------------------------------------------------------------------------------- the program
    /// The program is statically linked
    Static = 1 {
        cause: "The program file names no dynamic linker that would load the recorder's library (LD_PRELOAD). `record` places \
                it into such a program by itself, if it finds the functions of its allocator (docs/static.md). Go without \
                cgo has none but Go's own; of a stripped program, those of some C libraries are known by their code. `run`, \
                `check`, hook libraries and `--allocator` do nothing in any static program.",
        consequence: "The program runs as always, and nothing of it is recorded; nor of what it starts.",
        remedy: "Do not strip it. Or link it dynamically: without `-static`; in Rust without the target feature crt-static and \
                 not for a musl target; in Go with cgo, to see its C part. Go's own heap: `go tool pprof`.",
    }
    /// The program runs with other rights than yours
    OtherRights = 2 {
        cause: "The file is set-user-ID or set-group-ID, or has capabilities. The dynamic linker then ignores libraries that \
                the caller asks for.",
        consequence: "The program runs as always, and nothing of it is recorded; nor of what it starts.",
        remedy: "Run `heapledger record` as the user whose rights it has; or record a copy of the file, which has not its \
                 rights: `cp PROGRAM copy; heapledger record -- ./copy`. For `sudo`: `sudo heapledger record -- COMMAND`.",
    }
    /// The program is for another processor, or for 32 bits
    OtherMachine = 3 {
        cause: "The recorder's library is code for this machine's processor in 64-bit mode, and is loaded into the program.",
        consequence: "It is not started: whatever would run it (an emulator, the kernel's 32-bit mode) is not observed.",
        remedy: "Build the program for this machine (without `-m32`).",
    }
    /// The program is built for another C library than glibc
    OtherLibrary = 4 {
        cause: "Its dynamic linker is that of musl, of Android or the like. `record` has a library for programs with musl whose \
                linker is /lib/ld-musl-x86_64.so.1; hook libraries, `check` and other allocators are for glibc alone.",
        consequence: "The program runs as always, and nothing of it is recorded. Programs with musl are recorded by \
                      `record` without --hook, --phc and --allocator.",
        remedy: "Leave these options out; or build it for glibc, in Rust for the target x86_64-unknown-linux-gnu.",
    }
    /// The program brings an allocator of its own
    OwnAllocator = 5 {
        cause: "The program file itself defines `malloc` (jemalloc, mimalloc, tcmalloc or another allocator is linked into it), \
                or it is a Rust program whose `#[global_allocator]` does not use malloc. The program's own functions come \
                before those of any library, also before the recorder's.",
        consequence: "What the program allocates is not seen. What the processes that it starts allocate is recorded.",
        remedy: "Build it without the allocator (many programs have an option or a cargo feature for that), or link the \
                 allocator as a shared library: then it is used, and recorded.",
    }
    /// The program also uses an allocator that is not malloc
    SecondAllocator = 6 {
        cause: "The program contains or calls functions of jemalloc, mimalloc, tcmalloc, snmalloc or rpmalloc by names of their \
                own (`mi_malloc`, `_rjem_malloc`), beside malloc. Or it is a C++ program with a shared jemalloc or tcmalloc, \
                which brings an `operator new` of its own.",
        consequence: "Calls of malloc and its family are recorded. What it allocates by the other functions is missing (in C++: all \
                      that comes from `new`), and \
                      totals are too small by as much.",
        remedy: "Build it without that allocator; in Rust: without the feature that sets `#[global_allocator]`.",
    }
    /// The program would refuse to start: AddressSanitizer
    AddressSanitizer = 7 {
        cause: "It is built with `-fsanitize=address` and a shared runtime, which ends the program when another library is \
                loaded before it.",
        consequence: "The program is not started. One that a recorded program starts runs unrecorded.",
        remedy: "Build it without AddressSanitizer. Or tell the runtime that the order is right: \
                 `ASAN_OPTIONS=verify_asan_link_order=0 heapledger record -- COMMAND`; then the sanitizer's own \
                 allocations are recorded too.",
    }
    /// The program has a sanitizer's allocator
    Sanitizer = 8 {
        cause: "It is built with a sanitizer (AddressSanitizer, ThreadSanitizer, MemorySanitizer, LeakSanitizer), whose runtime \
                is part of the program and defines malloc.",
        consequence: "What the program allocates is not seen.",
        remedy: "Build it without `-fsanitize=…` (`-fsanitize=undefined` alone does no harm).",
    }
    /// The program is written in Go
    Go = 9 {
        cause: "Go has its own allocator, which takes memory from the kernel and not from malloc.",
        consequence: "Only what C code in it allocates (through cgo) is recorded; without cgo, nothing.",
        remedy: "For Go's own heap use its profiler: `go tool pprof http://…/debug/pprof/heap`.",
    }
    /// The language's runtime allocates small blocks itself
    RuntimeAllocator = 10 {
        cause: "The interpreter takes large pieces of memory from the system and divides them itself: CPython all blocks up to \
                512 bytes, PHP nearly all.",
        consequence: "Those blocks are not recorded: of a Python program mostly the large ones are seen.",
        remedy: "Have the interpreter use malloc for everything: `PYTHONMALLOC=malloc heapledger record -- python3 …`, \
                 `USE_ZEND_ALLOC=0 heapledger record -- php …`.",
    }
    /// The file system forbids programs
    NoExec = 11 {
        cause: "The file is on a file system that is mounted `noexec`.",
        consequence: "The program cannot be started, with or without Heapledger.",
        remedy: "Copy it elsewhere, or mount the file system without `noexec`: `mount -o remount,exec DIRECTORY`.",
    }
    /// There is no unwind information
    NoUnwindInformation = 12 {
        cause: "The file has no `.eh_frame_hdr`: it was built with `-fno-asynchronous-unwind-tables` or the like, or linked with \
                `--no-eh-frame-hdr`, or a tool has removed it.",
        consequence: "`record` makes rules from the machine code of that file. Where they are not certain, a stack ends at a \
                      function of that file: callers are missing, and the stack counts as incomplete. Counts and sizes are \
                      right. `check` and `run --phc` have no such rules.",
        remedy: "Build it with `-fasynchronous-unwind-tables` (the default of gcc and clang on this processor), and link it with \
                 `-Wl,--eh-frame-hdr`.",
    }
    /// Functions and lines cannot be named well
    NoDebugInformation = 13 {
        cause: "The file has no debug information, and no separate file with it was found.",
        consequence: "Stacks are complete, but functions are named from symbol tables only, or as `module+0xoffset`; files, lines \
                      and inlined functions are missing. It can be installed later: names are looked up when a recording is \
                      read.",
        remedy: "Build with `-g` (in Rust `debug = 1` in the profile); for packages of the distribution install their debug \
                 symbols, or set DEBUGINFOD_URLS.",
    }
    /// There is no build id
    NoBuildId = 14 {
        cause: "The file was linked without `--build-id`.",
        consequence: "When the file is replaced by another build, that is not noticed: names may then be wrong. Separate debug \
                      files are found only by their name.",
        remedy: "Link with `-Wl,--build-id`.",
    }
    /// There is no such program
    NotFound = 15 {
        cause: "The command, or the interpreter that a script names in its first line, is in no directory of PATH, or not at the \
                path that was given.",
        consequence: "Nothing was started. Exit status 127, as in a shell.",
        remedy: "Check the spelling; a program in the current directory is called `./NAME`.",
    }
    /// The program is not executable
    NotExecutable = 16 {
        cause: "The file has no permission to be executed, or the kernel does not know its format, or its dynamic linker is missing.",
        consequence: "Nothing was started. Exit status 126, as in a shell.",
        remedy: "`chmod +x FILE`; `heapledger doctor FILE` looks closer.",
    }
    /// The language's heap is not malloc's
    ManagedHeap = 17 {
        cause: "The program has a runtime that takes its heap from the kernel: Java's virtual machine, V8 (node, Chromium, \
                Electron), SBCL, or the Boehm collector.",
        consequence: "Objects of that language are not recorded. What the runtime itself and native code allocate by malloc is.",
        remedy: "Ask the runtime about its own heap: `jcmd PID GC.class_histogram` for Java, `node --heap-prof` for V8, `(room)` \
                 for SBCL.",
    }
    /// The program defines malloc, and may call on the next one
    WrapsMalloc = 18 {
        cause: "The program file defines `malloc`, and can both look up the next definition (`dlsym`) and take memory from the \
                kernel (`mmap`, `sbrk`): which of the two its malloc does cannot be told without running it.",
        consequence: "If it wraps the next malloc, the recording has what it asks of that, under the wrapper. If it is an \
                      allocator of its own, what it serves is not seen.",
        remedy: "Record it, and compare the number of allocations with what you expect; or build it without its malloc.",
    }
    /// The program is a script that starts others
    Script = 19 {
        cause: "The command is a script of a shell. Its text is looked at for `exec`, and not run: what a variable or a branch \
                decides cannot be told.",
        consequence: "The shell can be recorded. Each program that the script starts is judged when it starts, and may run \
                      unrecorded.",
        remedy: "Give `heapledger doctor` the program itself, and record that, if the script only sets it up.",
    }

    /// There is no such hook library
    NoHook = 20 {
        cause: "The file that --hook names is not there, or cannot be read.",
        consequence: "Nothing was started. Exit status 101.",
        remedy: "Check the path; build the library first: `cc -shared -fPIC -Iinclude -o LIB.so LIB.c`.",
    }
    /// The file is not a hook library
    NotAHook = 21 {
        cause: "What --hook names is not a shared library for this processor, or does not export the function \
                `heapledger_hook_init`, by which it is asked for its hooks, nor `replace_init`, the function of Firefox's \
                replace-malloc libraries. Or it is the second library with `replace_init`: a process can have one.",
        consequence: "Nothing was started: the program would have run without the hook. Exit status 101.",
        remedy: "Build it as a shared library that exports the function: include/heapledger/hooks.h says how, examples/hooks \
                 has a library in C and one in Rust. `nm -D LIB.so` lists what a library exports.",
    }
    /// The hook library is of another version
    HookVersion = 22 {
        cause: "The library was built for another version of the hook table than this Heapledger has; or it does not say for \
                which, by the variable `heapledger_hook_version`.",
        consequence: "Nothing was started: its functions might be called with the wrong arguments. Exit status 101.",
        remedy: "Build it again with the headers of this Heapledger; in a C library say HEAPLEDGER_HOOK_LIBRARY once.",
    }

    /// A library's calls of the allocator are not seen
    UnseenLibrary = 23 {
        cause: "The program opened it with `dlmopen`, into a namespace that has a C library of its own, or with RTLD_DEEPBIND; \
                and the C library that it calls could not be redirected to the recorder. Another library wraps the allocator, \
                before or behind the recorder's; or, for `dlmopen`, glibc is older than 2.35, or there are hook libraries, \
                which `heapledger check` is one of.",
        consequence: "What it allocates is not recorded. A block that it frees and that others have allocated stays live in the \
                      recording; one that others free and that it has allocated is a free of an unknown block. `heapledger \
                      check` reports nothing in a process from that moment on.",
        remedy: "Run the program without the library that wraps the allocator, and record it (`heapledger record`) without \
                 --hook, on glibc 2.35 or newer: then both are recorded like the program itself.",
    }

    // --------------------------------------------------------------------------------- the machine
    /// The system refuses something that recording needs
    System = 30 {
        cause: "A system call failed that every recording needs: memfd_create (Linux 3.17), pidfd_open (Linux 5.3), a Unix \
                socket. The kernel is older, or a sandbox (seccomp) forbids it, or a limit is reached.",
        consequence: "Nothing can be recorded.",
        remedy: "In a container, allow these calls: `docker run --security-opt seccomp=unconfined …`. Limits: `ulimit -a`.",
    }
    /// The C library is too old to unwind
    OldLibrary = 31 {
        cause: "glibc before 2.35 has no `_dl_find_object`, by which unwind information is found without locks. `record` tells \
                its library the modules instead; `check` and `run --phc` have nobody who could.",
        consequence: "Stacks of `record` are whole. Those of `check` and `run --phc` end at the first library.",
        remedy: "Use these on a distribution with glibc 2.35 or newer (Debian 12, Ubuntu 22.04, RHEL 10).",
    }
    /// There is no place for the recorder's library
    NoLibraryPlace = 32 {
        cause: "None of TMPDIR, /tmp, /var/tmp, /dev/shm and XDG_RUNTIME_DIR can be written, and allows programs (is not \
                mounted `noexec`).",
        consequence: "Nothing can be recorded.",
        remedy: "Name another directory: `TMPDIR=$HOME/tmp heapledger record -- COMMAND`.",
    }
    /// A limit is tight
    Limit = 33 {
        cause: "A resource limit (see `ulimit -a`) leaves little room: each thread needs a descriptor for a moment, and its ring \
                of 256 KiB of address space.",
        consequence: "Threads for which there is no ring share one; what does not fit is counted as lost, and said.",
        remedy: "Raise the limit: `ulimit -n 1024`, `ulimit -v unlimited`.",
    }
    /// Memory is scarce
    LittleMemory = 34 {
        cause: "The memory group (cgroup) of this shell has little left below its limit. Rings and tables of the recorder count \
                there too.",
        consequence: "The kernel may end the recorder or the program.",
        remedy: "Raise the limit: `systemctl set-property UNIT MemoryMax=…`, `docker update --memory …`.",
    }
    /// The clock does not order events
    Clock = 35 {
        cause: "The processors' time stamp counters are not the same everywhere, or do not run at a constant rate (in some \
                virtual machines).",
        consequence: "Events of different threads may stand in the wrong order: peaks can be wrong a little, and frees can seem \
                      to come before their allocations.",
        remedy: "Record on a machine whose /proc/cpuinfo has the flags constant_tsc and nonstop_tsc.",
    }
    /// The self-test failed
    SelfTest = 36 {
        cause: "A small program of Heapledger's own was recorded, and the recording is not as it should be.",
        consequence: "Recordings made on this machine are not to be trusted.",
        remedy: "Run `heapledger doctor --json` and report what it says, please.",
    }
    /// The recording cannot be written here
    NoOutput = 37 {
        cause: "The current directory cannot be written, or its file system is nearly full.",
        consequence: "A recording is cut where the file could not grow; the program runs on.",
        remedy: "Write elsewhere: `heapledger record -o FILE -- COMMAND`.",
    }

    // --------------------------------------------------------------------------- a running program

    /// A running program cannot be recorded from outside
    NoAttaching = 40 {
        cause: "To record a program that runs, the entry points of its allocator are redirected by jumps. This one has no \
                allocator that can be found or redirected: it is a program of 32 bits, or has a sanitizer, or has no symbols \
                and a C library of an unknown version; or another tool has changed its code.",
        consequence: "Nothing of the program is recorded, and the program goes on as it was.",
        remedy: "Start it again under the recorder: `heapledger record -- COMMAND`; of a service in its unit file, by \
                 `systemctl edit --full UNIT`: `ExecStart=/usr/bin/heapledger record -o FILE -- COMMAND`. \
                 `heapledger doctor PROGRAM` says which allocators are found.",
    }
    /// Another process has taken the address of the one that was asked
    Impostor = 41 {
        cause: "Processes are found by the abstract name of a socket, and every user can take every name. The kernel tells \
                which process and which user has really called listen(2): it is not the process that was asked, or not your \
                user's; or it is in a pid namespace that this command does not see.",
        consequence: "What it says is not read.",
        remedy: "`grep heapledger- /proc/net/unix` lists the names, `sudo ss -xlp` the processes behind them. Ask from the \
                 same pid namespace, or one above it, as the process's user or root: `sudo heapledger reports show PID`.",
    }
} after {
    // --------------------------------------------------------------------------- a running program
    /// The process has no heap that can be shown
    OtherAllocator = 83 {
        cause: "`heapledger heap-map` knows the heaps of glibc's malloc, jemalloc, mimalloc, tcmalloc, musl and Heapledger's \
                allocator (docs/rss.md has the versions). No data of the process look like one of theirs, and no file that it \
                has mapped has the symbol `heapledger_heap_v1`.",
        consequence: "Nothing is shown. The process is as it was.",
        remedy: "`heapledger rss PID` shows all of its memory. Or start the program with Heapledger's allocator: `heapledger run \
                 --allocator heapledger -- COMMAND`. In a Rust program that links it, keep the symbol table (no `strip = true`).",
    }
    /// There is no such allocator
    NoAllocator = 84 {
        cause: "The library that --allocator names is not there, or cannot be read. By a name alone (jemalloc, tcmalloc, mimalloc) \
                it is looked for in the directories of the distribution's libraries.",
        consequence: "Nothing was started. Exit status 101.",
        remedy: "Install it (`apt install libjemalloc2`), or give its path, which has a `/` in it: `--allocator ./liballocator.so`. \
                 `--allocator heapledger` needs no file.",
    }
    /// The library is not an allocator
    NotAnAllocator = 85 {
        cause: "The file that --allocator names is not a shared library for this processor, or it does not export `malloc`, \
                `calloc`, `realloc` and `free`.",
        consequence: "Nothing was started: the program would have run with the C library's allocator, or would have freed blocks \
                      by another allocator than theirs. Exit status 101.",
        remedy: "Build the allocator as a shared library that replaces malloc: `nm -D --defined-only LIB.so` lists what a library \
                 exports. One that has functions of other names only (`mi_malloc`) is for programs that call these.",
    }
    /// The heap checker has found errors
    HeapError = 86 {
        cause: "The program accessed a sampled block outside of its bounds or after it was freed, or passed a wrong address to \
                free, realloc or malloc_usable_size. The report has the address, the block, and the stacks of the error, of the \
                free and of the allocation.",
        consequence: "The program ended as it would have at such a fault, unless it handles the signal itself. Without the heap \
                      checker it might have gone on with wrong data.",
        remedy: "Read the report: `heapledger phc FILE`. Sample every block to find the error again: `heapledger run --phc \
                 --phc-first 1 --phc-normal 1 -- COMMAND`.",
    }
    /// The heap checker did not run
    HeapCheckerOff = 87 {
        cause: "The machine has less memory than `--phc-min-memory`, the system refused 320 MiB of addresses (`ulimit -v`), or \
                the program calls operators or other functions of an allocator such as jemalloc.",
        consequence: "The program ran as always, and no block of it was sampled.",
        remedy: "On a small machine: `heapledger run --phc --phc-min-memory 0 -- COMMAND`.",
    }
    /// A heap snapshot has no history
    Momentary = 88 {
        cause: "The file is a snapshot of a JavaScript heap. It has the nodes that were there at one moment, and nothing of what \
                was allocated or freed before.",
        consequence: "Verbs about time, lifetimes and calls have nothing to answer. Exit status 2.",
        remedy: "Compare two snapshots: `heapledger heap diff BEFORE AFTER`. Or record the engine's allocations: \
                 `node --heap-prof`, DevTools' *Allocations on timeline*.",
    }
    /// The snapshot does not say it
    NotInSnapshot = 89 {
        cause: "Engines write different things into heap snapshots, and this one has nothing that the question is about: Firefox \
                has no texts of strings, and other programs than Firefox and V8 do not say to which global object nodes belong.",
        consequence: "There is no answer, which is not the same as an answer of none. Exit status 2.",
        remedy: "Ask about something that the snapshot has: `heapledger heap node FILE ID` shows everything that it says of a node.",
    }

    // --------------------------------------------------------------------------------- the command
    /// The command line makes no sense
    Usage = 90 {
        cause: "The options contradict each other, or name something that is not there.",
        consequence: "Nothing was done. Exit status 2.",
        remedy: "`heapledger VERB --help` has examples.",
    }
    /// Something unexpected
    Unexpected = 91 {
        cause: "The system refused something that usually works; the cause is beside the message.",
        consequence: "The answer is missing or cut.",
        remedy: "See the cause.",
    }
    /// The program could not be started
    NotStarted = 92 {
        cause: "Something that recording needs was refused, or the program cannot be recorded without harm to it.",
        consequence: "The program did not run. Exit status 101.",
        remedy: "`heapledger doctor COMMAND` says what is in the way.",
    }
    /// The program is Heapledger itself
    Nested = 93 {
        cause: "A `heapledger record`, `check` or `run` was started under another one, by a shell, say. It starts programs in a \
                session of its own, and a program belongs to one session: the innermost.",
        consequence: "Of the inner `heapledger` its own allocations are seen, and the programs that it starts are seen by it \
                      alone: they are in its recording or report. A recording around it lists them as unrecorded.",
        remedy: "Leave out the outer one: `heapledger record -- COMMAND`. To check and record a program, run it twice.",
    }
    /// The file is there already
    FileExists = 94 {
        cause: "The file that is to be written exists. It may be the only copy of something.",
        consequence: "Nothing was done, and the file is as it was.",
        remedy: "Give the new file another name, or add `--force` to replace it.",
    }
    /// The file cannot be written
    CannotWrite = 95 {
        cause: "The directory is not there or may not be written, or its disk is full; the cause is beside the message.",
        consequence: "There is no new file, and one that was to be replaced is as it was.",
        remedy: "Write elsewhere, by `-o FILE`; `df -h DIRECTORY` shows how much room there is.",
    }
    /// A line of a log is no call
    NotACall = 96 {
        cause: "The log has a line that is not in logalloc's form, has a function that logs do not have, or has numbers that are \
                too large. Its number and the reason are beside the message. Often the program wrote to the same file.",
        consequence: "No recording was made of the log.",
        remedy: "Leave such lines out: `heapledger log convert --keep-going -o FILE.hl LOG`, which says how many there are.",
    }
    /// Calls of some functions of an allocator inside a program are not seen
    NotRedirected = 97 {
        cause: "The program has an allocator linked in, whose functions `heapledger record` redirects when the program starts. \
                The functions that are named cannot be redirected: they are too short, a branch leads into their middle, or they \
                throw on failure and the allocator has no function that returns null instead. If no function is named, the \
                program ran without jumps that it should have had: the recorder was too slow (30 s) or could not read the \
                file, there was no room near the program, or its code in memory was not that of the file.",
        consequence: "Blocks that come from these functions alone are not in the recording, and frees of others by them are \
                missed. Calls that they make to the allocator's other functions are seen.",
        remedy: "Link the allocator as a shared library, or build it without the option that made the functions so (`-Os`, for \
                 example). `heapledger doctor --json PROGRAM` lists all functions and the reasons.",
    }
    /// Some functions of an allocator inside a program cannot be redirected
    Irredirectable = 98 {
        cause: "`heapledger doctor` found an allocator in the program's file or in a library. To see the calls of a function \
                there, its first instructions have to be replaced by a jump. Those of the function that is named cannot be: it \
                is too short, a branch leads into its middle, or it throws on failure and the allocator has no function that \
                returns null instead. Or the file is stripped, and some functions are not found.",
        consequence: "Blocks that come from that function alone would not be seen. The other functions are not affected.",
        remedy: "Link the allocator as a shared library; do not strip the program; or build it without the option that made \
                 the function so (`-Os`, for example). `heapledger doctor --json PROGRAM` lists all functions and the reasons.",
    }
    /// A replay of another recording
    OtherReplay = 99 {
        cause: "`advise --replay` takes what `heapledger replay --json` has saved of the same recording. The file is another \
                document, or has processes that are not in the recording.",
        consequence: "Nothing is advised: figures of another program say nothing about this one.",
        remedy: "Replay this recording: `heapledger replay FILE.hl --json -o RESULT.json`.",
    }
    /// Stacks go through code without unwind information
    UnprovenStacks = 100 {
        cause: "Code generated at run time (V8, HotSpot) and the code of Chromium have no unwind information: callers were found \
                by frame pointers.",
        consequence: "If that code keeps frame pointers, these stacks are right, but nothing proves it. Counts are right.",
        remedy: "Have the code keep them: `node --interpreted-frames-native-stack`, `java -XX:+PreserveFramePointer`.",
    }
    /// The running program is not armed
    NotArmed = 101 {
        cause: "A program that runs can be recorded from now on if it was started with the recorder's library in LD_PRELOAD. \
                This one does not have it, or has that of another version.",
        consequence: "Nothing of the program is recorded, and the program goes on as it was.",
        remedy: "Start it again with `LD_PRELOAD=$(heapledger lib record)` in its environment: of a service in its unit file, \
                 of a container in its image or manifest (docs/services.md). Or record it from its start: `heapledger record`.",
    }
    /// The format of a snapshot cannot hold all of it
    LostBySnapshot = 102 {
        cause: "Firefox and V8 write different things into heap snapshots: V8 has texts of strings, weak edges and kinds of edges; \
                Firefox has types, files of scripts and the time. The format that was asked for has no place for some of them.",
        consequence: "The file is whole for its own tools, but what the warning names is not in it.",
        remedy: "Keep the snapshot that was read, and ask it about these things: `heapledger heap` reads both formats.",
    }
    /// The kernel lets this user not look into the process
    MemoryDenied = 103 {
        cause: "A running program is asked to join a recording through its memory (`/proc/PID/mem`). The kernel allows that to \
                those who may debug the process: not if it is another user's, if `kernel.yama.ptrace_scope` is above 0, if it \
                has declared its memory private, or if a container lacks CAP_SYS_PTRACE.",
        consequence: "Nothing of the program is recorded, and the program goes on as it was.",
        remedy: "`sudo heapledger start PID`; in a container, start it with `--cap-add SYS_PTRACE`, or run the command on the \
                 host. Where even root may not (`ptrace_scope` 3): `heapledger record --start-paused -- COMMAND`.",
    }
    /// The recorder could not be placed into a statically linked program
    NotPlaced = 104 {
        cause: "A statically linked program has no dynamic linker that would load the recorder. It is stopped before its first \
                instruction by ptrace(2), and the recorder is placed into its memory. The kernel or the program's file did not \
                allow that: tracing is forbidden (`kernel.yama.ptrace_scope` above 1, a sandbox), `heapledger` itself is traced \
                (strace, gdb), there was no memory for code, or the allocator's functions are not where the file says.",
        consequence: "The program ran as always, and nothing of it was recorded.",
        remedy: "Record outside of the sandbox or the debugger; in a container, start it with `--cap-add SYS_PTRACE`. \
                 `heapledger doctor PROGRAM` names the allocator's functions. Or link the program dynamically.",
    }
    /// The kernel does not let this user trace the process
    TracingDenied = 107 {
        cause: "A program that runs without the library is recorded by ptrace(2). The kernel allows that to those who may debug \
                the process: not if it is another user's, if `kernel.yama.ptrace_scope` is above 0, if it has declared its \
                memory private, or if a container lacks CAP_SYS_PTRACE.",
        consequence: "Nothing of the program is recorded, and the program goes on as it was.",
        remedy: "`sudo heapledger attach PID`; in a container, start it with `--cap-add SYS_PTRACE`, or run the command on the \
                 host. Where even root may not (`ptrace_scope` 3): `heapledger record -- COMMAND`.",
    }
    /// Another process traces the one that is to be recorded
    TracedAlready = 108 {
        cause: "A process can have one tracer only: a debugger, strace, or another `heapledger attach` that begins or ends.",
        consequence: "Nothing of the program is recorded, and the program goes on as it was.",
        remedy: "End the other tracer, or let it detach, and ask again.",
    }
    /// The process that is to be recorded is in a sandbox
    SandboxedProcess = 109 {
        cause: "A thread of the process has a filter of system calls (seccomp), which may end the process at a call that is not \
                listed. The recorder's library makes some that the program may never make.",
        consequence: "Nothing of the program is recorded, and the program goes on as it was.",
        remedy: "Record it from its start, before it enters the sandbox: `heapledger record -- COMMAND`. In a container, run it \
                 without the filter (`--security-opt seccomp=unconfined`).",
    }
    /// Something of the recorder stays in a process
    LeftBehind = 110 {
        cause: "When a recording of a running program ends, its code is put back, and the recorder's memory is given back when \
                no thread can return there. A thread has stayed inside for ten seconds (it is stopped, or a signal handler has \
                left the allocator by a jump); or the code could not be put back, because the process is traced.",
        consequence: "The program goes on. Some megabytes stay mapped; calls that still lead there are passed through.",
        remedy: "None is needed. `heapledger attach PID` works again; the memory is given back when the program ends.",
    }
    /// There is no program here with which to test the machine
    NoGlibc = 112 {
        cause: "Programs are recorded by a library that their dynamic linker loads. Neither this command, which is the static \
                one, nor /bin/sh has a dynamic linker: this is a system of static programs, such as a container with busybox \
                alone. `replay` needs a program for glibc.",
        consequence: "`doctor` cannot test the machine. A program with glibc or musl that is here all the same is recorded.",
        remedy: "Copy the command to the machine or the container that has the program: it needs nothing but the kernel \
                 (docs/portable.md).",
    }
    /// An allocator in a library that was opened later is not redirected
    NotRedirectedLater = 114 {
        cause: "The program opened a library with `dlopen` that has, or may have, an allocator of its own. Its functions cannot \
                be redirected, there was no room near it, or the recorder did not answer.",
        consequence: "Its blocks are not in the recording, or not all; frees of others by it are missed.",
        remedy: "`heapledger doctor --json LIBRARY` lists its functions. Build it without its own allocator, or preload it.",
    }
    /// Calls of a global allocator of Rust may be inlined
    InlinedAllocator = 115 {
        cause: "An optimising compiler inlines its own functions for a `#[global_allocator]`, which are redirected, into callers.",
        consequence: "Blocks of inlined calls are not in the recording. Without optimisation every call is seen.",
        remedy: "Wrap it: `heapledger::Allocator::wrapping(…)`. Or record a build with `opt-level = 0`.",
    }
    /// The running program is in a sandbox
    UnderFilter = 116 {
        cause: "The program has filters of system calls (seccomp), as services with `SystemCallFilter=` and programs in \
                containers have, or is in the strict mode. To join a recording it makes calls that it may never have made, \
                and some filters end a program at a call that they do not list.",
        consequence: "Nothing of the program is recorded, and the program goes on as it was.",
        remedy: "If the filters list these calls, or answer others by an error as those of Docker do: `heapledger start PID \
                 --sandboxed`. docs/services.md names the calls. It is not asked for again while the program runs.",
    }
    /// The kernel does not let this user see the memory of the process
    ResidentDenied = 117 {
        cause: "The kernel shows `/proc/PID/smaps`, `pagemap` and `mem` to those who may debug the process. See HL0103.",
        consequence: "Nothing is shown, and the process goes on as it was.",
        remedy: "`sudo heapledger rss PID` (or `heap-map PID`); in a container, start it with `--cap-add SYS_PTRACE`, or run the command on the host.",
    }
    /// A part of the heap could not be walked
    HeapUnread = 118 {
        cause: "A chunk of glibc's malloc has a size that makes no sense: the heap was changing each time, or is overwritten.",
        consequence: "The memory behind that chunk is in a line of its own, in use or free. The sum is right all the same.",
        remedy: "Stop the process meanwhile: `kill -STOP PID`. If it is the same then: `heapledger check -- COMMAND`.",
    }
    /// The kernel does not tell pages of zeroes from others
    ZeroesUnknown = 119 {
        cause: "Pages that were only read are the kernel's page of zeroes, and not resident. Kernels before 6.7 tell root alone which.",
        consequence: "Such pages of heaps are counted in their parts. The difference is negative by as much.",
        remedy: "`sudo heapledger rss PID`, or take the difference for what it is.",
    }
    /// A statically linked program that another one starts could not be followed into
    NotFollowed = 122 {
        cause: "No dynamic linker would load the recorder into the program. So its process is traced until it has executed the \
                program, and the recorder is placed there (docs/static.md). Tracing was refused (`kernel.yama.ptrace_scope`, \
                another tracer such as strace), the process had no descriptor left or could not reach the recorder, or the \
                program's memory has no room near its code.",
        consequence: "The program runs as always, and nothing of it is recorded; nor of what it starts.",
        remedy: "Record it as the command itself: `heapledger record -- PROGRAM`. In a container, start it with \
                 `--cap-add SYS_PTRACE`.",
    }
    /// Only a recorder knows the owners and ages of blocks
    LiveUnknown = 125 {
        cause: "`heapledger heap-map --by owner` and `--by age` ask the recorder of the process for its live blocks, since \
                recordings keep no addresses. None records this process, or it records a sample (`--sample`), or it is of an \
                earlier version.",
        consequence: "Nothing is shown, and the process goes on as it was.",
        remedy: "`heapledger attach PID`, or start it with `heapledger record -- COMMAND`. Blocks from before `attach` are not \
                 known. Without a recorder: `heapledger heap-map PID` groups by arena.",
    }
    /// The heap of an allocator has a layout that is not known
    LayoutUnknown = 126 {
        cause: "The program has jemalloc, mimalloc, tcmalloc or musl's malloc, by the names of its files or functions. Its \
                descriptions of memory were not found, or contradict each other: it is another version or build \
                (docs/rss.md has those that are known), has nothing allocated, or changes each time.",
        consequence: "Its memory is among the other private memory. The sum is right all the same.",
        remedy: "Stop the process meanwhile: `kill -STOP PID`. Otherwise ask the allocator: `mallctl`, `mi_stats_print`, \
                 `MallocExtension_GetStats`.",
    }
    /// Calls that change mappings were not seen
    MappingsUnseen = 127 {
        cause: "The C library's functions are replaced in programs that are linked dynamically with glibc, near enough to the \
                recorder's library. This one is linked statically, uses musl, or makes its system calls itself, as Go does.",
        consequence: "Its mappings are those that `/proc/PID/maps` had when it was read, at most four times a second.",
        remedy: "Link it dynamically with glibc. docs/mappings.md says what is seen.",
    }
    /// The program is not being recorded
    NotBeingRecorded = 128 {
        cause: "`heapledger live` shows the figures of a recorder, and none has this process. It may have ended, or be recorded \
                by another user.",
        consequence: "There is nothing to show.",
        remedy: "Start it with `heapledger live -- COMMAND`; or record it, `heapledger attach PID`, and ask again. \
                 `heapledger status` lists what is recorded.",
    }
    /// The recording has no resident snapshot
    NoSnapshots = 129 {
        cause: "It was made by an earlier version, with --no-resident, or from another tool's file; or every process ended \
                before there was time for one: in less than a quarter of a second, say (docs/rss.md); or none could be \
                read (HL0117).",
        consequence: "Nothing in the file says where resident memory was. Its curve is in `heapledger timeline`.",
        remedy: "Record again: `heapledger record --resident-exit 10s -- COMMAND`, or `heapledger rss -- COMMAND`. Of a \
                 program that runs: `heapledger rss PID`.",
    }
    /// A snapshot does not divide the live blocks
    NoSites = 130 {
        cause: "The recording is of a sample: of the blocks that are not in it, nobody knows the addresses.",
        consequence: "The parts of resident memory are there, but not which functions keep which pages.",
        remedy: "Record all blocks: `heapledger record` without --sample.",
    }
    /// Resident memory was higher than in the snapshot
    BelowPeak = 131 {
        cause: "A snapshot is made when resident memory has changed by a tenth, as far as there is time: all snapshots may take \
                a fiftieth of a processor. A peak that is short, or early, may be between two of them.",
        consequence: "The snapshot shown is that of the highest moment that has one. How much is missing is in the message.",
        remedy: "Ask for more: `heapledger record --resident-every 100ms -- COMMAND`.",
    }
    /// Mappings were not recorded
    NoMappings = 132 {
        cause: "The question is about memory that is mapped (`--mappings`, `--metric mapped`), and the file has no events of \
                mappings: it was recorded without `--mappings`, by an older version, or is another tool's.",
        consequence: "There is no answer. Exit status 2.",
        remedy: "`heapledger record --mappings -- COMMAND`. Of a running program: `heapledger rss PID` shows what is resident.",
    }
    /// The page of `heapledger open` cannot be served
    CannotListen = 133 {
        cause: "The port of --port is in use by another program, or is below 1024 and needs rights; or the system has no free \
                port on the loopback (127.0.0.1), no random numbers, or no more file descriptors.",
        consequence: "There is no page. Exit status 1.",
        remedy: "Leave --port out: any free port is taken. `ss -ltnp` lists the programs that listen.",
    }
    /// The server of the page does not answer this request
    PageRequest = 134 {
        cause: "The address is not one of the page's; or a question has an option that its verb does not have, or that would \
                name or write a file; or it is about a file that was not given to `heapledger open`, or is gone.",
        consequence: "This request has no answer, and the page goes on. Other programs are not told more.",
        remedy: "Reload the page. docs/open.md lists the addresses and their options. A file is given on the command line: \
                 `heapledger open FILE FILE`.",
    }
} }

#[cfg(test)]
mod tests;
