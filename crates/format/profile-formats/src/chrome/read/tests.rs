use proptest::prelude::*;

use super::*;
use crate::chrome::{self, Cut, Guid, Heap, HeapFormat, Kind, Level, ProcessDump};
use crate::profile::Amounts;
use crate::testing::example;

fn amount(blocks: u64, bytes: u64) -> Amount {
    Amount { blocks, bytes }
}

/// A sample: labels, functions from the innermost outwards, amounts.
type Row = (String, Vec<String>, Amounts);

fn rows(profile: &Profile) -> Vec<Row> {
    let functions = |sample: &crate::Sample| {
        let places = sample.locations.iter().map(|&at| &profile.locations[at]);
        let names: Vec<&str> =
            places.flat_map(|place| place.frames.iter().map(|frame| frame.function.as_str())).collect();
        names.join(" ")
    };
    let labels = |sample: &crate::Sample| sample.labels.iter().map(|(key, text)| format!("{key}={text}")).collect();
    let mut rows: Vec<Row> =
        profile.samples.iter().map(|sample| (functions(sample), labels(sample), sample.amounts)).collect();
    rows.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    rows
}

#[test]
fn what_was_written_comes_back() {
    let mut profile = example();
    profile.samples.iter_mut().for_each(|sample| sample.amounts.live = sample.amounts.peak);
    for heaps in [HeapFormat::Entries(Cut::Bytes(0)), HeapFormat::Aggregated] {
        let mut file = Vec::new();
        chrome::write(&profile, &mut file, heaps).unwrap();
        assert!(detects(&file[..64]));
        let read = read(&file).unwrap();
        let [read] = &read[..] else { panic!("{read:?}") };
        let sum = |profile: &Profile, of: fn(&Amounts) -> Amount| {
            let mut sum = Amount::default();
            profile.samples.iter().for_each(|sample| sum.add(of(&sample.amounts)));
            sum
        };
        for of in [(|amounts| amounts.peak) as fn(&Amounts) -> Amount, |amounts| amounts.end] {
            assert_eq!(sum(read, of), sum(&profile, of));
        }
        assert!(read.known.peak && read.known.end && !read.known.allocated);
        assert_eq!((read.pid, read.command.as_str()), (77, "/bin/a --b \"c\""));
    }
    let mut file = Vec::new();
    chrome::write(&profile, &mut file, HeapFormat::Aggregated).unwrap();
    let read = read(&file).unwrap().remove(0);
    let row = rows(&read).into_iter().find(|(_, labels, _)| labels == &["type=Node"]).unwrap();
    assert_eq!((row.0.as_str(), row.2.peak), ("inner outer main", amount(2, 32)));
}

/// Returns a trace of two processes, with dumps of two moments together, and one of only one of
/// them.
fn trace(heaps: HeapFormat) -> Vec<u8> {
    let mut trace = chrome::Trace::begin(Vec::new(), heaps).unwrap();
    for (guid, pid, time_us, bytes) in
        [(1, 7, 100, 10), (1, 8, 101, 90), (2, 7, 200, 40), (2, 8, 200, 20), (3, 7, 300, 30)]
    {
        let mut dump = ProcessDump::new(pid, format!("process {pid}"), time_us, Level::Detailed);
        let mut heap = Heap::default();
        heap.add(["main", "f"], Some("T"), amount(1, bytes));
        heap.add(["main"], None, amount(2, 5));
        heap.add([""; 0], Some("T"), amount(1, 1));
        dump.add_heap("malloc", heap);
        let mut own = Heap::default();
        own.add(["main"], None, amount(1, 1));
        dump.add_heap("arena", own);
        trace.dump(Guid(guid), Kind::Explicit, &dump).unwrap();
    }
    trace.finish().unwrap()
}

#[test]
fn processes_and_dumps() {
    for heaps in [HeapFormat::Aggregated, HeapFormat::Entries(Cut::Bytes(0))] {
        let read = read(&trace(heaps)).unwrap();
        let [one, other] = &read[..] else { panic!("{read:?}") };
        assert_eq!((one.pid, other.pid, other.command.as_str()), (7, 8, "process 8"));
        let found: Vec<_> = rows(one).into_iter().map(|(name, labels, it)| (name, labels, it.peak, it.end)).collect();
        let row = |name: &str, labels: &[&str], peak, end| {
            (name.to_owned(), labels.iter().map(|&label| label.to_owned()).collect::<Vec<_>>(), peak, end)
        };
        // The peak is that of both together.
        assert_eq!(
            found,
            [
                row("", &["type=T"], amount(1, 1), amount(1, 1)),
                row("f main", &["type=T"], amount(1, 10), amount(1, 30)),
                row("main", &[], amount(2, 5), amount(2, 5)),
                row("main", &["heap=arena"], amount(1, 1), amount(1, 1)),
            ]
        );
        assert_eq!(
            one.timeline.iter().map(|point| (point.time_ns, point.live.bytes)).collect::<Vec<_>>(),
            [(1_000, 17), (100_000, 47), (200_000, 37)]
        );
        // This process had ended by the last dump.
        assert!(other.samples.iter().all(|sample| sample.amounts.end == Amount::default()));
    }
}

/// A trace as Chromium writes it: numbers with decimal places, names of each dump anew, addresses.
const CHROMIUM: &str = r#"{"traceEvents":[{"ph":"X","name":"other","pid":3,"ts":1.5,"args":"none","id":5},
 {"ph":"v","cat":"disabled-by-default-memory-infra","name":"periodic_interval","id":"0x1","pid":3,"tid":-1,"ts":2000.5,
  "args":{"dumps":{"level_of_detail":"detailed","process_mmaps":{"vm_regions":[
    {"sa":"20000","sz":"1000","pf":5,"mf":"/bin/c","bs":{}},{"sa":"1f000","sz":"1000","pf":4,"mf":"/bin/c"},{"sa":"90000","sz":"1","mf":""}]},
   "allocators":{"malloc":{"attrs":{"size":{"type":"scalar","units":"bytes","value":"40"}},"guid":"1"}},
   "heaps_v2":{"version":1,"allocators":{"malloc":{"nodes":[2,1],"types":[0,0],"counts":[2,1],"sizes":[60.9,4]}},
    "maps":{"strings":[{"id":1,"string":"[Thread: main]"},{"id":2,"string":"pc:20011"},{"id":3,"string":"[unknown]"}],
     "nodes":[{"id":1,"name_sid":1},{"id":2,"name_sid":2,"parent":1}],"types":[{"id":0,"name_sid":3}]}}}}}],"metadata":{}}"#;

#[test]
fn as_chromium_writes_them() {
    let array = &CHROMIUM["{\"traceEvents\":".len()..CHROMIUM.rfind(",\"metadata").unwrap()];
    for text in [CHROMIUM, array] {
        assert!(detects(text.as_bytes()));
        let read = read(text.as_bytes()).unwrap();
        let [profile] = &read[..] else { panic!("{read:?}") };
        assert_eq!(profile.samples[0].amounts.live, amount(2, 60));
        let place = &profile.locations[profile.samples[0].locations[0]];
        assert_eq!((place.module, place.address), (Some(0), 0x20010));
        assert_eq!((profile.modules[0].path.as_str(), profile.modules[0].bias), ("/bin/c", Some(0x1f000)));
        assert_eq!(rows(profile)[0].0, "[Thread: main]");
        assert!(profile.samples.iter().all(|sample| sample.labels.is_empty()));
        assert!(profile.known.live && !profile.known.peak);
    }
}

#[test]
fn what_is_missing_is_told() {
    let told = |text: &str| read(text.as_bytes()).unwrap_err();
    assert!(told("{\"traceEvents\":[]}").reason.contains("without memory dumps"));
    let bare = CHROMIUM.replace("heaps_v2", "heaps_v3");
    assert!(told(&bare).reason.contains("1 memory dumps have no heaps"), "{}", told(&bare));
    for (from, to, at, reason) in [
        ("\"parent\":1", "\"parent\":2", "\"0x1\"", "around itself"),
        ("\"parent\":1", "\"parent\":9", "\"0x1\"", "stack 9, which is not there"),
        ("\"name_sid\":3", "\"name_sid\":9", "\"0x1\"", "string 9"),
        ("\"counts\":[2,1]", "\"counts\":[2]", "\"0x1\"", "not of one length"),
        ("\"sizes\":[60.9", "\"sizes\":[-60.9", "-60.9", "invalid value"),
        ("\"ts\":2000.5", "\"ts\":\"x\"", "\"x\"", "invalid type"),
    ] {
        let text = CHROMIUM.replacen(from, to, 1);
        let told = told(&text);
        let offset = text.find(at).unwrap() as u64;
        assert!(
            told.reason.contains(reason) && told.offset.abs_diff(offset) <= at.len() as u64,
            "{from}: {told} {offset}"
        );
    }
}

#[test]
fn allocators_are_reports() {
    let mut file = chrome::Trace::begin(Vec::new(), HeapFormat::default()).unwrap();
    for (time_us, name, bytes) in
        [(200, "cache", 70), (200, "cache/pages", 40), (200, "global/7", 1), (100, "cache", 5)]
    {
        let mut dump = ProcessDump::new(7, "server", time_us, Level::Light);
        dump.allocator(name).set_size(bytes);
        dump.allocator("count").set_object_count(9);
        file.dump(Guid(time_us), Kind::Explicit, &dump).unwrap();
    }
    let reports = reports(&file.finish().unwrap()).unwrap().reports;
    let found: Vec<_> = reports.iter().map(|report| (&*report.process, &*report.path, report.amount)).collect();
    let process = "server (pid 7)";
    assert_eq!(found, [(process, "dumps/cache/(other)", 30), (process, "dumps/cache/pages", 40)]);
    assert!(super::reports(b"{\"traceEvents\":[]}").unwrap_err().reason.contains("no memory dump"));
}

proptest! {
    #[test]
    fn entries_add_up(stacks in prop::collection::vec((0..40_usize, 0..3_usize, 1..5000_u64), 1..60), least in 0..4096_u64) {
        let names: Vec<String> = (0..5).map(|at| format!("f{at}")).collect();
        let mut heap = Heap::default();
        for &(stack, of_type, bytes) in &stacks {
            // From 0 to 3 frames.
            let path = [stack % 5, stack / 5 % 4, stack / 20];
            heap.add(path[..stack % 4].iter().map(|&at| &names[at]), [None, Some("T"), Some("U")][of_type], amount(1, bytes));
        }
        let total = heap.total();
        for (cut, is_whole) in [(Cut::Share, false), (Cut::Bytes(least), least == 0), (Cut::Bytes(0), true)] {
            let mut dump = ProcessDump::new(1, "a", 0, Level::Detailed);
            dump.add_heap("malloc", heap.clone());
            let mut trace = chrome::Trace::begin(Vec::new(), HeapFormat::Entries(cut)).unwrap();
            trace.dump(Guid(1), Kind::Explicit, &dump).unwrap();
            let read = read(&trace.finish().unwrap()).unwrap().remove(0);
            let mut sum = Amount::default();
            read.samples.iter().for_each(|sample| sum.add(sample.amounts.live));
            prop_assert_eq!(sum, total);
            if is_whole {
                let mut trace = chrome::Trace::begin(Vec::new(), HeapFormat::Aggregated).unwrap();
                trace.dump(Guid(1), Kind::Explicit, &dump).unwrap();
                let exact = super::read(&trace.finish().unwrap()).unwrap().remove(0);
                prop_assert_eq!(rows(&read), rows(&exact));
            }
        }
    }
}
