//! Memory reports as allocator dumps: a report of `explicit/cache/pages` becomes the allocator dump
//! `cache/pages`; memory on the heap is a part of `malloc`.

use std::collections::BTreeMap;

use heapledger_profile_formats::chrome::ProcessDump;
use heapledger_reporters::{Kind, Report, Unit};

use crate::malloc::MALLOC_OBJECTS;

/// Adds reports to a dump: bytes as sizes, counts as numbers of objects.
pub(crate) fn add(reports: &[Report], dump: &mut ProcessDump) {
    let mut sums: BTreeMap<&str, (Option<&Report>, u64, u64)> = BTreeMap::new();
    for report in reports {
        let (Ok(amount), path) = (u64::try_from(report.amount), name(&report.path)) else { continue };
        let (of_bytes, bytes, count) = sums.entry(path).or_default();
        match report.unit {
            Unit::Bytes => {
                *of_bytes = Some(report);
                *bytes = bytes.saturating_add(amount);
            }
            Unit::Count => *count = count.saturating_add(amount),
            // Cumulative counts and percentages are not memory.
            Unit::CountCumulative | Unit::Percentage => {}
        }
    }
    let names: Vec<&str> = sums.keys().copied().collect();
    for (at, (&path, &(of_bytes, bytes, count))) in sums.iter().enumerate() {
        // A report that has others below it is one of the parts; an allocator dump that has others
        // below it is the whole.
        let is_whole = names.get(at + 1).is_some_and(|next| is_below(next, path));
        if let Some(report) = of_bytes {
            let part = if is_whole { format!("{path}/(other)") } else { path.to_owned() };
            let guid = dump.allocator(&part).set_size(bytes).guid;
            if report.kind == Kind::Heap {
                dump.suballocate(guid, MALLOC_OBJECTS);
            }
        }
        if count > 0 {
            dump.allocator(path).set_object_count(count);
        }
    }
}

/// Returns the name in a dump for the memory of a report.
fn name(path: &str) -> &str {
    path.strip_prefix("explicit/").unwrap_or(path)
}

/// True if a path is below another one. In a sorted list such paths follow each other, except for
/// names such as `a-b` between `a` and `a/b`.
fn is_below(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use heapledger_profile_formats::chrome::Level;

    use super::*;

    fn report(path: &str, kind: Kind, unit: Unit, amount: i64) -> Report {
        let (process, description) = ("".into(), "".into());
        Report { process, path: path.into(), stable_path: None, kind, unit, amount, description }
    }

    #[test]
    fn reports_are_dumps() {
        let reports = [
            report("explicit/cache/pages", Kind::Heap, Unit::Bytes, 4096),
            report("explicit/cache/pages", Kind::Heap, Unit::Bytes, 4),
            report("explicit/cache", Kind::NonHeap, Unit::Bytes, 10),
            report("cache", Kind::Other, Unit::Count, 3),
            report("hits", Kind::Other, Unit::CountCumulative, 3),
            report("wrong", Kind::Other, Unit::Bytes, -1),
        ];
        let mut dump = ProcessDump::new(7, "a", 0, Level::Light);
        add(&reports, &mut dump);
        assert_eq!((dump.size_of("cache/pages"), dump.size_of("cache/(other)")), (Some(4100), Some(10)));
        let said: Vec<_> = dump.allocators().map(|dump| dump.name.as_str()).collect();
        let part = said.iter().find(|name| name.starts_with("malloc/allocated_objects/__")).unwrap();
        assert_eq!(said, ["cache", "cache/(other)", "cache/pages", part]);
        assert_eq!(dump.allocators().next().unwrap().scalar("object_count"), Some(3));
        assert_eq!(dump.edges().count(), 1, "only what is on the heap is of malloc");
    }
}
