//! Heapledger never counts itself: a program that does nothing but call it has an empty ledger.
//! Without the test harness: its threads allocate, too.

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{self, Poll, Waker};
use std::thread;

use heapledger::dump::{
    self, Amount, Cost, DumpArgs, Guid, Heap, Level, ProcessDump, Provider, ProviderError, ProviderOverhead, Schedule,
    TraceConfig, TraceSession,
};
use heapledger::reports::dark_matter::{self, Mode};
use heapledger::reports::{self, Collector, ReportOptions};
use heapledger::{Allocator, Context, Ledger, Meter, SiteOrder, SnapshotOptions, context, serve};
use http_body::{Body, Frame};
use tower_service::Service;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// The blocks that the program's own functions allocated, and kept, when Heapledger called them.
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn keep() {
    KEPT.lock().unwrap().push(black_box(Vec::with_capacity(100)));
}

struct Own;

impl Provider for Own {
    fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError> {
        keep();
        let own = dump.allocator("own/kept").set_size(100).set_object_count(1).set_text("what", "a vector").guid;
        dump.suballocate(own, dump::MALLOC_OBJECTS);
        let shared = dump.shared(Guid::of("shared")).set_scalar("pages", "pages", 1).guid;
        dump.weak_shared(Guid::of("weak"));
        dump.own(own, shared, 1);
        if args.level == Level::Detailed {
            let mut heap = Heap::default();
            let frames = (0..3).map(|depth| {
                keep();
                ["main", "f", "g"][depth]
            });
            heap.add(frames, Some("Vec"), Amount { blocks: 1, bytes: 100 });
            dump.add_heap("own/kept", heap);
            let mut overhead = ProviderOverhead::default();
            overhead.add("Register", Cost { count: 1, bytes_allocated: 64, bytes_mapped: 4096, bytes_resident: 4096 });
            overhead.dump_into("own", dump);
        }
        Ok(())
    }
}

/// The body of a request: reading it is the program's own work.
struct Sent;

impl Body for Sent {
    type Data = &'static [u8];
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<&'static [u8]>, Infallible>>> {
        keep();
        Poll::Ready(None)
    }
}

/// Asks the page, in a server that has nothing else to do.
fn ask_service(path: &str) {
    let (options, request) = {
        let _ignored = heapledger::ignore();
        let request = http::Request::get(path).header("host", "127.0.0.1").body(Sent).unwrap();
        (serve::PageOptions { base: "/page".to_owned(), ..serve::PageOptions::default() }, request)
    };
    let mut service = serve::PageService::new(options).unwrap();
    let mut answer = service.call(request);
    let mut waiting = task::Context::from_waker(Waker::noop());
    let response = loop {
        match answer.as_mut().poll(&mut waiting) {
            Poll::Ready(response) => break response.unwrap(),
            Poll::Pending => thread::yield_now(),
        }
    };
    assert_eq!(response.status(), 200, "{path}");
}

fn main() {
    KEPT.lock().unwrap().reserve_exact(1000);
    let directory = std::env::temp_dir().join(format!("heapledger-untracked-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let [reports_file, log, trace] = ["reports", "log", "trace"].map(|name| directory.join(name));
    // Also of what was there before the ledger, nothing is missed when it goes.
    let early = reports::register("early", |_: &mut Collector| ());
    let listener = reports::listen().unwrap();
    let ledger = Ledger::start(heapledger::LedgerOptions::EXACT).unwrap();
    let counts = || {
        let totals = ledger.totals();
        [totals.allocations.0, totals.blocks_live.0, totals.frees_unknown.0]
    };
    assert_eq!(counts(), [0; 3], "nothing but a start");

    let sites = || ledger.top_sites(9, SiteOrder::BytesAllocated).iter().map(ToString::to_string).collect::<String>();
    let kept = |what: &str| {
        let kept = KEPT.lock().unwrap().len() as u64;
        assert_eq!(counts(), [kept, kept, 0], "{what}\n{}", sites());
    };
    let registration = reports::register("explicit/own", |collector: &mut Collector| {
        keep();
        collector.count("/kept", 1, "One.");
        assert!(collector.meter().is_first_visit(&raw const KEPT));
    });
    let registered = dump::register("Own", Own);
    kept("registrations");
    for mark in [false, true] {
        drop(reports::collect(&ReportOptions { mark, ..ReportOptions::default() }));
        kept("a collection");
    }
    // Each asks the reporter, and the provider, whose dump is reported.
    assert_eq!(KEPT.lock().unwrap().len(), 4, "what reporters do is the program's");
    reports::save(&reports_file, &ReportOptions::default()).unwrap();
    kept("a file of reports");
    for mode in [Mode::DarkMatter, Mode::Live, Mode::Scan] {
        let options = dark_matter::DarkMatterOptions { mode, ..dark_matter::DarkMatterOptions::default() };
        dark_matter::save(&log, &options).unwrap();
        kept("a log");
    }
    let kept_before = KEPT.lock().unwrap().len();
    let made = dump::dump(&dump::DumpOptions { level: Level::Detailed, ..dump::DumpOptions::default() });
    assert_eq!(made.own().size_of("own/kept"), Some(100), "{:?}", made.failures);
    assert_eq!(KEPT.lock().unwrap().len() - kept_before, 5, "the reporter, the provider, and three frames");
    drop(made);
    kept("a dump");
    let session =
        TraceSession::to_file(&trace, TraceConfig { schedule: Schedule::never(), ..TraceConfig::default() }).unwrap();
    session.dump(Level::Detailed).unwrap();
    drop(session.finish().unwrap());
    kept("a trace");
    for path in ["/page/", "/page/metrics"] {
        let kept_before = KEPT.lock().unwrap().len();
        ask_service(path);
        assert!(KEPT.lock().unwrap().len() > kept_before, "the body of a request is read by the program");
        kept(path);
    }
    let signal = dark_matter::on_signal(libc::SIGUSR2, &directory, dark_matter::DarkMatterOptions::default()).unwrap();
    drop(signal);
    drop(ledger.snapshot(&SnapshotOptions::default()).unwrap());
    drop(ledger.top_sites(10, SiteOrder::BytesLive));
    drop(ledger.census_by_vtable());
    drop(ledger.defects());
    {
        let _scope = context!("scope", key = 1);
        drop(Context::current());
        drop(Meter::new());
    }
    kept("questions");
    drop((listener, registration, registered, early));
    kept("ends");
    // The program's own threads are its own, whatever was before.
    thread::spawn(|| black_box(vec![0_u8; 10])).join().unwrap();
    assert!(counts()[0] > KEPT.lock().unwrap().len() as u64);
    std::fs::remove_dir_all(directory).unwrap();
    println!("test a_program_that_only_calls_heapledger ... ok");
}
