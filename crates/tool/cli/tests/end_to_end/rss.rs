//! `heapledger rss`: every page of a running program, compared with the program's own figures.

mod allocators;
mod exits;
mod recorded;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

pub(crate) use self::recorded::Recorded;

use crate::documents;
use crate::harness::*;

/// A program that waits until its stdin is closed, and the lines that it printed up to `end`.
pub(crate) struct Waiting {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    lines: Vec<String>,
}

impl Waiting {
    pub(crate) fn begin(command: &mut Command) -> Waiting {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let lines = stdout.by_ref().lines().map(Result::unwrap);
        let lines = lines.take_while(|line| line != "end").collect();
        Waiting { child, stdout, lines }
    }

    /// Writes a byte to the program, and waits for a line.
    pub(crate) fn tell(&mut self) -> String {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Returns the numbers of the line that begins with a word.
    pub(crate) fn numbers(&self, word: &str) -> Vec<u64> {
        let line = self.lines.iter().find_map(|line| line.strip_prefix(word)).unwrap();
        line.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    pub(crate) fn ask(&self) -> Value {
        let outcome = heapledger(["rss", &self.child.id().to_string(), "--json"]);
        assert!(outcome.status.success(), "{outcome:?}");
        documents::read(&outcome.stdout)
    }

    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Returns a shell script that starts a Redis server with 20,000 keys in the working directory,
/// runs a line, prints the server's pid, and waits until its stdin is closed. In the line, `ask`
/// runs a command of Redis. `None` if Redis is not installed.
fn redis(line: &str) -> Option<String> {
    installed("redis-server").and(installed("redis-cli"))?;
    Some(format!(
        "
redis-server --port 0 --unixsocket ./socket --save '' --appendonly no > /dev/null & server=$!
ask() {{ redis-cli -s ./socket \"$@\"; }}
until ask ping 2> /dev/null | grep -q PONG; do kill -0 $server || exit 1; done
i=0; while [ $i -lt 20000 ]; do echo \"set key$i value$i$i$i$i$i$i$i\"; i=$((i+1)); done | ask > /dev/null
{line}
echo pid $server; echo end; read line
ask shutdown nosave; wait $server
"
    ))
}

/// Checks that the parts and the difference add up to the kernel's figure. Returns
/// the resident bytes of a kind.
fn resident_of(answer: &Value, kind: &str) -> i64 {
    let rows = answer["rows"].as_array().unwrap();
    let sum: i64 = rows.iter().map(|row| number(row, "bytes_resident")).sum();
    assert_eq!(sum, number(answer, "bytes_found"), "{answer:#}");
    assert_eq!(sum + number(answer, "bytes_difference"), number(answer, "bytes_resident"), "{answer:#}");
    let of_kind = rows.iter().filter(|row| row["kind"] == kind);
    of_kind.map(|row| number(row, "bytes_resident")).sum()
}

/// Returns the value of an attribute in a line of `malloc_info`.
fn attribute(line: &str, name: &str) -> i64 {
    let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
    rest.split_once('"').unwrap().0.parse().unwrap()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn sixty_five_arenas_are_as_glibc_counts_them() {
    let mut waiting = Waiting::begin(Command::new(program("many_arenas")).arg("64"));
    let answer = waiting.ask();
    if answer["knows_zeroes"] == true {
        assert_eq!(number(&answer, "bytes_difference"), 0, "{answer:#}");
    }
    let arenas = answer["glibc"]["arenas"].as_array().unwrap();
    let sum = |piece: &str, field: &str| arenas.iter().map(|arena| number(&arena[piece], field)).sum::<i64>();
    let [arena, chunks_free, chunks_fast, mapped, mapped_bytes, fast, used, free, keep] =
        waiting.numbers("mallinfo2 ")[..].try_into().map(|all: [u64; 9]| all.map(|number| number as i64)).unwrap();
    // All figures of glibc are these, to the byte.
    assert_eq!(arenas.iter().map(|arena| number(arena, "bytes_system")).sum::<i64>(), arena);
    assert_eq!((sum("fast", "chunks"), sum("fast", "bytes")), (chunks_fast, fast));
    assert_eq!(sum("free", "chunks") + sum("top", "chunks"), chunks_free);
    assert_eq!(sum("free", "bytes") + sum("top", "bytes") + fast, free);
    assert_eq!(sum("used", "bytes") + sum("cached", "bytes") + sum("bookkeeping", "bytes"), used);
    assert_eq!(sum("unread", "bytes"), 0);
    assert_eq!(number(&arenas[0]["top"], "bytes"), keep);
    let blocks = &answer["glibc"]["mapped"];
    assert_eq!((number(blocks, "chunks"), number(blocks, "bytes")), (mapped, mapped_bytes));
    // And so are those of each arena, which glibc lists in the same order.
    let totals = |kind: &str| {
        let start = format!("<{kind}");
        waiting.lines.iter().filter(|line| line.starts_with(&start)).cloned().collect::<Vec<_>>()
    };
    let (fast, system) = (totals("total type=\"fast\""), totals("system type=\"current\""));
    assert_eq!((arenas.len(), fast.len(), system.len()), (65, 66, 66));
    for ((arena, fast), system) in arenas.iter().zip(&fast).zip(&system) {
        assert_eq!(number(arena, "bytes_system"), attribute(system, "size"), "{arena:#}");
        assert_eq!(number(&arena["fast"], "bytes"), attribute(fast, "size"), "{arena:#}");
    }
    // Each thread has a cache. The one with two heaps has also freed the end of the first.
    assert!(number(&answer["glibc"], "caches") >= 64, "{answer:#}");
    let cached = waiting.numbers("cached ")[0] as i64 / 64;
    let heaps: i64 = arenas[1..].iter().map(|arena| number(arena, "heaps")).sum();
    assert_eq!(heaps, 65);
    for arena in &arenas[1..] {
        let bytes = number(&arena["cached"], "bytes");
        assert!(bytes == cached || (number(arena, "heaps") == 2 && bytes > cached), "{arena:#}");
    }
    let of = |kind: &str| answer["rows"].as_array().unwrap().iter().find(|row| row["kind"] == kind).unwrap();
    assert_eq!(number(of("thread-stack"), "count"), 64, "{answer:#}");
    // The beginning of each of the large blocks was written to.
    let mapped = resident_of(&answer, "glibc-mapped");
    assert!((3 * 10_000..3 * 16_384).contains(&mapped), "{mapped}");

    let text = heapledger(["rss", &waiting.child.id().to_string()]).text();
    assert!(text.contains("heap of glibc's malloc, in 65 arenas\n"), "{text}");
    assert!(text.contains("of other threads  64 stacks\n"), "{text}");
    assert!(text.contains("difference to the kernel's figure\n"), "{text}");
    // The promise comes true. Chunks of fastbins are merged first, so that a page more of some
    // neighbours goes.
    let promised: i64 = arenas.iter().map(|arena| number(arena, "bytes_trimmable")).sum();
    assert!(promised > 2 << 20 && text.contains("malloc_trim(0) would give back "), "{promised} {text}");
    assert_eq!(waiting.tell(), "trimmed\n");
    let after = waiting.ask();
    let given_back = number(&answer, "bytes_resident") - number(&after, "bytes_resident");
    assert!((promised..=promised + 65 * 16 * 4096).contains(&(given_back + 16 * 4096)), "{promised} {given_back}");
    waiting.end();
}

#[test]
fn an_interpreter_is_accounted_for() {
    let Some(python) = installed("python3") else { return };
    let script = "
import mmap, sys
kept = [str(number) * 50 for number in range(100_000)]
del kept[::2]
private = mmap.mmap(-1, 3 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
shared = mmap.mmap(-1, 5 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
private[:] = bytes([1]) * len(private)
shared[:] = bytes([1]) * len(shared)
read = mmap.mmap(-1, 7 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
sum(read[::4096])
print('end', flush=True)
sys.stdin.read()
";
    let waiting = Waiting::begin(Command::new(python).args(["-c", script]));
    let answer = waiting.ask();
    let difference = number(&answer, "bytes_difference");
    assert!(difference == 0 || answer["knows_zeroes"] == false, "{answer:#}");
    assert!(resident_of(&answer, "shared") >= 5 << 20, "{answer:#}");
    assert!(resident_of(&answer, "anonymous") >= 3 << 20, "{answer:#}");
    assert!(resident_of(&answer, "glibc-used") > 0 && resident_of(&answer, "file") > 1 << 20, "{answer:#}");
    assert!(resident_of(&answer, "main-stack") > 0, "{answer:#}");
    waiting.end();
}

/// Huge pages of which little is used, addresses that are only reserved, guards and page tables.
#[test]
fn memory_that_is_not_what_it_seems() {
    let waiting = Waiting::begin(&mut Command::new(program("huge")));
    let answer = waiting.ask();
    let figure = |name: &str| waiting.numbers(&format!("{name} "))[0] as i64;
    assert!(number(&answer, "bytes_difference") == 0 || answer["knows_zeroes"] == false, "{answer:#}");
    let untouched = figure("reserved") + figure("tables");
    assert!(
        number(&answer, "bytes_mapped") > untouched && number(&answer, "bytes_resident") < untouched / 8,
        "{answer:#}"
    );
    assert!(number(&answer, "bytes_reserved") >= figure("guards"), "{answer:#}");
    let tables = figure("tables") / (2 << 20) * 4096;
    assert!((tables..2 * tables).contains(&number(&answer, "bytes_page_tables")), "{answer:#}");
    // The machine may have no free huge pages. 4 KiB of each are in use.
    let huge = number(&answer, "bytes_huge");
    if answer["knows_zeroes"] == true {
        assert_eq!(number(&answer, "bytes_huge_zeroes"), huge / (2 << 20) * ((2 << 20) - 4096), "{answer:#}");
        let text = heapledger(["rss", &waiting.child.id().to_string()]).text();
        assert!(huge == 0 || text.contains("of it zeroes) "), "{text}");
    }
    waiting.end();
}

/// A server that has freed most of its memory, with jemalloc: Debian's links it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_server_after_deletes() {
    let Some(script) = redis("ask flushall > /dev/null") else { return };
    let scratch = Scratch::new();
    let waiting = Waiting::begin(Command::new("sh").args(["-c", &script]).current_dir(scratch.path()));
    let server = waiting.numbers("pid ")[0].to_string();
    let outcome = heapledger(["rss", &server, "--json"]);
    let answer = documents::read(&outcome.stdout);
    let whole = number(&answer, "bytes_resident");
    // Timers run meanwhile.
    assert!(number(&answer, "bytes_difference").abs() < whole / 20, "{answer:#}");
    // Blocks that were freed are kept: in runs with blocks in use, or as whole pages.
    let kept: i64 =
        ["cached", "free", "dirty"].map(|kind| resident_of(&answer, &format!("allocator-{kind}"))).iter().sum();
    assert!(kept > 64 << 10 && resident_of(&answer, "allocator-used") > 64 << 10, "{answer:#}");
    assert_eq!(answer["allocators"][0]["allocator"], "jemalloc", "{answer:#}");
    assert!(number(&answer, "threads") > 1, "{answer:#}");
    assert_eq!(answer["command"], "redis-server");
    waiting.end();
}

/// Runs `rss` under a filter of system calls. Returns its answer and its messages.
fn ask_filtered(how: &str, process: u32) -> (Value, String) {
    let mut command = Command::new(program("filtered"));
    command.arg(how).args([env!("CARGO_BIN_EXE_heapledger"), "rss", &process.to_string(), "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (documents::read(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A stack that is a part of a mapping, a kernel that does not tell pages of zeroes, and one that
/// refuses the fast copy.
#[test]
fn kernels_that_tell_less() {
    const STACK: i64 = 256 << 10;
    const ABOVE: i64 = 512 << 10;
    const READ: i64 = 1 << 20;
    let waiting = Waiting::begin(Command::new(program("stack_below")).args(["256", "512"]));
    let answer = waiting.ask();
    let stack = |answer: &Value| {
        let rows = answer["rows"].as_array().unwrap();
        number(rows.iter().find(|row| row["kind"] == "thread-stack").unwrap(), "bytes_mapped")
    };
    assert_eq!(stack(&answer), STACK, "{answer:#}");
    assert!(resident_of(&answer, "thread-stack") <= STACK, "{answer:#}");
    assert!(resident_of(&answer, "anonymous") >= ABOVE, "{answer:#}");
    let knows_zeroes = answer["knows_zeroes"] == true;
    if knows_zeroes {
        assert_eq!(number(&answer, "bytes_difference"), 0, "{answer:#}");
    }
    let kernel = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", waiting.child.id())).unwrap();
    let resident = kernel.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    let resident: i64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert_eq!(number(&answer, "bytes_resident"), resident << 10);

    // Root sees the numbers of pages, and so which are of zeroes.
    let (told, said) = ask_filtered("scan", waiting.child.id());
    assert_eq!(said.contains("[HL0119]"), told["knows_zeroes"] == false, "{said}");
    if told["knows_zeroes"] == true {
        assert_eq!(number(&told, "bytes_difference"), 0, "{told:#}");
    }
    let (old, said) = ask_filtered("blind", waiting.child.id());
    assert!(said.contains("[HL0119]"), "{said}");
    assert_eq!((&old["knows_zeroes"], stack(&old)), (&Value::Bool(false), STACK), "{old:#}");
    let difference = number(&old, "bytes_difference");
    assert!((-2 * READ..=4096 - READ).contains(&difference), "{old:#}");
    let (copied, said) = ask_filtered("copy", waiting.child.id());
    assert_eq!(said.contains("[HL0119]"), !knows_zeroes, "{said}");
    // Other processes run the same programs, so that only what is shared may differ.
    let kinds = ["glibc-used", "glibc-mapped", "thread-stack", "anonymous", "file"];
    let resident = |answer: &Value| kinds.map(|kind| resident_of(answer, kind));
    assert_eq!((resident(&copied), &copied["glibc"]), (resident(&answer), &answer["glibc"]));
    waiting.end();
}

#[test]
fn a_heap_that_is_overwritten_is_not_walked() {
    let waiting = Waiting::begin(Command::new(program("stack_below")).args(["256", "512", "overwrite"]));
    let outcome = heapledger(["rss", &waiting.child.id().to_string(), "--json"]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(said.contains("[HL0118]"), "{said}");
    let answer = documents::read(&outcome.stdout);
    assert!(resident_of(&answer, "glibc-unread") > 0 && resident_of(&answer, "glibc-used") > 0, "{answer:#}");
    if answer["knows_zeroes"] == true {
        assert_eq!(number(&answer, "bytes_difference"), 0, "{answer:#}");
    }
    waiting.end();
}

#[test]
fn processes_that_cannot_be_shown() {
    let none = heapledger(["rss", "4294967295"]);
    assert_eq!(none.status, exited(102));
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(said.contains("there is no process 4294967295 with memory\n\nhint: `pgrep NAME`"), "{said}");
}
