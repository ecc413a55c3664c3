//! Reports as OpenMetrics text, version 1.0, as Prometheus reads it.

use std::collections::HashMap;
use std::fmt::Write;

use crate::escape::escape;
use crate::report::{Kind, MAIN_PROCESS, Report, Reports, Unit};

/// A metric: all reports of a unit.
struct Metric {
    unit: Unit,
    name: &'static str,
    /// The suffix of the name in samples.
    suffix: &'static str,
    is: &'static str,
    /// The unit of OpenMetrics, which the name must end with.
    says: &'static str,
    help: &'static str,
}

const METRICS: [Metric; 4] = [
    Metric {
        unit: Unit::Bytes,
        name: "memory_report_bytes",
        suffix: "",
        is: "gauge",
        says: "bytes",
        help: "Memory, as a reporter of the program has measured it.",
    },
    Metric {
        unit: Unit::Count,
        name: "memory_report_items",
        suffix: "",
        is: "gauge",
        says: "",
        help: "How many of something there are.",
    },
    Metric {
        unit: Unit::CountCumulative,
        name: "memory_report_events",
        suffix: "_total",
        is: "counter",
        says: "",
        help: "How often something has happened.",
    },
    Metric {
        unit: Unit::Percentage,
        name: "memory_report_ratio",
        suffix: "",
        is: "gauge",
        says: "ratio",
        help: "A part of a whole, which is 1.",
    },
];

impl Reports {
    /// Returns the reports as OpenMetrics text: a sample for each path of a process, with the
    /// labels `process`, `path` and `kind`. Reports with all of these in common are summed up; `/`
    /// in names of paths are `\`, as in reports.
    ///
    /// The part of the heap that no report covers has the path `explicit/heap-unclassified`, as on
    /// the page.
    pub fn to_openmetrics(&self) -> String {
        let unclassified = self.unclassified();
        let reports = || self.reports.iter().chain(&unclassified);
        let mut text = String::new();
        for metric in &METRICS {
            let mut sums: Vec<(Labels, i64)> = Vec::new();
            let mut index: HashMap<Labels, usize> = HashMap::new();
            for report in reports().filter(|report| report.unit == metric.unit) {
                // Compared as written: no two samples may have the same labels.
                let labels = Labels::of(report);
                let at = *index.entry(labels.clone()).or_insert(sums.len());
                match sums.get_mut(at) {
                    Some((_, sum)) => *sum = sum.saturating_add(report.amount),
                    None => sums.push((labels, report.amount)),
                }
            }
            if !sums.is_empty() {
                metric.write(&sums, &mut text);
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

impl Metric {
    fn write(&self, sums: &[(Labels, i64)], text: &mut String) {
        let Metric { name, suffix, is, says, help, .. } = self;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# TYPE {name} {is}");
        if !says.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {says}");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        for (Labels { process, path, kind }, sum) in sums {
            let _ = write!(text, "{name}{suffix}{{process=\"{process}\",path=\"{path}\",kind=\"{kind}\"}} ");
            let _ = match self.unit {
                Unit::Percentage => writeln!(text, "{}", *sum as f64 / 10_000.0),
                // A counter is never negative.
                Unit::CountCumulative => writeln!(text, "{}", (*sum).max(0)),
                _ => writeln!(text, "{sum}"),
            };
        }
    }
}

/// The labels of a sample, as they are written; they distinguish it from the other samples of a
/// metric.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Labels {
    process: String,
    path: String,
    kind: &'static str,
}

impl Labels {
    fn of(report: &Report) -> Labels {
        let process = if report.process.is_empty() { MAIN_PROCESS } else { &report.process };
        let kind = match report.kind {
            Kind::NonHeap => "nonheap",
            Kind::Heap => "heap",
            Kind::Other => "other",
        };
        Labels { process: label(process), path: label(&report.path), kind }
    }
}

/// Returns a text as the value of a label. The format has escapes for three characters, and takes
/// all others as they are. Characters that control a terminal, or end a line for other readers, are
/// written as everywhere: `\u{1b}`.
fn label(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => value.push_str("\\n"),
            '"' => value.push_str("\\\""),
            other => value.push_str(&escape(other.encode_utf8(&mut [0; 4])).replace('\\', "\\\\")),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_has_its_metric() {
        let report = |path: &str, kind, unit, amount| Report {
            process: "a \"b\"".into(),
            path: path.into(),
            stable_path: None,
            kind,
            unit,
            amount,
            description: "".into(),
        };
        let reports = Reports {
            reports: vec![
                report("explicit/x\\y", Kind::Heap, Unit::Bytes, 3),
                report("explicit/x\\y", Kind::Heap, Unit::Bytes, 4),
                report("heap-allocated", Kind::Other, Unit::Bytes, 10),
                report("page-faults", Kind::Other, Unit::CountCumulative, 5),
                report("used", Kind::Other, Unit::Percentage, 1234),
            ],
            has_usable_size: true,
        };
        assert_eq!(
            reports.to_openmetrics(),
            r##"# TYPE memory_report_bytes gauge
# UNIT memory_report_bytes bytes
# HELP memory_report_bytes Memory, as a reporter of the program has measured it.
memory_report_bytes{process="a \"b\"",path="explicit/x\\y",kind="heap"} 7
memory_report_bytes{process="a \"b\"",path="heap-allocated",kind="other"} 10
memory_report_bytes{process="a \"b\"",path="explicit/heap-unclassified",kind="heap"} 3
# TYPE memory_report_events counter
# HELP memory_report_events How often something has happened.
memory_report_events_total{process="a \"b\"",path="page-faults",kind="other"} 5
# TYPE memory_report_ratio gauge
# UNIT memory_report_ratio ratio
# HELP memory_report_ratio A part of a whole, which is 1.
memory_report_ratio{process="a \"b\"",path="used",kind="other"} 0.1234
# EOF
"##
        );
        assert_eq!(Reports::default().to_openmetrics(), "# EOF\n");
    }

    #[test]
    fn nothing_controls_the_reader() {
        let report = |path: &str| Report {
            process: "a\r\u{85}b".into(),
            path: path.into(),
            stable_path: None,
            kind: Kind::Other,
            unit: Unit::Count,
            amount: 1,
            description: "".into(),
        };
        // Two paths that are written alike are one sample.
        let paths = ["x\u{1b}[2J\u{202e}\ny", "x\\u{1b}[2J\u{202e}\ny", "é\0\u{7f}"];
        let text = Reports { reports: paths.map(report).to_vec(), has_usable_size: true }.to_openmetrics();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let labels =
            |path: &str| format!(r##"memory_report_items{{process="a\\r\\u{{85}}b",path="{path}",kind="other"}}"##);
        assert_eq!(
            samples,
            [format!("{} 2", labels(r"x\\u{1b}[2J\\u{202e}\ny")), format!("{} 1", labels(r"é\\u{0}\\u{7f}"))]
        );
        assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
    }
}
