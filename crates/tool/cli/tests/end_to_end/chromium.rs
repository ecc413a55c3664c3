//! The page about:memory in a real Chromium.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::Bytes;
use heapledger_report_format::about::{AboutOptions, Node, Page};
use heapledger_report_format::{Kind, Report, Reports, Unit};
use heapledger_serve::{PageServer, on_minimise};

use crate::browser::webdriver::{Chromium, key};
use crate::harness::{HEAPLEDGER, Scratch, heapledger};

/// The page for files, served by the command with `--page` until this is dropped.
pub(crate) struct Served(Child, pub(crate) String);

impl Served {
    fn start(files: &[&Path]) -> Served {
        Served::of(&["reports", "show"], files)
    }

    pub(crate) fn of(verb: &[&str], files: &[&Path]) -> Served {
        let mut command = Command::new(HEAPLEDGER);
        let mut child = command.args(verb).arg("--page").args(files).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap_or_else(|| panic!("{line}"));
        let url = url.trim_end_matches(',').to_owned();
        Served(child, url)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn report(path: &str, kind: Kind, amount: i64) -> Report {
    Report {
        process: "server (pid 12)".into(),
        path: path.into(),
        stable_path: None,
        kind,
        unit: Unit::Bytes,
        amount,
        description: format!("What {path} holds.").into(),
    }
}

fn file(scratch: &Scratch, name: &str, reports: Vec<Report>) -> PathBuf {
    scratch.write(name, Reports { reports, has_usable_size: true }.to_gzip())
}

fn sample() -> Vec<Report> {
    let mib = |count: i64| count << 20;
    let mut reports = vec![
        report("explicit/cache/entries", Kind::Heap, mib(70)),
        report("explicit/cache/index", Kind::Heap, mib(20)),
        report("explicit/network/buffers", Kind::Heap, mib(30)),
        report("explicit/threads/stacks/main", Kind::NonHeap, mib(1)),
        report("explicit/little/a", Kind::Heap, 4000),
        report("explicit/little/b", Kind::Heap, 3000),
        report("explicit/less", Kind::Heap, 5000),
        report("heap-allocated", Kind::Other, mib(140)),
        report("resident", Kind::Other, mib(200)),
        report("decommitted/heap/unused", Kind::Other, mib(3)),
    ];
    reports.push(Report { unit: Unit::Count, kind: Kind::Other, ..report("connections", Kind::Other, 41) });
    reports
}

/// Returns value and name of each row that the page has drawn.
fn drawn(chromium: &Chromium) -> Vec<(String, String)> {
    let rows = chromium.eval(
        "[...document.querySelectorAll('.row.node, .row.single')].sort((a, b) => a.number - b.number)\
         .map((row) => [row.querySelector('.value').textContent, row.querySelector('.name').textContent])",
    );
    serde_json::from_value(rows).unwrap()
}

/// Returns the rows that the page should draw.
fn expected(reports: Vec<Report>, options: &AboutOptions) -> Vec<(String, String)> {
    fn add(rows: &mut Vec<(String, String)>, node: &Node) {
        rows.push((node.value.trim().to_owned(), node.name.to_string()));
        if !node.is_collapsed {
            node.children.iter().for_each(|child| add(rows, child));
        }
    }
    let mut rows = Vec::new();
    for section in &Page::of(&Reports { reports, has_usable_size: true }, options).sections {
        let nodes = section.explicit.iter().chain(&section.others).chain(&section.degenerates);
        nodes.for_each(|node| add(&mut rows, node));
    }
    rows
}

const READY: &str = "document.querySelectorAll('.row.node, .row.single').length > 0";

/// Takes a screenshot, which is kept if `HEAPLEDGER_PICTURES` names a directory.
pub(crate) fn picture(chromium: &Chromium, scratch: &Scratch, name: &str) {
    let path = match std::env::var_os("HEAPLEDGER_PICTURES") {
        Some(directory) => Path::new(&directory).join(name),
        None => scratch.file(name),
    };
    chromium.picture(&path);
}

#[test]
#[ignore = "a real Chromium; in .ci/run"]
fn a_report_file_is_looked_through() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let mut after = sample();
    after[0].amount += 5 << 20;
    after.push(report("explicit/new", Kind::Heap, 9 << 20));
    after.remove(2);
    let (before, after) = (file(&scratch, "before.json.gz", sample()), file(&scratch, "after.json.gz", after));
    let served = Served::start(&[&after, &before]);
    chromium.resize(1280, 900);
    chromium.prefer_dark(false);
    chromium.open(&served.1);
    chromium.wait(READY);

    assert_eq!(drawn(&chromium), expected(sample(), &AboutOptions::default()));
    picture(&chromium, &scratch, "light.png");
    let light = chromium.eval("getComputedStyle(document.body).backgroundColor");
    chromium.prefer_dark(true);
    assert_ne!(chromium.eval("getComputedStyle(document.body).backgroundColor"), light);
    picture(&chromium, &scratch, "dark.png");
    // The switch changes colours at each press, whatever the system's preference.
    for is_dark in [true, false] {
        chromium.prefer_dark(is_dark);
        let mut before = chromium.eval("getComputedStyle(document.body).backgroundColor");
        for _ in 0..3 {
            chromium.click("#theme");
            let after = chromium.eval("getComputedStyle(document.body).backgroundColor");
            assert_ne!(after, before, "{is_dark}");
            before = after;
        }
        chromium.click("#theme");
        // From here on as the system prefers.
        chromium.prefer_dark(!is_dark);
        assert_eq!(chromium.eval("getComputedStyle(document.body).backgroundColor"), before);
    }
    chromium.prefer_dark(true);
    chromium.eval("(document.getElementById('tree').focus(), 0)");

    // With keys: the root is closed and opened again.
    let whole = drawn(&chromium).len();
    let count = |count: usize| format!("document.querySelectorAll('.row.node, .row.single').length === {count}");
    assert_eq!(chromium.eval("document.activeElement.id"), "tree");
    chromium.press(&[key::HOME, key::DOWN, key::END, key::HOME].iter().collect::<String>());
    chromium.press(&key::LEFT.to_string());
    chromium.wait("document.querySelector('.row.node').getAttribute('aria-expanded') === 'false'");
    assert!(drawn(&chromium).len() < whole);
    chromium.press(&key::RIGHT.to_string());
    chromium.wait(&count(whole));
    // With the mouse: rows that are hidden because they are small are shown.
    chromium.click(".row.node .twist.shut");
    chromium.wait(&format!("document.querySelectorAll('.row.node, .row.single').length > {whole}"));

    // Typed text is searched for at once.
    chromium.press("/cache");
    chromium.wait(
        "[...document.querySelectorAll('.row.node')].length > 0 && \
        [...document.querySelectorAll('.row.single')].length === 0 && document.querySelector('.row mark') !== null",
    );
    assert!(
        drawn(&chromium)
            .iter()
            .all(|(_, name)| ["explicit", "cache", "explicit/cache", "entries", "index"].contains(&&**name)),
        "{:?}",
        drawn(&chromium)
    );
    chromium.press(&key::ESCAPE.to_string());
    chromium.wait("document.querySelector('.row mark') === null");

    chromium.press("v");
    chromium.wait("document.querySelector('.row.node .value').textContent.endsWith(' B')");
    chromium.press("v");

    // Compared with the other file, which has more of one path, lacks another, and has a new one.
    chromium.eval(
        "(document.getElementById('base').value = document.getElementById('base').options[2].value, \
        document.getElementById('base').dispatchEvent(new Event('change')))",
    );
    chromium.wait("document.querySelector('.row .note') !== null");
    let rows = drawn(&chromium);
    assert!(rows.contains(&("-5.00 MB".into(), "cache/entries".into())), "{rows:?}");
    assert!(rows.iter().any(|(value, name)| value == "-9.00 MB" && name == "new"), "{rows:?}");
    picture(&chromium, &scratch, "compared.png");

    // A file of the reader's own is shown, an invalid one is named, and the shown reports can be
    // saved.
    let load = |name: &str, content: &str| {
        chromium.eval(&format!(
            "(() => {{ const given = new DataTransfer(); given.items.add(new File([{content:?}], {name:?})); \
             const input = document.getElementById('file'); input.files = given.files; \
             input.dispatchEvent(new Event('change')) }})()"
        ));
    };
    let reports = vec![report("explicit/loaded", Kind::Heap, 7 << 20)];
    chromium.eval(
        "(document.getElementById('base').value = '', document.getElementById('base').dispatchEvent(new Event('change')))",
    );
    load("third.json", &Reports { reports, has_usable_size: true }.to_json());
    chromium.wait("[...document.querySelectorAll('.row .name')].some((name) => name.textContent === 'explicit/loaded' || name.textContent === 'loaded')");
    load("fourth.json", "{}");
    chromium.wait("document.getElementById('notice').textContent.includes('fourth.json')");
    let saved = "(async () => { const answer = await fetch(document.getElementById('save').href); \
        const text = await new Response(answer.body.pipeThrough(new DecompressionStream('gzip'))).text(); \
        return JSON.parse(text).reports.map((report) => report.path).join() })()";
    assert_eq!(chromium.eval(saved), "explicit/loaded");

    // Everything was loaded from this server, and nothing else is allowed.
    assert_eq!(
        chromium.eval(
            "performance.getEntriesByType('resource').every((one) => new URL(one.name).origin === location.origin)"
        ),
        true
    );
    let injected = "(() => { const script = document.createElement('script'); script.textContent = 'window.foreign = 1'; \
        document.body.append(script); return window.foreign === undefined })()";
    assert_eq!(chromium.eval(injected), true);
}

#[test]
#[ignore = "a real Chromium; in .ci/run"]
fn processes_are_an_index_and_a_filter() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let of =
        |process: &str, path: &str, mib: i64| Report { process: process.into(), ..report(path, Kind::Heap, mib << 20) };
    let mut reports = sample();
    for (process, mib) in [("worker (pid 13)", 60), ("worker (pid 14)", 50), ("router \"a\" (pid 15)", 40)] {
        for part in ["cache", "queue", "buffers", "index", "names", "routes", "tables", "others", "rest"] {
            reports.push(of(process, &format!("explicit/{part}"), mib));
            reports.push(of(process, &format!("{part}-peak"), mib));
        }
        reports.push(Report { kind: Kind::Other, ..of(process, "resident", mib * 10) });
    }
    let served = Served::start(&[&file(&scratch, "processes.json.gz", reports)]);
    chromium.resize(1280, 900);
    chromium.prefer_dark(false);
    chromium.open(&served.1);
    chromium.wait(READY);
    let texts = |selector: &str| -> Vec<String> {
        let texts = format!("[...document.querySelectorAll({selector:?})].map((one) => one.textContent)");
        serde_json::from_value(chromium.eval(&texts)).unwrap()
    };
    let names = || texts("#processes .name");
    let current = "document.querySelector('#processes [aria-current] .name').textContent";
    let all = ["worker (pid 13) 540.00 MB", "worker (pid 14) 450.00 MB", "router \"a\" (pid 15) 360.00 MB"];
    assert_eq!(names().len(), 4, "{:?}", names());
    assert!(all.iter().all(|name| names().iter().any(|other| other == name)), "{:?}", names());
    picture(&chromium, &scratch, "processes.png");

    // A click scrolls to a process, and the index shows the current one.
    let first = chromium.eval(current);
    chromium.eval(
        "([...document.querySelectorAll('#processes .name')].find((name) => name.textContent.startsWith('router')).click(), 0)",
    );
    chromium.wait(&format!("{current}.startsWith('router')"));
    assert_ne!(chromium.eval(current), first);
    assert!(texts("#tree .row.process .name").contains(&"router \"a\" (pid 15)".to_owned()));

    // A single process, by the button beside its name; then by typed text, with part of a path.
    let only = "([...document.querySelectorAll('#processes .process')].find((one) => \
        one.textContent.includes('(pid 14)')).querySelector('.only').click(), 0)";
    chromium.eval(only);
    chromium.wait("document.querySelectorAll('#processes .process').length === 1");
    assert_eq!(texts("#tree .row.process .name"), ["worker (pid 14)"]);
    assert_eq!(chromium.eval("document.getElementById('filter').value"), "process:\"worker (pid 14)\"");
    chromium.click("#processes .back");
    chromium.wait("document.querySelectorAll('#processes .process').length === 4");
    chromium.press("/process:worker queue");
    chromium.wait("document.querySelectorAll('#processes .process').length === 2");
    chromium.wait("[...document.querySelectorAll('.row mark')].every((mark) => mark.textContent === 'queue')");
    assert!(texts(".row mark").len() >= 4, "{:?}", texts(".row mark"));
    picture(&chromium, &scratch, "processes-filtered.png");
    chromium.press(&key::ESCAPE.to_string());
    chromium.wait("document.querySelectorAll('#processes .process').length === 4");
}

static AMOUNT: AtomicU64 = AtomicU64::new(3 << 20);

pub(crate) fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_page_answers_only_those_who_know_it() {
    let server = PageServer::start(heapledger_serve::PageServerOptions::default()).unwrap();
    let (address, path) = server.url()["http://".len()..].split_once('/').unwrap();
    let get = |path: &str, host: &str| ask(address, &format!("GET /{path} HTTP/1.0\nHost: {host}\n\n"));
    let page = get(path, address);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for header in
        ["Content-Security-Policy: default-src 'none'", "X-Content-Type-Options: nosniff", "Cache-Control: no-store"]
    {
        assert!(page.contains(header), "{page}");
    }
    // A foreign host name that leads here; another path; a form on a foreign page.
    assert!(get(path, "evil.example").starts_with("HTTP/1.1 421 "));
    assert!(get("", address).starts_with("HTTP/1.1 404 "));
    assert!(get(&"0".repeat(33), address).starts_with("HTTP/1.1 404 "));
    let form = format!("POST /{path}minimise HTTP/1.0\nHost: {address}\nContent-Type: text/plain\n\n");
    assert!(ask(address, &form).starts_with("HTTP/1.1 415 "));
    let foreign = format!(
        "POST /{path}minimise HTTP/1.0\nHost: {address}\nSec-Fetch-Site: cross-site\nContent-Type: application/json\n\n"
    );
    assert!(ask(address, &foreign).starts_with("HTTP/1.1 403 "));
    // Not HTTP, too long, and two lengths.
    assert!(ask(address, "hello\n\n").starts_with("HTTP/1.1 400 "));
    assert!(ask(address, &format!("GET /{} HTTP/1.0\n\n", "a".repeat(20_000))).starts_with("HTTP/1.1 431 "));
    let two = format!("POST /{path}rows HTTP/1.0\nHost: {address}\nContent-Length: 1\nContent-Length: 2\n\n{{}}");
    assert!(ask(address, &two).starts_with("HTTP/1.1 400 "));
    let metrics = get(&format!("{path}metrics"), address);
    assert!(metrics.contains("\nmemory_report_bytes{") && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(get(&format!("{path}allocator"), address).contains("malloc_info"));

    let shown = heapledger(["reports", "show", server.url()]);
    assert!(shown.text().contains("resident-unique"), "{}", shown.text());
    let url = server.url().to_owned();
    server.stop();
    let gone = heapledger(["reports", "show", &url]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("cannot read"), "{:?}", gone.stderr);
}

#[test]
#[ignore = "a real Chromium; in .ci/run"]
fn a_program_is_measured_again() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let registration =
        heapledger_reporters::register("explicit/tests", |collector: &mut heapledger_reporters::Collector| {
            collector.non_heap("amount", Bytes(AMOUNT.load(Ordering::Relaxed)), "What the test says.");
        });
    on_minimise(|| AMOUNT.store(1 << 20, Ordering::Relaxed));
    let server = PageServer::start(heapledger_serve::PageServerOptions::default()).unwrap();
    chromium.resize(1280, 900);
    chromium.open(server.url());
    chromium.wait(READY);
    let amount = |value: &str| {
        format!(
            "[...document.querySelectorAll('.row.node')].some((row) => row.querySelector('.name').textContent === \
             'tests/amount' && row.querySelector('.value').textContent === '{value}')"
        )
    };
    chromium.wait(&amount("3.00 MB"));
    AMOUNT.store(5 << 20, Ordering::Relaxed);
    chromium.press("m");
    chromium.wait(&amount("5.00 MB"));
    chromium.click("#minimise");
    chromium.wait(&amount("1.00 MB"));
    // The reports that the page showed first are compared with those that it shows now.
    chromium.press("d");
    chromium.wait(&amount("-4.00 MB"));
    chromium.press("a");
    chromium.wait("document.getElementById('dialog').open && document.getElementById('dialog-body').textContent.includes('malloc')");
    drop(registration);
}

#[test]
#[ignore = "a real Chromium; in .ci/run"]
fn a_hundred_thousand_lines_do_not_stall() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let leaves = (0..100_000).map(|leaf| {
        let path = format!("explicit/a{}/b{}/c{}/leaf-{leaf}", leaf % 10, leaf / 10 % 10, leaf / 100 % 10);
        report(&path, Kind::Heap, 1000 + leaf % 977)
    });
    let large = file(&scratch, "large.json.gz", leaves.collect());
    let served = Served::start(&[&large]);
    chromium.resize(1280, 900);
    chromium.open(&served.1);
    let before = slowdown(&chromium);
    chromium.eval(
        "(window.tasks = [], new PerformanceObserver((list) => window.tasks.push(...list.getEntries()\
         .map((task) => task.duration))).observe({ type: 'longtask', buffered: true }), 0)",
    );
    chromium.wait(READY);
    chromium.press("v");
    chromium.wait("Number(document.getElementById('count').textContent.replace(/[^0-9]/g, '')) > 100000");
    // To the end and back, in steps that each draw new rows.
    let scrolled = chromium.eval(
        "new Promise((done) => { const tree = document.getElementById('tree'); let at = 0; let worst = 0; \
         let before = performance.now(); const step = () => { const now = performance.now(); \
         worst = Math.max(worst, now - before); before = now; at++; \
         tree.scrollTop = tree.scrollHeight * (at < 100 ? at / 100 : (200 - at) / 100); \
         at < 200 ? requestAnimationFrame(step) : done(worst) }; requestAnimationFrame(step) })",
    );
    chromium.press("/leaf-99999");
    chromium
        .wait("[...document.querySelectorAll('.row .name')].some((name) => name.textContent.endsWith('leaf-99999'))");
    let tasks = chromium.eval("window.tasks");
    let longest = tasks.as_array().unwrap().iter().filter_map(|task| task.as_f64()).fold(0.0, f64::max);
    let slowdown = slowdown(&chromium).max(before);
    println!(
        "100,000 lines: longest task {longest} ms, longest frame while scrolling {scrolled} ms; other work takes the \
         processors, and everything takes {slowdown:.1} times as long"
    );
    assert!(longest < 200.0 * slowdown, "{tasks}");
}

/// How many times as long the page takes for its work as on processors without other work: the mean
/// of many equal short calculations by the shortest, which nothing interrupted.
fn slowdown(chromium: &Chromium) -> f64 {
    let times = chromium.eval(
        "Array.from({ length: 100 }, () => { const from = performance.now(); let sum = 0; \
         for (let i = 0; i < 500000; i++) sum += Math.sqrt(i); window.sum = sum; return performance.now() - from })",
    );
    // The first ones are interpreted.
    let times: Vec<f64> = times.as_array().unwrap()[20..].iter().filter_map(|time| time.as_f64()).collect();
    let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
    times.iter().sum::<f64>() / times.len() as f64 / shortest
}

#[test]
#[ignore = "of the page that .ci/mini-redis gives; in .ci/run"]
fn the_page_of_an_example() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    chromium.resize(1280, 900);
    chromium.prefer_dark(false);
    chromium.open(&std::env::var("HEAPLEDGER_PAGE").expect("HEAPLEDGER_PAGE is the address of a page"));
    chromium.wait(READY);
    let rows = drawn(&chromium);
    assert!(rows.iter().any(|(_, name)| name == "store"), "{rows:?}");
    picture(&chromium, &scratch, "mini-redis.png");

    chromium.click("#view-dark");
    chromium.wait("document.querySelector('#record .stack .owner') !== null");
    picture(&chromium, &scratch, "dark-matter.png");
}
