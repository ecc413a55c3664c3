//! Advice on the resident memory of a process: sentences, and what to try.

use std::time::Duration;

use heapledger_resident::{Allocator, HugePages, IdleMemory, Piece, ResidentAdvice, ResidentFinding, ResidentMemory};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Result;
use crate::format::{bytes, count, counted, duration, percent, wrapped};
use crate::output::Output;

/// The width of the text, in columns.
const WIDTH: usize = 80;

/// A piece of advice.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct AdviceJson {
    /// The rule, such as `trim`, `arenas` or `huge-pages`.
    rule: &'static str,
    /// The bytes that would not be resident. Several pieces of advice may count the same bytes.
    bytes: u64,
    sentence: String,
    /// How to try it.
    #[serde(rename = "try")]
    attempt: String,
    /// The figures on which the rule is based.
    evidence: Value,
}

/// Returns the advice, in descending order of bytes.
pub(super) fn document(memory: &ResidentMemory, idle: Option<&IdleMemory>) -> Vec<AdviceJson> {
    let mut advice = memory.advice();
    advice.extend(idle.and_then(IdleMemory::advice));
    advice.sort_by_key(|advice| std::cmp::Reverse(advice.bytes));
    advice.iter().map(describe).collect()
}

/// Prints the advice, if there is any.
pub(super) fn print(memory: &ResidentMemory, idle: Option<&IdleMemory>, out: &mut Output) -> Result<()> {
    let advice = document(memory, idle);
    if advice.is_empty() {
        return Ok(());
    }
    out.line("")?;
    out.title(match advice.len() {
        1 => "1 piece of advice, computed and not tried",
        _ => "advice, computed and not tried; several pieces may count the same bytes",
    })?;
    for (number, advice) in advice.iter().enumerate() {
        out.line("")?;
        out.line(format_args!("{}. {}, {}", number + 1, advice.rule, bytes(advice.bytes)))?;
        for line in wrapped(&advice.sentence, WIDTH - 3) {
            out.line(format_args!("   {line}"))?;
        }
        for (at, line) in wrapped(&advice.attempt, WIDTH - 8).iter().enumerate() {
            out.line(format_args!("   {} {line}", if at == 0 { "try:" } else { "    " }))?;
        }
    }
    Ok(())
}

/// A sentence, how to try it, and its figures.
type Description = (String, String, Value);

fn describe(advice: &ResidentAdvice) -> AdviceJson {
    let would = bytes(advice.bytes);
    let (sentence, attempt, evidence) = match advice.finding {
        ResidentFinding::Trim { free, top } => trim(&would, free, top),
        ResidentFinding::Arenas { arenas, arenas_left, resident, free } => {
            fewer_arenas(&would, [arenas, arenas_left], resident, free)
        }
        ResidentFinding::ThreadCaches { caches, cached } => thread_caches(&would, caches, cached),
        ResidentFinding::HugePages(huge) => huge_pages(&would, huge),
        ResidentFinding::FreePages { allocator, free, heap } => free_pages(allocator, free, heap),
        ResidentFinding::Idle { milliseconds, mappings, largest, largest_idle } => {
            untouched(&would, milliseconds, mappings, (largest, largest_idle))
        }
        _ => (String::new(), String::new(), Value::Null),
    };
    AdviceJson { rule: advice.finding.rule(), bytes: advice.bytes, sentence, attempt, evidence }
}

fn trim(would: &str, free: Piece, top: Piece) -> Description {
    let chunks = match free.chunks {
        0 => "freed chunks".to_owned(),
        chunks => counted(chunks, "freed chunk", "freed chunks"),
    };
    let sentence = format!(
        "malloc_trim(0) would give back {would}: whole pages of {chunks} between blocks in use, and of the end of \
         the brk heap. By itself, glibc gives back the ends of heaps alone."
    );
    let attempt = "call malloc_trim(0) when much has been freed, or at idle times";
    let evidence = json!({
        "chunks_free": free.chunks,
        "bytes_free": free.resident,
        "bytes_at_ends": top.resident,
    });
    (sentence, attempt.to_owned(), evidence)
}

fn fewer_arenas(would: &str, [arenas, left]: [u64; 2], resident: u64, free: u64) -> Description {
    let sentence = format!(
        "{} of the {} of {} arenas are free ({}), each for the threads of its arena alone. If the threads need \
         their memory one after the other, {left} arenas would do with {would} less; threads that allocate at the \
         same time would wait for each other.",
        bytes(free),
        bytes(resident),
        count(arenas),
        percent(free, resident)
    );
    let attempt = format!("run it with MALLOC_ARENA_MAX={left}, or call mallopt(M_ARENA_MAX, {left}) first");
    let evidence = json!({
        "arenas": arenas,
        "arenas_left": left,
        "bytes_resident": resident,
        "bytes_free": free,
    });
    (sentence, attempt, evidence)
}

fn thread_caches(would: &str, caches: u64, cached: Piece) -> Description {
    let sentence = format!(
        "{} ({}) are free, but kept in the caches of {}, up to 7 of each size: no other thread can use them. \
         Without caches, {would} would go back if nothing in use is behind them: each arena keeps 128 KiB.",
        counted(cached.chunks, "chunk", "chunks"),
        bytes(cached.resident),
        counted(caches, "thread", "threads"),
    );
    let attempt = "run it with GLIBC_TUNABLES=glibc.malloc.tcache_count=0 (or 1 or 2: small blocks then take a \
                   lock), or with fewer threads";
    let evidence = json!({ "caches": caches, "chunks_cached": cached.chunks, "bytes_cached": cached.resident });
    (sentence, attempt.to_owned(), evidence)
}

fn huge_pages(would: &str, huge: HugePages) -> Description {
    let examined = match huge.examined < huge.bytes {
        true => format!(" (of {} that were examined)", bytes(huge.examined)),
        false => String::new(),
    };
    let sentence = format!(
        "Of {} in huge pages, {} holds nothing but zeroes{examined}: the program has not written to it, and {would} \
         would not be resident in small pages. Programs with much memory run slower then.",
        bytes(huge.bytes),
        percent(huge.empty, huge.bytes)
    );
    let attempt = "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) before its memory is made, or no madvise(MADV_HUGEPAGE); \
                   for the machine: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    let evidence = json!({
        "bytes_huge": huge.bytes,
        "bytes_examined": huge.examined,
        "bytes_empty": huge.empty,
    });
    (sentence, attempt.to_owned(), evidence)
}

fn free_pages(allocator: Allocator, [kept, lazy]: [Piece; 2], heap: u64) -> Description {
    let may_take = match lazy.resident {
        0 => String::new(),
        lazy => format!("; {} of these the system may take when it needs memory", bytes(lazy)),
    };
    let sentence = format!(
        "{} of the {} of {}'s heap are free pages that it keeps for later{may_take}.",
        bytes(kept.resident.saturating_add(lazy.resident)),
        bytes(heap),
        allocator.name(),
    );
    let evidence = json!({
        "allocator": allocator.name(),
        "bytes_heap": heap,
        "bytes_kept": kept.resident,
        "bytes_lazy": lazy.resident,
    });
    (sentence, how_to_give_back(allocator).to_owned(), evidence)
}

fn untouched(would: &str, milliseconds: u64, mappings: u64, (largest, bytes_of_it): (u64, u64)) -> Description {
    let sentence = format!(
        "{would} of private memory in {} were not touched in {}. The largest has {} of it, at {largest:#x}. If that \
         is so for longer, the program does not need them.",
        counted(mappings, "mapping", "mappings"),
        duration(Duration::from_millis(milliseconds)),
        bytes(bytes_of_it),
    );
    let attempt = "find who maps it (heapledger record --mappings, top --mappings), and unmap it or map it when it \
                   is needed; with swap, madvise(MADV_PAGEOUT)";
    let evidence = json!({
        "seconds": milliseconds as f64 / 1e3,
        "mappings": mappings,
        "largest": format!("{largest:#x}"),
        "bytes_largest": bytes_of_it,
    });
    (sentence, attempt.to_owned(), evidence)
}

/// Returns the settings by which an allocator gives free pages back.
fn how_to_give_back(allocator: Allocator) -> &'static str {
    match allocator {
        Allocator::Jemalloc => {
            "run it with MALLOC_CONF=background_thread:true (pages go back after 10 s, also if the program does \
             nothing), or dirty_decay_ms:1000,muzzy_decay_ms:0; or call mallctl(\"arena.4096.purge\", …) at idle times"
        }
        Allocator::Mimalloc => "run it with MIMALLOC_PURGE_DELAY=0, or call mi_collect(true) at idle times",
        Allocator::Tcmalloc => {
            "run it with TCMALLOC_RELEASE_RATE=10, or call MallocExtension_ReleaseFreeMemory() at idle times"
        }
        _ => "its documentation says how it gives memory back",
    }
}
