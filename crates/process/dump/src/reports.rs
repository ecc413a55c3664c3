//! Memory reports and allocator dumps: where they mean the same, each is there as the other.
//!
//! A report of `explicit/cache/pages` is the allocator dump `cache/pages`; what is on the heap is a part of `malloc`. An
//! allocator dump `cache/pages` is the report `dumps/cache/pages`: in a tree of its own, since reporters may have reported the
//! same memory below `explicit/`.

use std::collections::BTreeMap;

use heapledger_profiles::chrome::{Level, ProcessDump, leaves};
use heapledger_report::{Collector, Kind, Report, Unit};

use crate::malloc::MALLOC_OBJECTS;
use crate::process;

/// Adds what reporters have said to a dump: bytes as sizes, numbers as numbers of objects.
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
            // What has happened is no memory, nor is a share.
            Unit::CountCumulative | Unit::Percentage => {}
        }
    }
    let names: Vec<&str> = sums.keys().copied().collect();
    for (at, (&path, &(of_bytes, bytes, count))) in sums.iter().enumerate() {
        // A report beside others below it is one of the parts; a dump with others below it is the whole.
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

/// What the memory of a report is called.
fn name(path: &str) -> &str {
    path.strip_prefix("explicit/").unwrap_or(path)
}

/// Paths with this beginning follow each other in a sorted list, but for names such as `a-b` between `a` and `a/b`.
fn is_below(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
}

/// Reports what providers say, in a light dump.
pub(crate) fn report(collector: &mut Collector) {
    if collector.is_for_dump() {
        return;
    }
    let dump = process::of_providers(Level::Light);
    let strong = dump.allocators().filter(|dump| !dump.is_weak());
    for (name, bytes) in leaves(strong.map(|dump| (dump.name.as_str(), dump.size()))) {
        // What is below the first part may be somebody's.
        let path = match name.split_once('/') {
            Some((root, _)) if collector.is_anonymous() => format!("/dumps/{root}"),
            _ => format!("/dumps/{name}"),
        };
        let amount = i64::try_from(bytes).unwrap_or(i64::MAX);
        collector.report(path, Kind::Other, Unit::Bytes, amount, "What a provider of memory dumps says.");
    }
}

#[cfg(test)]
mod tests {
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
