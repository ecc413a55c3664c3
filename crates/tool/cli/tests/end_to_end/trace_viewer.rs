//! Chrome's trace viewer, in two versions: that of 2016 in Node, and one of 2020 in Chromium.
//! `.ci/trace-viewer.js` collects their results as JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::browser::webdriver::Chromium;
use crate::harness::{Scratch, installed, skipped};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.ci").join(name)
}

/// A version of the viewer.
pub(crate) enum Viewer {
    /// npm's `traceviewer`, without a window. It does not support `heaps_v2`.
    Of2016,
    /// The version that comes with Go, as a page.
    Of2020(Box<Chromium>),
}

impl Viewer {
    /// Returns the installed viewers, and prints which are missing.
    pub(crate) fn all(scratch: &Scratch) -> Vec<Viewer> {
        let old = installed("npm").map(|_| Viewer::Of2016);
        old.into_iter().chain(Viewer::of_2020(scratch)).collect()
    }

    pub(crate) fn of_2020(scratch: &Scratch) -> Option<Viewer> {
        let root = Command::new(installed("go")?).args(["env", "GOROOT"]).output().unwrap();
        let root = PathBuf::from(String::from_utf8(root.stdout).unwrap().trim_end());
        let places = ["src/cmd/trace/static", "src/internal/trace/traceviewer/static"];
        let Some(place) = places.into_iter().map(|place| root.join(place)).find(|place| place.exists()) else {
            skipped("the sources of Go, which have the viewer, are not installed");
            return None;
        };
        let chromium = Chromium::start(scratch)?;
        // It is made to be embedded in a page, for old browsers.
        let read = |file: &str| fs::read_to_string(place.join(file)).unwrap();
        let (elements, viewer) = (read("webcomponents.min.js"), read("trace_viewer_full.html"));
        let found = fs::read_to_string(script("trace-viewer.js")).unwrap();
        let page =
            format!("<!DOCTYPE html><meta charset='utf-8'><script>{elements}</script>{viewer}<script>{found}</script>");
        chromium.open(&format!("file://{}", scratch.write("viewer.html", page).display()));
        chromium.wait("typeof viewed === 'function' && typeof tr.Model === 'function'");
        Some(Viewer::Of2020(Box::new(chromium)))
    }

    pub(crate) fn knows_aggregated(&self) -> bool {
        matches!(self, Viewer::Of2020(_))
    }

    /// Returns the viewer's data about a file; there must be no warnings.
    pub(crate) fn viewed(&self, file: &Path) -> Value {
        let viewed: Value = match self {
            Viewer::Of2016 => {
                let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace-viewer");
                let done = Command::new(script("trace-viewer")).arg(file).arg(directory).output().unwrap();
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
                serde_json::from_slice(&done.stdout).unwrap()
            }
            Viewer::Of2020(chromium) => {
                let text = Value::from(fs::read_to_string(file).unwrap());
                let found = chromium.eval(&format!("JSON.stringify(viewed(tr, {text}))"));
                serde_json::from_str(found.as_str().unwrap()).unwrap()
            }
        };
        assert_eq!(viewed["warnings"], Value::Array(Vec::new()));
        assert_whole(&viewed, file);
        viewed
    }
}

/// Returns the dumps of a file, one after the other.
pub(crate) fn dumps(trace: &Value) -> Vec<&Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "v").collect()
}

/// Asserts that the viewer has read all data of a file with one process: allocators with all their
/// numbers, ownership, mappings, and values over time.
fn assert_whole(viewed: &Value, file: &Path) {
    let trace: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let (told, found) = (dumps(&trace), viewed["dumps"].as_array().unwrap());
    assert_eq!(told.len(), found.len());
    for (told, found) in told.into_iter().zip(found) {
        let (told, found) = (&told["args"]["dumps"], &found["processes"][told["pid"].to_string()]);
        assert_eq!(told["level_of_detail"], found["level"]);
        let allocators = told["allocators"].as_object().unwrap();
        let name = |guid: &Value| allocators.iter().find(|(_, dump)| dump["guid"] == *guid).map(|(name, _)| name);
        for (name, dump) in allocators {
            for (attribute, told) in dump["attrs"].as_object().unwrap().iter().filter(|(_, it)| it["type"] == "scalar")
            {
                assert_eq!(found["allocators"][name][attribute], hexadecimal(&told["value"]), "{name}: {attribute}");
            }
        }
        for edge in told["allocators_graph"].as_array().unwrap() {
            let owns = &found["allocators"][name(&edge["source"]).unwrap()]["owns"];
            assert_eq!(owns["target"].as_str(), name(&edge["target"]).map(String::as_str), "{edge}");
            assert_eq!(owns["importance"], edge["importance"], "{edge}");
        }
        // The viewer subtracts the cost of keeping account.
        let account = |attribute: &str| found["allocators"]["tracing"][attribute].as_u64().unwrap_or(0);
        for (key, name) in [("resident_set_bytes", "residentBytes"), ("peak_resident_set_bytes", "peakResidentBytes")] {
            if let Some(told) = told["process_totals"].get(key) {
                assert_eq!(found["totals"][name], hexadecimal(told) - account("resident_size"), "{key}");
            }
        }
        let Some(regions) = told["process_mmaps"]["vm_regions"].as_array() else { continue };
        let sum = |of: &dyn Fn(&Value) -> u64| regions.iter().map(of).sum::<u64>();
        assert_eq!(found["regions"]["sizeInBytes"], sum(&|region| hexadecimal(&region["sz"])) - account("size"));
        for (key, name) in [
            ("pss", "proportionalResident"),
            ("pd", "privateDirtyResident"),
            ("pc", "privateCleanResident"),
            ("sd", "sharedDirtyResident"),
            ("sc", "sharedCleanResident"),
            ("sw", "swapped"),
        ] {
            let stat = found["regions"]["byteStats"][name].as_u64().unwrap_or(0);
            let of_account = if matches!(key, "pss" | "pd") { account("resident_size") } else { 0 };
            assert_eq!(stat, sum(&|region| hexadecimal(&region["bs"][key])) - of_account, "{key}");
        }
    }
    let mut counters: BTreeMap<(String, String), Vec<(f64, &Value)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "C") {
        let name = event["name"].as_str().unwrap().to_owned();
        let point = (event["ts"].as_f64().unwrap() / 1e3, &event["args"]["value"]);
        counters.entry((event["pid"].to_string(), name)).or_default().push(point);
    }
    for ((pid, name), told) in counters {
        let found = viewed["processes"][&pid]["counters"][&name].as_array().unwrap_or_else(|| panic!("{name}"));
        assert_eq!(found.len(), told.len(), "{name}");
        let time = |point: &Value| point["time"].as_f64().unwrap();
        for (told_at, found_at) in told.iter().zip(found) {
            let apart = (told_at.0 - told[0].0) - (time(found_at) - time(&found[0]));
            assert!(apart.abs() < 0.001, "{name}: {told_at:?}, {found_at}");
            assert_eq!(&found_at["value"], told_at.1, "{name}");
        }
    }
}

fn hexadecimal(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap(), 16).unwrap()
}

/// Returns the blocks and bytes of a heap: its line of all stacks and types, or the sum of all
/// lines if each has only its own.
pub(crate) fn heap_total(process: &Value, heap: &str) -> [u64; 2] {
    let entries = process["heaps"][heap].as_array().unwrap_or_else(|| panic!("{heap}: {process:#}"));
    let (totals, own): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry["isTotal"] == true);
    let is_whole = |entry: &&&Value| entry["stack"].as_array().is_some_and(Vec::is_empty) && entry["type"].is_null();
    let whole: Vec<_> = totals.iter().filter(is_whole).chain(&own).collect();
    assert!(!whole.is_empty() || entries.is_empty(), "{entries:?}");
    ["count", "size"].map(|name| whole.iter().map(|entry| entry[name].as_u64().unwrap()).sum())
}
