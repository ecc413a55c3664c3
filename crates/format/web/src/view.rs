//! The view of a measurement or a difference, with its options and the nodes that are toggled.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use heapledger_http::HttpResponse;
use heapledger_report_format::Reports;
use heapledger_report_format::about::{self, Filter, Page};
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, no_longer_cached};
use crate::rows::{NamedRow, Overview, Process, Rows, Shown, VISIBLE_ROWS_MAX, VisibleRows, key};

/// A request from the browser. It is complete: no state is kept about who looks at what.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewRequest {
    #[serde(flatten)]
    view: View,
    /// Keys of nodes that are open although the page has them closed, or the other way round.
    #[serde(default)]
    toggled: Vec<String>,
    #[serde(default)]
    from: usize,
    #[serde(default)]
    count: usize,
}

/// The part of a request whose result can be kept to be shown again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct View {
    measurement: u64,
    /// The measurement that it is compared with, which is subtracted.
    #[serde(default)]
    base: Option<u64>,
    #[serde(default)]
    verbose: bool,
    #[serde(default)]
    filter: String,
    #[serde(default)]
    is_regex: bool,
}

/// The views that were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Views(VecDeque<CachedView>);

#[derive(Debug)]
struct CachedView {
    view: View,
    rows: Arc<Rows>,
    resident: String,
    toggled: HashSet<u64>,
    seen: VisibleRows,
}

/// The number of pages that are kept: the current one, and one that it is compared with or that was
/// there before a filter.
const KEPT_MAX: usize = 2;

/// The most rows in one answer, whatever was asked for.
const COUNT_MAX: usize = 2_000;

impl ViewRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<ViewRequest, HttpResponse> {
        serde_json::from_slice(body).map_err(|error| HttpResponse::text(400, format!("no view: {error}")))
    }

    fn toggled(&self) -> HashSet<u64> {
        self.toggled.iter().filter_map(|key| u64::from_str_radix(key, 16).ok()).collect()
    }

    /// Returns the same view as text, in Firefox's format.
    pub(crate) fn text(&self, cache: &Cache<Reports>) -> Result<String, HttpResponse> {
        let mut page = self.view.page(cache)?;
        let toggled = self.toggled();
        for section in &mut page.sections {
            let roots = section.explicit.iter_mut().chain(&mut section.others);
            let mut coming: Vec<_> = roots.collect();
            while let Some(node) = coming.pop() {
                node.is_collapsed ^= toggled.contains(&key(&section.process, node.unit, &node.path));
                coming.extend(&mut node.children);
            }
        }
        let mut text = String::new();
        page.print(&mut text).map_err(|error| HttpResponse::text(500, error.to_string()))?;
        Ok(text)
    }
}

impl View {
    fn page(&self, cache: &Cache<Reports>) -> Result<Page, HttpResponse> {
        let get = |id| cache.get(id).map(|one| &*one.content).ok_or_else(no_longer_cached);
        let mut options = about::AboutOptions { verbose: self.verbose, ..about::AboutOptions::default() };
        let ParsedFilter { process, path } = ParsedFilter::parse(&self.filter);
        if !path.is_empty() {
            options.filter = Some(match self.is_regex {
                true => Filter::pattern(path).map_err(|error| HttpResponse::text(422, error.to_string()))?,
                false => Filter::text(path),
            });
        }
        let shown = get(self.measurement)?;
        let mut page = match self.base {
            None => Page::of(shown, &options),
            Some(base) => {
                let difference = heapledger_report_format::Difference::between(get(base)?, shown);
                let difference = difference.map_err(|error| HttpResponse::text(422, error.to_string()))?;
                Page::of_difference(&difference, &options)
            }
        };
        page.sections.retain(|section| section.process.contains(process));
        Ok(page)
    }
}

/// The two parts of a filter: `process:web js/`, or `process:"web (pid 12)" js/` if a name has
/// spaces.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ParsedFilter<'a> {
    /// A part of the names of the processes that are shown; empty: all are.
    process: &'a str,
    /// A part of paths, or a pattern for them.
    path: &'a str,
}

impl<'a> ParsedFilter<'a> {
    fn parse(filter: &'a str) -> ParsedFilter<'a> {
        let Some(after) = filter.strip_prefix("process:") else { return ParsedFilter { process: "", path: filter } };
        let (process, path) = match after.strip_prefix('"') {
            // Without a second quotation mark the name is still being typed.
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(' ').unwrap_or((after, "")),
        };
        ParsedFilter { process, path: path.trim_start() }
    }
}

impl Views {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns roughly how much memory the views take.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|kept| kept.rows.bytes() + kept.seen.len() * size_of::<u32>()).sum()
    }

    /// Returns the requested rows, as JSON.
    pub(crate) fn rows(&mut self, cache: &Cache<Reports>, wanted: &ViewRequest) -> Result<Vec<u8>, HttpResponse> {
        #[derive(Serialize)]
        struct Answer<'a> {
            /// The number of all visible rows.
            seen: usize,
            /// True if there are more rows than a browser can scroll through.
            is_cut: bool,
            /// The number of all rows, including those in closed nodes.
            total: usize,
            resident: &'a str,
            rows: Vec<Shown<'a>>,
            /// The nodes above the first row.
            above: Vec<NamedRow<'a>>,
            processes: Vec<Process<'a>>,
            /// The parts of the filter.
            sought: ParsedFilter<'a>,
            overview: Vec<Overview<'a>>,
        }
        // Views of measurements that are no longer kept are dropped.
        self.0.retain(|kept| {
            [Some(kept.view.measurement), kept.view.base].iter().flatten().all(|&id| cache.get(id).is_some())
        });
        let kept = self.keep(cache, wanted)?;
        let (rows, seen) = (&*kept.rows, &kept.seen);
        let is_first = wanted.from == 0;
        let answer = Answer {
            seen: seen.len(),
            is_cut: seen.len() == VISIBLE_ROWS_MAX,
            total: rows.len(),
            resident: &kept.resident,
            rows: rows.show(seen, &kept.toggled, wanted.from, wanted.count.min(COUNT_MAX)),
            above: rows.ancestors(seen, wanted.from),
            processes: if is_first { rows.processes(seen) } else { Vec::new() },
            sought: ParsedFilter::parse(&wanted.view.filter),
            overview: if is_first { rows.overview(seen) } else { Vec::new() },
        };
        serde_json::to_vec(&answer).map_err(|error| HttpResponse::text(500, error.to_string()))
    }

    fn keep(&mut self, cache: &Cache<Reports>, wanted: &ViewRequest) -> Result<&CachedView, HttpResponse> {
        let toggled = wanted.toggled();
        let found = self.0.iter().position(|kept| kept.view == wanted.view);
        let kept = match found.and_then(|at| self.0.remove(at)) {
            Some(kept) if kept.toggled == toggled => kept,
            Some(kept) => CachedView { seen: kept.rows.visible(&toggled), toggled, ..kept },
            None => {
                let page = wanted.view.page(cache)?;
                let resident = page.total_resident.clone();
                let rows = Arc::new(Rows::of(page));
                CachedView { view: wanted.view.clone(), resident, seen: rows.visible(&toggled), rows, toggled }
            }
        };
        self.0.truncate(KEPT_MAX - 1);
        self.0.push_front(kept);
        Ok(&self.0[0])
    }
}

#[cfg(test)]
mod tests {
    use super::ParsedFilter;

    #[test]
    fn a_filter_names_processes_and_paths() {
        for (filter, process, path) in [
            ("", "", ""),
            ("js/ a", "", "js/ a"),
            ("process:", "", ""),
            ("process:web", "web", ""),
            ("process:web  js/ a", "web", "js/ a"),
            ("process:\"web (pid 12)\" js/", "web (pid 12)", "js/"),
            ("process:\"web (p", "web (p", ""),
            ("my process:web", "", "my process:web"),
        ] {
            assert_eq!(ParsedFilter::parse(filter), ParsedFilter { process, path }, "{filter}");
        }
    }
}
