//! The things that can be shown: measurements, and files that were loaded.

use std::collections::VecDeque;
use std::sync::Arc;

use heapledger_dmd::Log;
use heapledger_http::HttpResponse;
use heapledger_report_format::{Report, Reports};

/// The newest things that can be shown. The oldest are dropped to make room.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    kept: VecDeque<CacheEntry<T>>,
    next_id: u64,
    bytes_max: usize,
}

/// Something that can be shown.
#[derive(Clone, Debug)]
pub(crate) struct CacheEntry<T> {
    /// The id, which is never given out twice.
    pub(crate) id: u64,
    pub(crate) origin: Origin,
    pub(crate) content: Arc<T>,
    bytes: usize,
}

/// A thing that a cache can keep.
pub(crate) trait CacheSize {
    /// Returns roughly how much memory it takes: shared texts count for each thing that has them.
    fn bytes(&self) -> usize;
}

/// The origin of a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Measured by the program.
    Measured {
        /// Milliseconds since 1970.
        at: u64,
        /// The duration of the measurement.
        milliseconds: u64,
    },
    /// Loaded from a file with this name.
    Loaded(String),
}

impl<T: CacheSize> Cache<T> {
    pub(crate) fn new(bytes_max: usize) -> Cache<T> {
        Cache { kept: VecDeque::new(), next_id: 1, bytes_max }
    }

    /// Keeps something, and returns its id.
    pub(crate) fn keep(&mut self, origin: Origin, content: T) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let bytes = content.bytes();
        self.kept.push_back(CacheEntry { id, origin, content: Arc::new(content), bytes });
        // A comparison needs two.
        while self.kept.len() > 2 && self.bytes() > self.bytes_max {
            self.kept.pop_front();
        }
        id
    }

    pub(crate) fn get(&self, id: u64) -> Option<&CacheEntry<T>> {
        self.kept.iter().find(|one| one.id == id)
    }

    pub(crate) fn forget(&mut self, id: u64) {
        self.kept.retain(|one| one.id != id);
    }

    /// Returns roughly how much memory everything takes.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.iter().map(|one| one.bytes).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &CacheEntry<T>> {
        self.kept.iter()
    }
}

impl CacheSize for Reports {
    fn bytes(&self) -> usize {
        self.reports.iter().map(bytes).sum()
    }
}

fn bytes(report: &Report) -> usize {
    let stable_path = report.stable_path.as_ref().map_or(0, |path| path.len());
    size_of::<Report>() + report.path.len() + stable_path + report.description.len()
}

impl CacheSize for Log {
    fn bytes(&self) -> usize {
        let texts = self.frames.iter().chain(&self.names).map(|text| size_of::<String>() + text.len());
        let traces = self.traces.iter().map(|trace| size_of::<Vec<u32>>() + trace.len() * size_of::<u32>());
        let groups = self
            .groups
            .iter()
            .map(|group| size_of::<heapledger_dmd::Group>() + group.sizes.len() * size_of::<heapledger_dmd::Size>());
        texts.chain(traces).chain(groups).sum()
    }
}

/// Returns the answer to a request for something that was dropped.
pub(crate) fn no_longer_cached() -> HttpResponse {
    HttpResponse::text(410, "this measurement is no longer kept: newer ones needed the room")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            process: "p".into(),
            path: "explicit/a".into(),
            stable_path: None,
            kind: heapledger_report_format::Kind::Heap,
            unit: heapledger_report_format::Unit::Bytes,
            amount: 1,
            description: "A.".into(),
        }
    }

    fn reports(count: usize) -> Reports {
        Reports { reports: vec![report(); count], has_usable_size: true }
    }

    #[test]
    fn the_oldest_make_room() {
        let mut cache = Cache::new(10 * bytes(&report()));
        let ids: Vec<u64> = [4, 4, 4].map(|count| cache.keep(Origin::Loaded(String::new()), reports(count))).into();
        assert_eq!(cache.iter().map(|one| one.id).collect::<Vec<_>>(), ids[1..]);
        assert!(cache.get(ids[0]).is_none());
        // Two are kept, however large.
        cache.keep(Origin::Loaded(String::new()), reports(40));
        let last = cache.keep(Origin::Loaded(String::new()), reports(40));
        assert_eq!(cache.iter().count(), 2);
        cache.forget(last);
        assert_eq!(cache.iter().count(), 1);
    }
}
