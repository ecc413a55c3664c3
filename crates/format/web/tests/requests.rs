//! The answers of a page to all kinds of clients.

use heapledger_dmd::{Block, Builder, Log, Mode};
use heapledger_report_format::{Kind, Report, Reports, Unit};
use heapledger_web::{Connection, Files, Handler, Hosts, PageOptions};
use proptest::prelude::*;

fn handler() -> Handler {
    let options = PageOptions { base: "/secret".into(), file_bytes_max: 10_000, ..PageOptions::default() };
    let handler = Handler::new(Files("files".into()), options);
    let report = |path: &str, amount| Report {
        process: "p".into(),
        path: path.into(),
        stable_path: None,
        kind: Kind::Heap,
        unit: Unit::Bytes,
        amount,
        description: "It.".into(),
    };
    let reports = vec![report("explicit/a/b", 3 << 20), report("explicit/a/c", 2 << 20), report("explicit/d", 1 << 20)];
    handler.load("one", Reports { reports, has_usable_size: true });
    handler.load_log("first", log(3));
    handler.load_log("second", log(5));
    handler
}

/// Returns a log with unreported blocks, `count` blocks that one reporter reports, and one block
/// that two report.
fn log(count: u64) -> Log {
    let mut builder = Builder::new(Mode::DarkMatter);
    let [put, get, report] = ["a::Store::put (a.rs:1)", "a::Store::get (a.rs:2)", "a::report (a.rs:3)"].map(|text| {
        let frame = builder.frame(text);
        builder.trace(&[frame])
    });
    let [one, other] = ["explicit/one", "explicit/other"].map(|name| {
        let reporter = Some(builder.name(name));
        Some(heapledger_dmd::Report { trace: report, reporter })
    });
    let type_name = Some(builder.name("a::Value"));
    let block = |requested, count, alloc, reports| Block {
        requested,
        slop: 8,
        count,
        weight: 1.0,
        variance: 0.0,
        alloc: Some(alloc),
        reports,
        type_name,
        context: None,
    };
    builder.add(&block(1000, 2, put, [None; 2]));
    builder.add(&block(100, 1, get, [None; 2]));
    builder.add(&block(500, count, put, [one, None]));
    builder.add(&block(40, 1, get, [one, other]));
    builder.finish()
}

fn post(handler: &Handler, path: &str, body: &[u8]) -> (u16, String) {
    let head = format!(
        "POST /secret/{path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = answer(handler, &[head.as_bytes(), body].concat(), usize::MAX);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Returns the first answer to these bytes, however they are cut into pieces.
fn answer(handler: &Handler, bytes: &[u8], piece: usize) -> String {
    let mut connection = Connection::new();
    for piece in bytes.chunks(piece) {
        if !connection.wants_input() {
            break;
        }
        connection.receive(piece, handler);
    }
    String::from_utf8_lossy(connection.output()).into_owned()
}

fn status(request: &str) -> u16 {
    let request = request.replace('\n', "\r\n");
    let handler = handler();
    let whole = answer(&handler, request.as_bytes(), usize::MAX);
    assert_eq!(whole, answer(&handler, request.as_bytes(), 1), "{request}");
    whole.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn only_who_knows_the_page_is_answered() {
    for host in ["localhost", "localhost:80", "127.0.0.1:4", "[::1]:4", "127.8.8.8"] {
        assert_eq!(status(&format!("GET /secret/ HTTP/1.1\nHost: {host}\n\n")), 200, "{host}");
    }
    for host in ["localhost.evil.example", "evil.example:80", "10.0.0.1", "", "127.0.0.1.evil.example", "[::2]"] {
        assert_eq!(status(&format!("GET /secret/ HTTP/1.1\nHost: {host}\n\n")), 421, "{host}");
    }
    assert_eq!(status("GET /secret/ HTTP/1.1\n\n"), 421);
    for path in ["/", "/secre/", "/secret2/", "/Secret/", "/secret/../etc/passwd", "//secret/", "/other/state"] {
        assert_eq!(status(&format!("GET {path} HTTP/1.1\nHost: localhost\n\n")), 404, "{path}");
    }
    assert_eq!(status("GET /secret HTTP/1.1\nHost: localhost\n\n"), 308);
    assert_eq!(status("PUT /secret/ HTTP/1.1\nHost: localhost\n\n"), 405);
    assert_eq!(status("POST /secret/state HTTP/1.1\nHost: localhost\nContent-Type: application/json\n\n"), 405);
    assert_eq!(status("GET /secret/measure HTTP/1.1\nHost: localhost\n\n"), 405);
}

#[test]
fn pages_of_others_are_refused() {
    let state = |headers: &str| status(&format!("GET /secret/state HTTP/1.1\nHost: localhost\n{headers}\n"));
    assert_eq!(state("Sec-Fetch-Site: same-origin\n"), 200);
    assert_eq!(state("Sec-Fetch-Site: none\n"), 200);
    assert_eq!(state("Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\n"), 403);
    assert_eq!(state("Origin: http://evil.example\n"), 403);
    assert_eq!(state("Origin: null\n"), 403);
    assert_eq!(state("Origin: http://localhost\n"), 200);
    let post = |headers: &str| {
        let request = format!(
            "POST /secret/text HTTP/1.1\nHost: localhost\n{headers}Content-Length: 17\n\n{{\"measurement\":1}}"
        );
        status(&request)
    };
    assert_eq!(post("Content-Type: application/json\n"), 200);
    assert_eq!(post("Content-Type: text/plain\n"), 415);
    assert_eq!(post("Content-Type: application/x-www-form-urlencoded\n"), 415);
    assert_eq!(post("Content-Type: application/json\nSec-Fetch-Site: same-site\n"), 403);
    assert_eq!(post("Content-Type: application/json\nTransfer-Encoding: chunked\n"), 411);
}

#[test]
fn bodies_are_bounded_before_they_are_read() {
    let load = |length: usize| {
        format!(
            "POST /secret/load?name=x HTTP/1.1\nHost: localhost\nContent-Type: application/gzip\nContent-Length: {length}\n\n"
        )
    };
    assert_eq!(status(&load(10_001)), 413);
    assert_eq!(status(&load(usize::MAX)), 413);
    assert_eq!(status(&format!("{}{}", load(3), "abc")), 422);
    // The body is not even read: nobody who may not ask can fill the memory.
    assert_eq!(status(&load(10_001).replace("/secret/", "/guess/")), 404);
    assert_eq!(status(&format!("GET /{} HTTP/1.1\n\n", "a".repeat(20_000))), 431);
    assert_eq!(status("hello\n\n"), 400);
}

#[test]
fn one_request_follows_the_other_on_a_connection() {
    let handler = handler();
    let mut connection = Connection::new();
    let request = b"GET /secret/state HTTP/1.1\r\nHost: localhost\r\n\r\n";
    connection.receive(&[&request[..], &request[..]].concat(), &handler);
    for _ in 0..2 {
        let answer = connection.output().to_vec();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        // Byte by byte, as a slow client takes it.
        for _ in 0..answer.len() {
            assert!(!connection.wants_input());
            connection.sent(1, &handler);
        }
    }
    assert!(connection.wants_input() && !connection.is_over());
    connection.receive(b"GET /secret/state HTTP/1.0\r\nHost: localhost\r\n\r\n", &handler);
    let length = connection.output().len();
    connection.sent(length, &handler);
    assert!(connection.is_over());
}

#[test]
fn what_is_shown_is_the_text_of_the_page() {
    let body = r#"{"measurement":1}"#;
    let request = format!(
        "POST /secret/text HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = answer(&handler(), request.as_bytes(), usize::MAX);
    assert!(answer.contains("6.00 MB (100.0%) -- explicit\n├──5.00 MB (83.33%) -- a\n"), "{answer}");
}

/// Returns the values and names of rows, as shown for this view of the first log.
fn rows(view: &str) -> Vec<(String, String)> {
    let (status, body) = post(&handler(), "records", format!(r#"{{"log":1,"count":9{view}}}"#).as_bytes());
    assert_eq!(status, 200, "{body}");
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    answer["rows"].as_array().unwrap().iter().map(|row| (text(row, "value"), text(row, "name"))).collect()
}

#[test]
fn blocks_are_listed_as_they_are_wanted() {
    let row = |value: &str, name: &str| (value.to_owned(), name.to_owned());
    let (put, get) = (row("1.97 KB", "a::Store::put"), row("108 B", "a::Store::get"));
    assert_eq!(rows(""), [put.clone(), get.clone()]);
    assert_eq!(rows(r#","sort":"slop""#), [put.clone(), get.clone()]);
    assert_eq!(rows(r#","filter":"!get""#), [put]);
    assert_eq!(rows(r#","filter":"get""#), [get]);
    assert_eq!(rows(r#","filter":"nothing""#), []);
    assert_eq!(rows(r#","list":"once""#), [row("1.49 KB", "a::Store::put")]);
    assert_eq!(rows(r#","list":"once","filter":"explicit/one""#).len(), 1);
    assert_eq!(rows(r#","list":"twice""#), [row("48 B", "a::Store::get")]);
    assert_eq!(rows(r#","by":"owner""#), [row("2.07 KB", "a::Store")]);
    assert_eq!(rows(r#","by":"type""#), [row("2.07 KB", "a::Value")]);
    assert_eq!(rows(r#","by":"context""#), [row("2.07 KB", "(not known)")]);
    assert_eq!(rows(r#","within":{"by":"type","name":"a::Value"}"#).len(), 2);
    assert_eq!(rows(r#","within":{"by":"type","name":"a::Other"}"#), []);
    // The amounts that the second log has more.
    assert_eq!(rows(r#","base":2,"list":"once""#), [row("-1016 B", "a::Store::put")]);
    assert_eq!(rows(r#","base":1,"list":"once""#), []);
    // A list that does not exist is replaced by the first one that does.
    assert_eq!(rows(r#","list":"live""#).len(), 2);
    let advice = rows(r#","list":"advice""#);
    assert!(advice[0].1.starts_with("extend explicit/one: it reports other blocks that a::Store::put"), "{advice:?}");
}

#[test]
fn advice_on_what_is_reported_twice_is_among_the_rest_by_its_bytes() {
    let mut builder = Builder::new(Mode::DarkMatter);
    let [put, get, report] = ["a::Store::put (a.rs:1)", "b::get (b.rs:2)", "a::report (c.rs:3)"].map(|text| {
        let frame = builder.frame(text);
        builder.trace(&[frame])
    });
    let reporter = Some(builder.name("Explicit/engine"));
    let engine = Some(heapledger_dmd::Report { trace: report, reporter });
    for (requested, alloc, reports) in [(24, put, [None; 2]), (472_000, get, [engine; 2])] {
        let (slop, count, weight, variance) = (0, 1, 1.0, 0.0);
        let (alloc, type_name, context) = (Some(alloc), None, None);
        builder.add(&Block { requested, slop, count, weight, variance, alloc, reports, type_name, context });
    }
    let handler = handler();
    handler.load_log("third", builder.finish());
    let (_, body) = post(&handler, "records", br#"{"log":3,"count":9,"list":"advice"}"#);
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
    let amounts: Vec<&serde_json::Value> =
        answer["rows"].as_array().unwrap().iter().map(|row| &row["amount"]).collect();
    assert_eq!(amounts, [472_000, 24]);
    // A sentence does not begin with a name, which would get a capital.
    let (_, whole) = post(&handler, "record", br#"{"log":3,"list":"advice","from":0}"#);
    assert!(whole.contains("Measure once what is shared: Explicit/engine reports these twice."), "{whole}");
}

#[test]
fn a_log_whose_reporters_were_not_asked_does_not_say_that_nobody_reports() {
    let mut builder = Builder::new(Mode::DarkMatter);
    let frame = builder.frame("a::Store::put (a.rs:1)");
    let alloc = Some(builder.trace(&[frame]));
    let (requested, slop, count, weight, variance) = (1000, 8, 1, 1.0, 0.0);
    let (reports, type_name, context) = ([None; 2], None, None);
    builder.add(&Block { requested, slop, count, weight, variance, alloc, reports, type_name, context });
    let handler = handler();
    handler.load_log("third", builder.finish());
    for list in ["advice", "unreported"] {
        let wanted = format!(r#"{{"log":3,"list":"{list}","from":0}}"#);
        let (_, whole) = post(&handler, "record", wanted.as_bytes());
        assert!(whole.contains("Register a reporter for a::Store, unless there is one"), "{whole}");
        assert!(!whole.contains("obody reports"), "{whole}");
    }
}

#[test]
fn a_filter_can_be_about_processes() {
    let handler = handler();
    let report = |(process, path): (&str, &str)| Report {
        process: process.into(),
        path: path.into(),
        stable_path: None,
        kind: Kind::Heap,
        unit: Unit::Bytes,
        amount: 3 << 20,
        description: "It.".into(),
    };
    let reports = [("web (pid 1)", "explicit/a"), ("web (pid 2)", "explicit/b/a"), ("gpu (pid 3)", "textures")];
    handler.load("two", Reports { reports: reports.map(report).into(), has_usable_size: true });
    let index = |filter: &str| -> Vec<(String, Option<String>)> {
        let wanted = serde_json::json!({"measurement": 2, "count": 99, "filter": filter});
        let (status, body) = post(&handler, "rows", wanted.to_string().as_bytes());
        assert_eq!(status, 200, "{body}");
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let processes = answer["processes"].as_array().unwrap().iter();
        let seen = processes.map(|one| {
            let row = &answer["rows"][one["row"].as_u64().unwrap() as usize];
            assert_eq!((&row["kind"], &row["name"]), (&"process".into(), &one["name"]));
            (text(&one["name"]).unwrap(), text(&one["total"]))
        });
        seen.collect()
    };
    let of = |name: &str, total: Option<&str>| (name.to_owned(), total.map(str::to_owned));
    let (one, two) = (of("web (pid 1)", Some("3.00 MB")), of("web (pid 2)", Some("3.00 MB")));
    let all = index("");
    assert_eq!(all.len(), 3);
    assert!(all.contains(&of("gpu (pid 3)", None)) && all.contains(&one) && all.contains(&two), "{all:?}");
    assert_eq!(index("process:web"), [one, two.clone()]);
    assert_eq!(index("process:\"web (pid 2)\""), std::slice::from_ref(&two));
    assert_eq!(index("process:web b/"), [two]);
    assert_eq!(index("process:gpu explicit"), []);
}

#[test]
fn a_record_is_shown_whole() {
    let (status, body) = post(&handler(), "record", br#"{"log":1,"list":"twice","from":0}"#);
    assert_eq!(status, 200);
    for text in ["40 requested", "explicit/one", "explicit/other", "a::report", "a::Value", "Leave these out of"] {
        assert!(body.contains(text), "{text}: {body}");
    }
    assert_eq!(post(&handler(), "record", br#"{"log":1,"list":"twice","from":1}"#).0, 422);
    assert_eq!(post(&handler(), "record", br#"{"log":3,"from":0}"#).0, 410);
    assert_eq!(post(&handler(), "records", br#"{"log":1,"list":"nothing"}"#).0, 400);
    let (_, text) = post(&handler(), "dark-text", br#"{"log":1}"#);
    for part in ["Unreported {\n", "Twice-reported {\n", "explicit/other", "\nAdvice {\n"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_log_is_distinguished_from_reports() {
    let mut plain = Vec::new();
    log(7).write(&mut plain).unwrap();
    for file in [plain, log(7).to_gzip()] {
        let handler = handler();
        let (status, state) = post(&handler, "load?name=x", &file);
        assert_eq!(status, 200, "{state}");
        assert!(state.contains(r#""new_log":3"#), "{state}");
        assert!(post(&handler, "records", br#"{"log":3,"list":"once","count":1}"#).1.contains("3.47 KB"));
        // A truncated log is still recognised as a log, and reported as unreadable.
        let (status, why) = post(&handler, "load", &file[..file.len() / 2]);
        assert_eq!(status, 422);
        assert!(!why.contains("hasMozMallocUsableSize"), "{why}");
    }
    let saved = answer(&handler(), b"GET /secret/dmd.json.gz?log=1 HTTP/1.0\r\nHost: localhost\r\n\r\n", usize::MAX);
    assert!(saved.contains("attachment; filename=\"dmd-files.json.gz\""), "{saved}");
    assert_eq!(status("GET /secret/dmd.json.gz?log=9 HTTP/1.1\nHost: localhost\n\n"), 410);
    assert_eq!(status("GET /secret/dmd.json.gz HTTP/1.1\nHost: localhost\n\n"), 400);
    assert_eq!(post(&handler(), "look", b"{}").0, 501);
}

#[test]
fn a_name_of_ones_own_can_be_the_host() {
    let hosts = Hosts::Named(vec!["admin.example.org".into()]);
    let handler =
        Handler::new(Files("files".into()), PageOptions { base: "/m".into(), hosts, ..PageOptions::default() });
    let ask = |host: &str| answer(&handler, format!("GET /m/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), usize::MAX);
    assert!(ask("admin.example.org:8443").starts_with("HTTP/1.1 200 "));
    assert!(ask("localhost").starts_with("HTTP/1.1 421 "));
}

/// Returns a strategy for something like a request: what a browser sends, with anything in any
/// place.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("GET /secret/state HTTP/1.1".to_owned()),
        Just("POST /secret/rows HTTP/1.1".to_owned()),
        Just("POST /secret/text HTTP/1.1".to_owned()),
        Just("POST /secret/records HTTP/1.1".to_owned()),
        Just("POST /secret/record HTTP/1.1".to_owned()),
        Just("POST /secret/dark-text HTTP/1.1".to_owned()),
        Just("POST /secret/load?name=%zz%20+ HTTP/1.1".to_owned()),
        "[A-Z]{1,5} /secret/[a-z?=&%0-9]{0,12} HTTP/1.[0-2]",
        "\\PC{0,30}",
    ];
    let header = prop_oneof![
        Just("Host: localhost".to_owned()),
        Just("Content-Type: application/json".to_owned()),
        "Content-Length: [0-9]{1,20}",
        "[A-Za-z-]{1,12}: [ -~]{0,20}",
    ];
    let body = prop_oneof![
        Just(br#"{"measurement":1,"from":0,"count":9,"toggled":["0"],"filter":"a","verbose":true}"#.to_vec()),
        r#"\{"measurement":[0-3],"base":[0-3],"from":[0-9]{1,20},"count":[0-9]{1,20},"filter":"[a-z(\[*]{0,4}","is_regex":true\}"#
            .prop_map(String::into_bytes),
        r#"\{"log":[0-3],"from":[0-9]{1,20},"count":[0-9]{1,20},"filter":"[!a-z]{0,4}","by":"(site|owner|type|module)","list":"(unreported|twice|advice|defects|live)"\}"#
            .prop_map(String::into_bytes),
        r#"\{"log":[1-2],"base":[1-3],"sort":"(usable|req|slop|num-blocks)","from":[0-3],"within":\{"by":"type","name":"a"\}\}"#
            .prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..200),
    ];
    (line, prop::collection::vec(header, 0..6), body, any::<bool>()).prop_map(|(line, mut headers, body, is_whole)| {
        if is_whole {
            headers.extend(["Host: localhost".to_owned(), "Content-Type: application/json".to_owned()]);
            headers.retain(|header| !header.starts_with("Content-Length"));
            headers.push(format!("Content-Length: {}", body.len()));
        }
        let mut bytes = format!("{line}\r\n{}\r\n\r\n", headers.join("\r\n")).into_bytes();
        bytes.extend(body);
        bytes
    })
}

proptest! {
    /// No bytes make it panic, and none make it keep more than it may.
    #[test]
    fn anything_may_be_sent(requests in prop::collection::vec(request(), 1..4), piece in 1_usize..300) {
        let handler = handler();
        let mut connection = Connection::new();
        let bytes = requests.concat();
        for piece in bytes.chunks(piece) {
            while !connection.output().is_empty() {
                let length = connection.output().len();
                prop_assert!(length < 1 << 20);
                connection.sent(length, &handler);
            }
            if connection.is_over() {
                break;
            }
            connection.receive(piece, &handler);
        }
    }
}
