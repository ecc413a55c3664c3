//! What a page answers, whoever asks.

use heapledger_page::{Connection, Files, Handler, Hosts, Options};
use heapledger_reports::{Kind, Report, Reports, Unit};
use proptest::prelude::*;

fn handler() -> Handler {
    let options = Options { base: "/secret".into(), file_bytes_max: 10_000, ..Options::default() };
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
    handler
}

/// The first answer to these bytes, however they are cut into pieces.
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
    // Not even asked for: whoever may not ask does not fill the memory either.
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
        // Bit by bit, as a slow client takes it.
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

#[test]
fn a_name_of_ones_own_can_be_the_host() {
    let hosts = Hosts::Named(vec!["admin.example.org".into()]);
    let handler = Handler::new(Files("files".into()), Options { base: "/m".into(), hosts, ..Options::default() });
    let ask = |host: &str| answer(&handler, format!("GET /m/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), usize::MAX);
    assert!(ask("admin.example.org:8443").starts_with("HTTP/1.1 200 "));
    assert!(ask("localhost").starts_with("HTTP/1.1 421 "));
}

/// Something like a request: what a browser sends, with anything in any place.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("GET /secret/state HTTP/1.1".to_owned()),
        Just("POST /secret/rows HTTP/1.1".to_owned()),
        Just("POST /secret/text HTTP/1.1".to_owned()),
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
