//! The page's view of dark matter in a real Chromium.

use std::sync::Mutex;

use heapledger_dmd::{Block, Builder, Defect, DefectKind, Log, Mode, Report, TraceId};
use heapledger_report_format::Reports;
use heapledger_serve::{Capabilities, MeasureOptions, PageServer, Source};

use crate::browser::webdriver::{Chromium, key};
use crate::chromium::{Served, ask, picture};
use crate::harness::{Scratch, heapledger};

/// A program whose heap the test makes up: it answers with these logs, and then repeats the last
/// one.
struct Pretended(Mutex<Vec<Log>>);

impl Source for Pretended {
    fn title(&self) -> String {
        "store (pid 12)".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { dark_matter: true, ..Capabilities::default() }
    }

    fn measure(&self, _: MeasureOptions) -> Result<Reports, String> {
        Err("not here".to_owned())
    }

    fn dark_matter(&self, _: MeasureOptions) -> Result<Log, String> {
        let mut logs = self.0.lock().unwrap();
        Ok(if logs.len() > 1 { logs.remove(0) } else { logs[0].clone() })
    }

    fn minimise(&self) -> Result<(), String> {
        Err("not here".to_owned())
    }

    fn allocator(&self) -> Result<String, String> {
        Err("not here".to_owned())
    }

    fn now(&self) -> u64 {
        1_700_000_000_000
    }
}

const GROW: &str = "alloc::raw_vec::RawVec<T,A>::grow_one (/rustc/01/library/alloc/src/raw_vec.rs:340)";
const BYTES: &str =
    "bytes::bytes_mut::BytesMut::reserve_inner (/root/.cargo/registry/src/bytes-1.9.0/src/bytes_mut.rs:605)";
const SET: &str = "store::db::Db::set (/home/me/store/src/db.rs:142)";
const PUT: &str = "store::cache::Cache::put (/home/me/store/src/cache.rs:31)";
const READ: &str = "store::connection::Connection::read_frame (/home/me/store/src/connection.rs:56)";
const MAIN: &str = "store::main (/home/me/store/src/main.rs:12)";
const RUN: &str = "tokio::runtime::scheduler::multi_thread::worker::Context::run (/root/.cargo/registry/src/tokio-1.42.0/src/runtime/worker.rs:580)";
const MEASURE: &str = "<store::db::Db as heapledger_measure::HeapSize>::heap_size (/home/me/store/src/reporters.rs:9)";
const CACHED: &str = "store::cache::Cache::report (/home/me/store/src/cache.rs:77)";

/// Makes a heap with blocks of each kind, with this number of values.
fn heap(values: u64) -> Log {
    let mut builder = Builder::new(Mode::DarkMatter);
    let trace = |builder: &mut Builder, frames: &[&str]| -> TraceId {
        let frames: Vec<_> = frames.iter().map(|frame| builder.frame(frame)).collect();
        builder.trace(&frames)
    };
    let mut add = |size: u64, count: u64, frames: &[&str], type_name: &str, reports: &[(&str, &str)]| {
        let alloc = Some(trace(&mut builder, frames));
        let mut marks = [None; 2];
        for (mark, (name, frame)) in marks.iter_mut().zip(reports) {
            let trace = trace(&mut builder, &[frame, MAIN]);
            *mark = Some(Report { trace, reporter: Some(builder.name(name)) });
        }
        let block = Block {
            requested: size,
            slop: 16 - size % 16,
            count,
            weight: 1.0,
            variance: 0.0,
            alloc,
            reports: marks,
            type_name: (!type_name.is_empty()).then(|| builder.name(type_name)),
            context: Some(builder.name("server/connection")),
        };
        builder.add(&block);
    };
    // Stacks begin with this number of runtime functions.
    let runtime = |line| format!("core::iter::traits::Iterator::fold (/rustc/01/library/core/src/iter/mod.rs:{line})");
    let runtime: Vec<String> = (0..30).map(runtime).collect();
    let far: Vec<&str> = runtime.iter().map(String::as_str).chain([BYTES, SET, RUN, MAIN]).collect();
    let store: &[(&str, &str)] = &[("explicit/store/entries", MEASURE)];
    add(40_960, 12, &[GROW, SET, RUN, MAIN], "store::db::Entry", store);
    for size in 1..40 {
        add(size * 100, values / size, &far, "bytes::Bytes", &[]);
    }
    add(262_140, 3, &[GROW, PUT, RUN, MAIN], "store::cache::Page", store);
    add(5_000, 40, &[GROW, PUT, RUN, MAIN], "store::cache::Page", &[("explicit/cache", CACHED)]);
    add(
        4_000,
        30,
        &[GROW, PUT, RUN, MAIN],
        "store::cache::Page",
        &[("explicit/store/entries", MEASURE), ("explicit/cache", CACHED)],
    );
    add(4_096, 41, &[BYTES, READ, RUN, MAIN], "bytes::BytesMut", &[]);
    for line in 0..3_000 {
        let frame = format!("store::commands::Command{}::apply (/home/me/store/src/commands.rs:{line})", line % 50);
        add(24 + line % 7, 1 + line % 3, &[GROW, &frame, RUN, MAIN], "", &[]);
    }
    let reporter = Some(builder.name("explicit/cache"));
    let frames = [CACHED, MAIN].map(|frame| builder.frame(frame));
    let trace = Some(builder.trace(&frames));
    let about = builder.about();
    about.pause_ns = 2_340_000;
    about.defects_count = 3;
    about.defects.push(Defect {
        kind: DefectKind::Partly,
        reporter,
        address: 0x7f00_1230,
        trace,
        alloc: None,
        measured: 4_000,
        usable: 4_016,
        count: 3,
    });
    builder.finish()
}

/// Returns name and value of each row that is drawn.
fn drawn(chromium: &Chromium) -> Vec<(String, String)> {
    let rows = chromium.eval(
        "[...document.querySelectorAll('#records .row')].sort((a, b) => a.number - b.number)\
         .map((row) => [row.querySelector('.name').textContent, row.querySelector('.value').textContent])",
    );
    serde_json::from_value(rows).unwrap()
}

const READY: &str = "document.querySelectorAll('#records .row').length > 0";

fn whole(text: &str) -> String {
    format!("document.getElementById('record').textContent.includes({text:?})")
}

fn first(name: &str) -> String {
    format!("document.querySelector('#records-0 .name')?.textContent === {name:?}")
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_log_is_advised_on_and_served() {
    let scratch = Scratch::new();
    let log = scratch.write("log.json.gz", heap(100).to_gzip());
    let shown = heapledger(["dmd".as_ref(), "--advice".as_ref(), log.as_os_str()]).text();
    let (_, advice) = shown.split_once("\nAdvice {\n").unwrap();
    let expected = "  Unreported:
  1. 357,536 bytes (49.79% of unreported) in 410 blocks
     extend explicit/store/entries: it reports other blocks that store::db::Db::set (src/db.rs:142) allocates
       357,536 bytes in 410 blocks by store::db::Db::set (src/db.rs:142), of type bytes::Bytes
";
    assert!(advice.starts_with(expected), "{advice}");
    assert!(advice.contains("leave these out of explicit/store/entries: explicit/cache measures them in"), "{advice}");
    let json = heapledger(["dmd".as_ref(), "--advice".as_ref(), "--json".as_ref(), log.as_os_str()]).text();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["advice"]["unreported"][0]["owner"], "store::db::Db");
    assert_eq!(json["advice"]["twice_reported"][0]["action"], "leave-out");
    let plain = heapledger(["dmd".as_ref(), log.as_os_str()]).text();
    assert!(!plain.contains("Advice"), "{plain}");

    let served = Served::of(&["dmd"], &[&log]);
    let (address, path) = served.1["http://".len()..].split_once('/').unwrap();
    let body = r#"{"log":1,"count":1}"#;
    let request = format!(
        "POST /{path}records HTTP/1.0\nHost: {address}\nContent-Type: application/json\nContent-Length: {}\n\n{body}",
        body.len()
    );
    assert!(ask(address, &request).contains(r#""name":"store::db::Db::set""#));
}

#[test]
#[ignore = "a real Chromium; in .ci/run"]
fn dark_matter_is_looked_through() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let source = Pretended(Mutex::new(vec![heap(100), heap(300)]));
    let server = PageServer::of(source, heapledger_serve::PageServerOptions::default()).unwrap();
    chromium.resize(1440, 900);
    chromium.prefer_dark(false);
    chromium.open(server.url());
    chromium.wait(READY);

    // Unreported blocks, the most bytes first, with their owners and the advice.
    chromium.wait("document.activeElement.id === 'records'");
    assert_eq!(drawn(&chromium)[0].0, "store::db::Db::set", "{:?}", drawn(&chromium));
    chromium.wait(&whole("Extend explicit/store/entries: it reports other blocks that store::db::Db::set"));
    assert_eq!(chromium.eval("document.querySelector('#record .owner .function').textContent"), "store::db::Db::set");
    // The owner is visible without scrolling, in a small window too; the runtime's frames can be
    // opened.
    chromium.resize(1280, 720);
    let is_seen = "(() => { const owner = document.querySelector('#record .owner').getBoundingClientRect(); \
        const around = document.getElementById('record').getBoundingClientRect(); \
        return owner.height > 0 && owner.top >= around.top && owner.bottom <= Math.min(around.bottom, innerHeight) })()";
    chromium.wait(is_seen);
    assert_eq!(
        chromium.eval("document.querySelector('#record .folded summary').textContent"),
        "31 frames of libraries and dependencies"
    );
    assert_eq!(chromium.eval("document.querySelector('#record .owner').value"), 32);
    picture(&chromium, &scratch, "dark-matter-small.png");
    chromium.click("#record .folded summary");
    chromium.wait("document.querySelector('#record .folded .library').getBoundingClientRect().height > 0");
    chromium.click("#record .folded summary");
    chromium.eval("(document.getElementById('records').focus(), 0)");
    chromium.resize(1440, 900);
    let lines = "Number(document.getElementById('log-count').textContent.replace(/[^0-9]/g, ''))";
    assert_eq!(chromium.eval(lines), 3_002);
    picture(&chromium, &scratch, "dark-matter.png");
    let light = chromium.eval("getComputedStyle(document.body).backgroundColor");
    chromium.prefer_dark(true);
    assert_ne!(chromium.eval("getComputedStyle(document.body).backgroundColor"), light);
    picture(&chromium, &scratch, "dark-matter-dark.png");
    chromium.prefer_dark(false);

    // With keys: the next row is shown as a whole; the end of a long list; the lists one after the
    // other.
    chromium.press(&key::DOWN.to_string());
    chromium.wait(&whole("store::connection::Connection"));
    chromium.press(&key::END.to_string());
    chromium.wait(&whole("store::commands::Command"));
    assert!(chromium.eval("document.getElementById('records').scrollTop").as_f64().unwrap() > 60_000.0);
    chromium.press("]");
    chromium.wait(&first("store::cache::Cache::put"));
    chromium.wait(&whole("Reported again by explicit/cache"));
    chromium.wait(&whole("explicit/store/entries"));
    picture(&chromium, &scratch, "dark-matter-twice.png");
    chromium.press("]]");
    chromium.wait("document.querySelector('#lists [aria-selected=true]').textContent.startsWith('Advice')");
    chromium
        .wait("document.querySelector('#records-0 .name')?.textContent.startsWith('extend explicit/store/entries')");
    picture(&chromium, &scratch, "dark-matter-advice.png");
    chromium.press("]");
    chromium.wait(&first("explicit/cache measured 4,000 bytes of a block of 4,016 bytes"));
    chromium.wait(&whole("Measure what the allocator gave"));

    // By type, and from a type to its stacks, and back.
    chromium.click("#lists .unreported");
    chromium.wait(&first("store::db::Db::set"));
    let choose = |id: &str, value: &str| {
        chromium.eval(&format!(
            "(document.getElementById('{id}').value = '{value}', \
             document.getElementById('{id}').dispatchEvent(new Event('change')))"
        ));
    };
    choose("log-by", "type");
    chromium.wait(&first("bytes::Bytes"));
    chromium.wait(&whole("Show its stacks"));
    picture(&chromium, &scratch, "dark-matter-types.png");
    chromium.click("#records-0");
    chromium.press(&key::ENTER.to_string());
    chromium.wait("document.querySelector('#within code')?.textContent === 'bytes::Bytes'");
    chromium.wait(&format!("{lines} === 1"));
    chromium.click("#within button");
    chromium.wait(&first("bytes::Bytes"));
    choose("log-by", "site");
    choose("log-sort", "num-blocks");
    chromium.wait(&first("store::db::Db::set"));

    // Typed text is searched for at once.
    chromium.press("/read_frame");
    chromium.wait(&format!("{lines} === 1"));
    chromium.wait("document.querySelector('#record mark')?.textContent === 'read_frame'");
    chromium.press(&key::ESCAPE.to_string());
    chromium.wait(&format!("{lines} === 3002"));
    // Folded frames are opened if they match the filter.
    chromium.press("/Iterator::fold");
    chromium.wait(&format!("{lines} === 1"));
    chromium.wait("document.querySelector('#record .folded mark').getBoundingClientRect().height > 0");
    chromium.press(&key::ESCAPE.to_string());
    chromium.wait(&format!("{lines} === 3002"));

    // The heap has grown meanwhile: the comparison shows by what.
    chromium.press("m");
    chromium.wait("document.getElementById('log').options.length === 2");
    chromium.press("d");
    chromium.wait(&format!("{lines} === 1"));
    chromium.wait(&first("store::db::Db::set"));
    picture(&chromium, &scratch, "dark-matter-compared.png");
    chromium.press("d");
    chromium.wait(&format!("{lines} === 3002"));

    // The shown log can be saved, and a saved one be loaded.
    let saved = "(async () => { const answer = await fetch(document.getElementById('log-save').href); \
        const packed = await answer.blob(); const copy = new Response(packed.stream().pipeThrough(new DecompressionStream('gzip'))); \
        const given = new DataTransfer(); given.items.add(new File([packed], 'saved.json.gz')); \
        const input = document.getElementById('file'); input.files = given.files; \
        input.dispatchEvent(new Event('change')); return JSON.parse(await copy.text()).version })()";
    assert_eq!(chromium.eval(saved), 5);
    chromium.wait("document.getElementById('log').selectedOptions[0].textContent === 'saved.json.gz'");
    chromium.wait(&first("store::db::Db::set"));
    assert_eq!(chromium.eval(lines), 3_002);

    // Everything was loaded from this server.
    assert_eq!(
        chromium.eval(
            "performance.getEntriesByType('resource').every((one) => new URL(one.name).origin === location.origin)"
        ),
        true
    );
}
