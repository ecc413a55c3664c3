//! Providers, sessions, several processes. All providers are in every dump of the process: tests
//! run one at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use heapledger_allocator::Allocator;
use heapledger_dump::{
    self as dump, CallQueue, DumpArgs, DumpOptions, GlobalDump, Kind, Level, PeakTrigger, ProcessDump, Provider,
    ProviderError, ProviderOptions, Schedule, TraceConfig, TraceSession, Trigger,
};
use heapledger_query::Ledger;
use heapledger_reporters::{self as reports, Collector};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// A provider that is a function.
struct Says<F>(F);

impl<F: FnMut(&DumpArgs, &mut ProcessDump) -> Result<(), ProviderError> + Send> Provider for Says<F> {
    fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError> {
        (self.0)(args, dump)
    }
}

/// No other test meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Not optimised, on a machine that others use, it takes long to look up the names of functions.
const DEADLINE: Duration = Duration::from_secs(120);

fn made(level: Level) -> GlobalDump {
    dump::dump(&DumpOptions { level, provider_deadline: DEADLINE, deadline: DEADLINE, ..DumpOptions::default() })
}

/// Dumps when the test says so.
fn on_demand() -> TraceConfig {
    TraceConfig {
        schedule: Schedule::never(),
        provider_deadline: DEADLINE,
        deadline: DEADLINE,
        ..TraceConfig::default()
    }
}

fn has(dump: &GlobalDump, name: &str) -> bool {
    dump.own().allocators().any(|allocator| allocator.name == name)
}

#[test]
fn three_failures_in_a_row_are_too_many() {
    let _alone = alone();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let registration = dump::register(
        "Failing",
        Says(move |_: &DumpArgs, dump: &mut ProcessDump| {
            dump.allocator("failing").set_size(1);
            match counted.fetch_add(1, Ordering::Relaxed) {
                2 => Ok(()),
                0 | 4 => Err("it has no figures".into()),
                _ => panic!("it is wrong"),
            }
        }),
    );
    let failure = |dump: GlobalDump| {
        let is_in = has(&dump, "failing");
        let failure = dump.failures.into_iter().find(|failure| failure.name == "Failing");
        (is_in, failure.map(|failure| (failure.reason, failure.is_disabled)))
    };
    let failed = |reason: &str, is_disabled| (false, Some((reason.to_owned(), is_disabled)));
    let outcomes: Vec<_> = (0..7).map(|_| failure(made(Level::Light))).collect();
    let expected = [
        failed("it has no figures", false),
        failed("it panicked: it is wrong", false),
        (true, None),
        failed("it panicked: it is wrong", false),
        failed("it has no figures", false),
        failed("it panicked: it is wrong", true),
        (false, None),
    ];
    assert_eq!(outcomes, expected);
    assert!(registration.is_disabled());
    // A trace begins anew.
    let _session = TraceSession::start(io::sink(), on_demand()).unwrap();
    assert!(!registration.is_disabled());
}

/// The total of the heap of `malloc`, and what the ledger has as a whole.
fn heap_of_malloc(dump: &GlobalDump) -> (u64, Option<u64>) {
    let (_, heap) = dump.own().heaps().find(|(allocator, _)| *allocator == "malloc").unwrap();
    let objects = dump.own().allocators().find(|allocator| allocator.name == dump::MALLOC_OBJECTS).unwrap();
    (heap.total().bytes, objects.scalar("shim_allocated_objects_size"))
}

#[test]
fn malloc_and_its_heap_are_in_a_dump_however_late_it_is() {
    let _alone = alone();
    dump::set_heap_profiling(true);
    let kept = vec![vec![1_u8; 1000]; 100];
    for _ in 0..5 {
        let made = |level| {
            let (provider_deadline, deadline) = (Duration::ZERO, Duration::ZERO);
            dump::dump(&DumpOptions { level, provider_deadline, deadline, ..DumpOptions::default() })
        };
        assert!(has(&made(Level::Light), "malloc"));
        let late = made(Level::Detailed);
        assert_eq!(late.failures, []);
        let (of_heap, of_ledger) = heap_of_malloc(&late);
        assert!(of_heap >= 100_000 && Some(of_heap) == of_ledger, "{of_heap} {of_ledger:?}");
    }
    dump::set_heap_profiling(false);
    drop(kept);
}

#[test]
fn what_the_ledger_has_resident_is_a_part_of_what_it_has_mapped() {
    let _alone = alone();
    dump::set_heap_profiling(true);
    let kept: Vec<_> = (0..50_000_u64).map(Box::new).collect();
    let dump = made(Level::Detailed);
    dump::set_heap_profiling(false);
    let part = |name: &str, scalar: &str| {
        let part = dump.own().allocators().find(|dump| dump.name == name);
        part.and_then(|part| part.scalar(scalar)).unwrap_or_else(|| panic!("{name} has no {scalar}"))
    };
    let resident = part("tracing/heap_profiler_malloc", "resident_size");
    let parts = ["register", "stacks", "rules", "threads", "filter"];
    let mapped = parts.map(|name| part(&format!("tracing/heap_profiler_malloc/{name}"), "virtual_size"));
    // An entry of the register has some 80 bytes.
    assert!(resident > 50 * kept.len() as u64, "{resident}");
    assert!(resident < mapped.iter().sum(), "{resident} {mapped:?}");
}

#[test]
fn providers_have_their_threads() {
    let _alone = alone();
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let provider = |name: &'static str| {
        let said = Arc::clone(&said);
        Says(move |_: &DumpArgs, _: &mut ProcessDump| {
            // As the kernel has it: the standard library did not make all of them.
            let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim().to_owned();
            said.lock().unwrap().push(format!("{name} in {thread}"));
            Ok(())
        })
    };
    let (ready, is_ready) = mpsc::channel();
    let own = thread::Builder::new().name("window".into()).spawn(move || {
        let (wake, woken) = mpsc::channel();
        let _ = ready.send(CallQueue::new(move || _ = wake.send(())));
        woken
    });
    let queue = is_ready.recv().unwrap();
    let woken = own.unwrap().join().unwrap();
    // Its thread has ended: another takes it over.
    let (is_over, over) = (Arc::new(AtomicBool::new(false)), queue.clone());
    let end = Arc::clone(&is_over);
    let window = thread::Builder::new().name("window".into()).spawn(move || {
        while !end.load(Ordering::Relaxed) {
            if woken.recv_timeout(Duration::from_millis(20)).is_ok() {
                over.run();
            }
        }
    });
    let options = ProviderOptions { on: Some(queue), ..ProviderOptions::default() };
    let _bound = dump::register_with("Bound", provider("Bound"), options);
    let _unbound = dump::register("Unbound", provider("Unbound"));
    made(Level::Light);
    is_over.store(true, Ordering::Relaxed);
    window.unwrap().join().unwrap();
    let said = said.lock().unwrap();
    assert!(
        said.contains(&"Bound in window".to_owned()) && said.contains(&"Unbound in MemoryInfra".to_owned()),
        "{said:?}"
    );
}

/// One that makes the dump in the thread of the provider does not wait for itself.
#[test]
fn a_thread_may_dump_what_is_its_own() {
    let _alone = alone();
    let options = ProviderOptions { on: Some(CallQueue::new(|| {})), ..ProviderOptions::default() };
    let own = Says(|_: &DumpArgs, dump: &mut ProcessDump| {
        dump.allocator("of_this_thread").set_size(1);
        Ok(())
    });
    let _registration = dump::register_with("Own", own, options);
    assert!(has(&made(Level::Light), "of_this_thread"));
}

#[test]
fn a_provider_that_hangs_is_abandoned() {
    let _alone = alone();
    let (go_on, wait) = mpsc::channel::<()>();
    let hangs = dump::register(
        "Hanging",
        Says(move |_: &DumpArgs, _: &mut ProcessDump| {
            let _ = wait.recv();
            Ok(())
        }),
    );
    let _next = dump::register(
        "Next",
        Says(|_: &DumpArgs, dump: &mut ProcessDump| {
            dump.allocator("next").set_size(1);
            Ok(())
        }),
    );
    let began = Instant::now();
    let dump = dump::dump(&DumpOptions { provider_deadline: Duration::from_millis(300), ..DumpOptions::default() });
    assert!(began.elapsed() < Duration::from_secs(20) && has(&dump, "next"));
    let failure = dump.failures.iter().find(|failure| failure.name == "Hanging").unwrap();
    assert_eq!(failure.reason, "it had not answered after 0.3 s");
    let again = dump::dump(&DumpOptions::default());
    assert!(
        again.failures.iter().any(|failure| failure.reason == "it has not returned from an earlier call"),
        "{again:?}"
    );
    drop(go_on);
    hangs.unregister();
}

#[test]
fn in_the_background_numbers_of_listed_names() {
    let _alone = alone();
    let provider = || {
        Says(|args: &DumpArgs, dump: &mut ProcessDump| {
            dump.allocator("listed/file_0x7f").set_size(1).set_text("name", "secret");
            dump.allocator("listed/secret").set_size(1);
            assert_eq!(args.kind, Kind::Summary);
            Ok(())
        })
    };
    let background = vec!["listed/file_0x?".to_owned()];
    let _listed = dump::register_with("Listed", provider(), ProviderOptions { on: None, background });
    let _unlisted = dump::register(
        "Unlisted",
        Says(|args: &DumpArgs, _: &mut ProcessDump| {
            assert!(args.level > Level::Background);
            Ok(())
        }),
    );
    let dump = made(Level::Background);
    let listed: Vec<_> = dump.own().allocators().filter(|dump| dump.name.starts_with("listed")).collect();
    assert_eq!((listed.len(), listed[0].attributes.len()), (1, 1), "{listed:?}");
    assert!(dump.failures.iter().all(|failure| failure.name != "Unlisted") && dump.own().regions.is_empty());
    assert!(has(&made(Level::Light), "listed/secret"));
}

#[test]
fn providers_are_notified_of_profiling_early_and_late() {
    let _alone = alone();
    struct Told(Arc<Mutex<Vec<bool>>>);
    impl Provider for Told {
        fn dump(&mut self, _: &DumpArgs, _: &mut ProcessDump) -> Result<(), ProviderError> {
            Ok(())
        }

        fn heap_profiling_enabled(&mut self, is_enabled: bool) {
            self.0.lock().unwrap().push(is_enabled);
        }
    }
    let (early, late) = (Arc::default(), Arc::default());
    let _early = dump::register("Early", Told(Arc::clone(&early)));
    dump::set_heap_profiling(true);
    assert!(Ledger::get().is_running());
    let _late = dump::register("Late", Told(Arc::clone(&late)));
    assert_eq!((&*early.lock().unwrap(), &*late.lock().unwrap()), (&vec![true], &vec![true]));
    dump::set_heap_profiling(false);
    assert_eq!((&*early.lock().unwrap(), &*late.lock().unwrap()), (&vec![true, false], &vec![true, false]));
}

#[test]
fn reports_and_dumps_are_one_model() {
    let _alone = alone();
    let _reporter = reports::register("explicit/one-model/pages", |collector: &mut Collector| {
        collector.heap("", heapledger_core::Bytes(4096), "Pages.");
    });
    let _provider = dump::register(
        "Model",
        Says(|_: &DumpArgs, dump: &mut ProcessDump| {
            dump.allocator("other-model/files").set_size(100);
            Ok(())
        }),
    );
    let dump = made(Level::Light);
    assert_eq!(dump.own().size_of("one-model/pages"), Some(4096));
    assert!(!dump.own().allocators().any(|dump| dump.name.starts_with("dumps/")), "they are there already");
    let collected = reports::collect(&reports::ReportOptions::default());
    let amount = |path: &str| collected.reports.iter().find(|report| &*report.path == path).map(|report| report.amount);
    assert_eq!(amount("dumps/other-model/files"), Some(100));
    assert_eq!(amount("dumps/one-model/pages"), None, "reporters say it themselves");
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn events(&self) -> Vec<Value> {
        let file: Value = serde_json::from_slice(&self.0.lock().unwrap()).unwrap();
        file["traceEvents"].as_array().unwrap().clone()
    }
}

fn hexadecimal(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap_or_else(|| panic!("{value}")), 16).unwrap()
}

#[test]
fn a_session_writes_what_is_live() {
    let _alone = alone();
    dump::set_heap_profiling(true);
    let file = Memory::default();
    let kept = vec![vec![1_u8; 1000]; 100];
    let session = TraceSession::start(file.clone(), on_demand()).unwrap();
    assert!(TraceSession::start(io::sink(), TraceConfig::default()).is_err(), "there is one");
    let guid = session.dump(Level::Detailed).unwrap();
    session.dump(Level::Light).unwrap();
    assert_eq!(session.finish().unwrap().dumps, 2);
    dump::set_heap_profiling(false);
    drop(kept);
    let events = file.events();
    let dumps: Vec<_> = events.iter().filter(|event| event["ph"] == "v").collect();
    assert_eq!((dumps.len(), &dumps[0]["id"]), (2, &Value::from(format!("0x{guid}"))));
    let (detailed, light) = (&dumps[0]["args"]["dumps"], &dumps[1]["args"]["dumps"]);
    // To the byte: the heap, and what the ledger has as a whole.
    let whole = &detailed["heaps"]["malloc"]["entries"][0];
    let objects = &detailed["allocators"][dump::MALLOC_OBJECTS]["attrs"];
    assert_eq!(whole["bt"], "");
    assert_eq!(whole["size"], objects["shim_allocated_objects_size"]["value"]);
    assert_eq!(whole["count"], objects["shim_allocated_objects_count"]["value"]);
    assert!(hexadecimal(&whole["size"]) >= 100_000);
    assert!(hexadecimal(&detailed["process_totals"]["resident_set_bytes"]) > 100_000);
    assert!(!detailed["process_mmaps"]["vm_regions"].as_array().unwrap().is_empty());
    let overhead = &detailed["allocators"]["tracing/heap_profiler_malloc/register"]["attrs"];
    assert!(hexadecimal(&overhead["virtual_size"]["value"]) > 0);
    assert_eq!(
        (&light["level_of_detail"], &light["heaps"], &light["process_mmaps"]),
        (&"light".into(), &Value::Null, &Value::Null)
    );
    // Every stack and type that an entry has is named.
    let metadata = |name: &str| &events.iter().find(|event| event["name"] == name).unwrap()["args"][name];
    let (frames, types) = (metadata("stackFrames"), metadata("typeNames"));
    assert_eq!(types["0"], "[unknown]");
    for entry in detailed["heaps"]["malloc"]["entries"].as_array().unwrap() {
        let mut stack = entry["bt"].as_str().unwrap();
        while !stack.is_empty() {
            assert!(frames[stack]["name"].is_string(), "{entry}");
            stack = frames[stack]["parent"].as_str().unwrap_or_default();
        }
        assert!(entry["type"].is_null() || types[entry["type"].as_str().unwrap()].is_string(), "{entry}");
    }
}

#[test]
fn the_clock_and_peaks_make_dumps() {
    let _alone = alone();
    let file = Memory::default();
    let trigger = |level, ms| Trigger { level, period: Duration::from_millis(ms) };
    let schedule = Schedule::new(&[trigger(Level::Background, 20), trigger(Level::Light, 40)]).unwrap();
    let peak =
        PeakTrigger { share: 0.5, every: Duration::from_millis(5), level: Level::Background, ..PeakTrigger::default() };
    let session =
        TraceSession::start(file.clone(), TraceConfig { schedule, peak: Some(peak), ..TraceConfig::default() })
            .unwrap();
    let of_kind = |kind: Kind| {
        let written = file.0.lock().unwrap();
        String::from_utf8_lossy(&written).matches(&format!("\"name\":\"{}\"", kind.name())).count()
    };
    let wait = |kind: Kind, count: usize| {
        let began = Instant::now();
        while of_kind(kind) < count {
            assert!(began.elapsed() < Duration::from_secs(30), "{kind:?}: {}", of_kind(kind));
            thread::sleep(Duration::from_millis(5));
        }
    };
    wait(Kind::Periodic, 2);
    // Far more than anything else here.
    let large = vec![1_u8; 256 << 20];
    wait(Kind::Peak, 1);
    drop(large);
    let summary = session.finish().unwrap();
    assert!(summary.dumps_at_peak >= 1 && summary.dumps > summary.dumps_at_peak + 1, "{summary:?}");
    let events = file.events();
    let periodic: Vec<_> = events.iter().filter(|event| event["name"] == "periodic_interval").collect();
    let level = |at: usize| &periodic[at]["args"]["dumps"]["level_of_detail"];
    assert_eq!((level(0), level(1)), (&"light".into(), &"background".into()));
    assert!(periodic[0]["id"] != periodic[1]["id"]);
}

/// The variable that selects the role in which the test runs itself: see `child`.
const ROLE: &str = "HEAPLEDGER_TEST_ROLE";

/// In a child this is the program; by itself nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "early" {
        // Before main, and before this.
        assert!(dump::is_heap_profiling() && Ledger::get().is_running());
        let block = Box::new([1_u8; 100]);
        assert!(Ledger::get().block_at(block.as_ptr()).is_some());
        assert!(made(Level::Detailed).own().heaps().any(|(allocator, _)| allocator == "malloc"));
        return;
    }
    assert!(!dump::is_heap_profiling() && !Ledger::get().is_running());
    let _provider = dump::register(
        "OfAChild",
        Says(|args: &DumpArgs, dump: &mut ProcessDump| {
            dump.allocator("of_a_child").set_text("id", &args.guid.to_string());
            let shared = dump.shared(dump::Guid::of("shared")).set_size(4096).guid;
            let own = dump.allocator("mapped").guid;
            dump.own(own, shared, 1);
            Ok(())
        }),
    );
    let _listener = reports::listen().unwrap();
    println!("listens");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn this_as(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(ROLE, role);
    command
}

#[test]
fn the_environment_is_earlier_than_main() {
    let _alone = alone();
    let done = this_as("early").env("HEAPLEDGER_HEAP_PROFILING", "1").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

struct Running(Child);

impl Running {
    fn start() -> Running {
        let mut child = this_as("child").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("listens")));
        Running(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn children_are_in_the_same_dump() {
    let _alone = alone();
    let children = [Running::start(), Running::start()];
    let dump = dump::dump(&DumpOptions { children: true, level: Level::Detailed, ..DumpOptions::default() });
    assert_eq!(dump.own().pid, std::process::id());
    for Running(child) in &children {
        let own = dump.processes.iter().find(|dump| dump.pid == child.id()).unwrap_or_else(|| panic!("{dump:?}"));
        let said = own.allocators().find(|dump| dump.name == "of_a_child").unwrap();
        assert_eq!(said.attributes, [("id".to_owned(), dump::Attribute::Text(dump.guid.to_string()))]);
        assert!(own.totals.is_some() && !own.regions.is_empty() && own.size_of("malloc").is_some());
        // Both know it by the same number.
        assert_eq!(own.size_of(&format!("global/{}", dump::Guid::of("shared"))), Some(4096));
    }
    // One that does not answer is named, and holds nobody up.
    let stopped = Command::new("kill").args(["-STOP", &children[0].0.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let options = DumpOptions { children: true, deadline: Duration::from_millis(700), ..DumpOptions::default() };
    let dump = dump::dump(&options);
    let name = format!("pid {}", children[0].0.id());
    assert!(dump.failures.iter().any(|failure| failure.name == name && failure.reason.contains("in time")), "{dump:?}");
    assert!(dump.processes.iter().any(|dump| dump.pid == children[1].0.id()));
}
