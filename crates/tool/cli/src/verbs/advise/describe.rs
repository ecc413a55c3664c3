//! The words of advice: a sentence with its figures.

use std::time::Duration;

use heapledger_analysis::{
    Finding, Grows, OtherAllocator, Pool, ReplayedAllocator, Reporters, Reserve, SizeClass, Slop, Temporary,
};
use heapledger_report_format::escape;
use serde_json::{Value, json};

use crate::format::{bytes, count, counted, duration, percent, rate, seconds, time};
use crate::text::quoted;

/// A sentence, its figures, and the verb and options that show them.
type Description = (String, Value, String);

/// Returns the sentence of a finding, its figures, and the verb and options that show it.
pub(super) fn describe(finding: &Finding) -> Description {
    match finding {
        Finding::Grows(it) => grows(it),
        Finding::Reserve(it) => reserve(it),
        Finding::Temporary(it) => temporary(it),
        Finding::Slop(it) => slop(it),
        Finding::Allocator(it) => other_allocator(it),
        Finding::SizeClass(it) => size_class(it),
        Finding::Pool(it) => pool(it),
        Finding::Reporters(it) => reporters(it),
    }
}

fn grows(grows: &Grows) -> Description {
    let (rate, since) = (rate(grows.bytes_per_second), time(grows.since));
    let sentence = format!(
        "What it allocates grows by {rate}, evenly, since {since} and to the end: it keeps something \
         that nobody removes."
    );
    let evidence = json!({
        "bytes_per_second": grows.bytes_per_second,
        "since_seconds": seconds(grows.since),
        "bytes_live": grows.live.0,
    });
    (sentence, evidence, "growth".to_owned())
}

fn reserve(reserve: &Reserve) -> Description {
    let (times, size) = (count(reserve.reallocations.0), bytes(reserve.size_max.0));
    let steps = count(reserve.chain_max);
    let what = match reserve.is_by_small_steps {
        true => "by small steps, so that what is copied grows with the square of the size: let it grow by a factor",
        false => "and copies what it has each time: reserve what is needed, where that is known",
    };
    let sentence =
        format!("It makes blocks larger by realloc, {times} times, one up to {size} in {steps} steps, {what}.");
    let evidence = json!({
        "reallocations": reserve.reallocations.0,
        "chain_max": reserve.chain_max,
        "size_max": reserve.size_max.0,
        "small_steps": reserve.is_by_small_steps,
    });
    (sentence, evidence, "reallocations --by owner".to_owned())
}

fn temporary(temporary: &Temporary) -> Description {
    let (gone, all) = (temporary.temporaries.0, temporary.allocations.0);
    let sentence = format!(
        "{} of its {} allocations ({}) are freed before their thread allocates again: keep one block, and use \
         it again.",
        count(gone),
        count(all),
        percent(gone, all)
    );
    let evidence = json!({ "temporary": gone, "allocations": all });
    (sentence, evidence, "temporary --by owner".to_owned())
}

fn slop(slop: &Slop) -> Description {
    let blocks = counted(slop.blocks.0, "block", "blocks");
    let (size, taken) = (bytes(slop.size.0), bytes(slop.taken.0));
    let sentence =
        format!("{blocks} of {size} each, live at the peak, take {taken} each: put them into fewer, larger blocks.");
    let evidence = json!({ "size": slop.size.0, "taken": slop.taken.0, "blocks": slop.blocks.0 });
    (sentence, evidence, format!("top --size {}", slop.size.0))
}

/// Describes how much more or less one figure is than another.
fn compared(figure: u64, than: u64, format: impl Fn(u64) -> String) -> String {
    let (difference, word) =
        if figure > than { (figure - than, "more") } else { (than.saturating_sub(figure), "less") };
    format!("{} ({}) {word}", format(difference), percent(difference, than))
}

fn other_allocator(found: &OtherAllocator) -> Description {
    let (other, present) = (&found.other, &found.present);
    let (variables, name) = other.split();
    // A name comes from a file: it may hold what a shell or a terminal obeys.
    let variables = variables.into_iter().flat_map(str::split_whitespace).filter_map(|word| word.split_once('='));
    let variables: String = variables.map(|(name, value)| format!("{}={} ", quoted(name), quoted(value))).collect();
    let run = format!("{variables}heapledger run --allocator {} -- COMMAND", quoted(name));
    let sentence = format!(
        "With {}, {} were resident at the peak of the replay, {} than with {}. The calls took {} of processor \
         time, {}. What the program does between its calls is not in these figures: try `{run}`.",
        other.name,
        bytes(other.resident_max.0),
        compared(other.resident_max.0, present.resident_max.0, bytes),
        present.name,
        duration(Duration::from_nanos(other.cpu_ns)),
        compared(other.cpu_ns, present.cpu_ns, |time| duration(Duration::from_nanos(time))),
    );
    let figures = |allocator: &ReplayedAllocator| {
        json!({
            "allocator": allocator.name,
            "bytes_resident_max": allocator.resident_max.0,
            "cpu_ns": allocator.cpu_ns,
        })
    };
    let aim = if found.saves_memory { "memory" } else { "time" };
    let evidence = json!({ "aim": aim, "present": figures(present), "other": figures(other), "try": run });
    let both = format!("replay -a {} -a {}", quoted(&present.name), quoted(&other.name));
    (escape(&sentence).into_owned(), evidence, escape(&both).into_owned())
}

fn size_class(class: &SizeClass) -> Description {
    let blocks = counted(class.blocks.0, "block", "blocks");
    let less = counted(class.size.0 - class.size_below.0, "byte", "bytes");
    let sentence = format!(
        "{blocks} of {} bytes each, live at the peak, have {} each, and those of {less} less have {}: ask for \
         less, or use the rest.",
        count(class.size.0),
        count(class.usable.0),
        count(class.usable_below.0)
    );
    let evidence = json!({
        "size": class.size.0,
        "usable": class.usable.0,
        "size_below": class.size_below.0,
        "usable_below": class.usable_below.0,
        "blocks": class.blocks.0,
    });
    (sentence, evidence, format!("top --metric slop --size {}", class.size.0))
}

fn pool(pool: &Pool) -> Description {
    let sentence = format!(
        "{} of it ({}), live at {}, kept {} of memory that was free otherwise: {}, each for one block, between \
         blocks that were freed. Give them a pool or an arena of their own.",
        counted(pool.blocks.0, "block", "blocks"),
        bytes(pool.size.0),
        time(pool.time),
        bytes(pool.kept.0),
        counted(pool.pages_alone, "page", "pages"),
    );
    let evidence = json!({
        "process": pool.process,
        "at_seconds": seconds(pool.time),
        "blocks": pool.blocks.0,
        "bytes_live": pool.size.0,
        "pages_alone": pool.pages_alone,
        "bytes_kept": pool.kept.0,
        "bytes_resident": pool.resident.0,
    });
    let moment = format!("{}.{:09}s", pool.time.0 / 1_000_000_000, pool.time.0 % 1_000_000_000);
    (sentence, evidence, format!("rss --by owner --at {moment} -p {}", pool.process))
}

fn reporters(reporters: &Reporters) -> Description {
    let sentence = format!("{}.", reporters.sentence);
    (sentence, json!({ "blocks": reporters.blocks }), "dmd --advice".to_owned())
}

#[cfg(test)]
mod tests {
    use heapledger_core::Bytes;

    use super::*;

    #[test]
    fn names_of_allocators_are_harmless() {
        let allocator = |name: &str| ReplayedAllocator { name: name.to_owned(), resident_max: Bytes(1), cpu_ns: 1 };
        let found = OtherAllocator {
            present: allocator("system\u{1b}[31m"),
            other: allocator("A=$(reboot) B=1 jemalloc\u{1b}[2J"),
            saves_memory: true,
        };
        let (sentence, evidence, both) = other_allocator(&found);
        assert!(!sentence.contains('\u{1b}') && !both.contains('\u{1b}'), "{sentence:?} {both:?}");
        let command = evidence["try"].as_str().unwrap();
        assert!(command.starts_with("A='$(reboot)' B=1 heapledger run --allocator 'jemalloc"), "{command:?}");
    }
}
