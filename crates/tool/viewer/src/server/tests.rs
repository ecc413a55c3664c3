use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use hyper::Request;
use serde_json::{Value, json};

use super::*;
use crate::question::Question;
use crate::testing::TestAnswer;

/// A server, with its address.
struct Served {
    answer: Arc<TestAnswer>,
    address: SocketAddr,
    base: String,
    once: String,
}

/// The answer to a request.
struct Got {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Served {
    fn start() -> Served {
        let answer = Arc::new(TestAnswer::default());
        answer.change_file(Some("1"));
        let viewer = Viewer::listen(ViewerOptions::default()).unwrap();
        let address = viewer.listener.local_addr().unwrap();
        let (base, once) = (viewer.base.clone(), viewer.once.clone());
        assert_eq!(viewer.url().unwrap(), format!("http://{address}{base}/"));
        assert_eq!(viewer.url_once().unwrap(), format!("http://{address}{once}/"));
        let given = Arc::clone(&answer) as Arc<dyn Answer>;
        thread::spawn(move || viewer.serve(given).unwrap());
        Served { answer, address, base, once }
    }

    /// Makes a request with these lines of its head, which end it.
    fn request(&self, head: &str) -> Got {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let body = bytes.split_off(end);
        let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
        Got { status: head[9..12].parse().unwrap(), head, body }
    }

    fn send(&self, method: &str, path: &str, more: &str) -> Got {
        self.request(&format!("{method} {}{path} HTTP/1.1\r\nHost: {}{more}", self.base, self.address))
    }

    fn get(&self, path: &str) -> Got {
        self.send("GET", path, "")
    }

    /// Asks for a job until it is finished.
    fn end_of(&self, job: &str) -> Got {
        loop {
            let got = self.get(&format!("/api/job/{job}"));
            if got.status != 202 {
                return got;
            }
        }
    }
}

#[test]
fn the_page_is_served_with_its_policy() {
    let served = Served::start();
    let files = [("/", "html"), ("/app.js", "javascript"), ("/worker.js", "javascript"), ("/app.css", "css")];
    for (path, media_type) in files {
        let got = served.get(path);
        assert_eq!(got.status, 200, "{path}");
        assert!(got.head.contains(&format!("content-type: text/{media_type}")), "{}", got.head);
        let policy = got.head.lines().find(|line| line.starts_with("content-security-policy: ")).unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("require-trusted-types-for 'script'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(got.head.contains("\r\nreferrer-policy: no-referrer\r\n"), "{}", got.head);
        assert!(!got.head.contains("access-control-allow"), "{}", got.head);
        let head = served.send("HEAD", path, "");
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
    }
    let moved = served.get("");
    assert_eq!(moved.status, 308);
    assert!(moved.head.contains(&format!("location: {}/\r\n", served.base)), "{}", moved.head);
}

#[test]
fn the_address_of_the_browser_leads_to_the_page_once() {
    let served = Served::start();
    let ask = |line: &str| served.request(&format!("{line} HTTP/1.1\r\nHost: {}", served.address));
    // It is no second secret.
    assert_eq!(ask(&format!("GET {}/api/session", served.once)).status, 404);
    assert_eq!(ask(&format!("HEAD {}/", served.once)).status, 404);
    let first = ask(&format!("GET {}/", served.once));
    assert_eq!(first.status, 303);
    assert!(first.head.contains(&format!("location: {}/\r\n", served.base)), "{}", first.head);
    assert_eq!(ask(&format!("GET {}/", served.once)).status, 404);
}

#[test]
fn nobody_else_is_answered() {
    let served = Served::start();
    let (address, base) = (served.address, &served.base);
    let wrong = format!("/{}", "0".repeat(32));
    for (status, head) in [
        (404, format!("GET / HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET {wrong}/ HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET {wrong}/api/session HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET {}/api/session HTTP/1.1\r\nHost: {address}", &base[..base.len() - 1])),
        (404, format!("GET {base}0/api/session HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET {base}/../etc/passwd HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET {base}/api/ HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET {base}/api/ask/ HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET {base}/api/job/7 HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET {base}/api/job/-1 HTTP/1.1\r\nHost: {address}")),
        (404, format!("DELETE {base}/api/job/7 HTTP/1.1\r\nHost: {address}")),
        (405, format!("DELETE {base}/api/session HTTP/1.1\r\nHost: {address}")),
        (405, format!("POST {base}/api/session HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0")),
        (405, format!("OPTIONS {base}/ HTTP/1.1\r\nHost: {address}")),
        // A name of somebody else that resolves to this machine.
        (403, format!("GET {base}/ HTTP/1.1\r\nHost: example.org:{}", address.port())),
        (403, format!("GET {base}/api/session HTTP/1.1\r\nHost: example.org")),
        (403, format!("GET {base}/ HTTP/1.1")),
        // Another page in the same browser.
        (403, format!("GET {base}/api/session HTTP/1.1\r\nHost: {address}\r\nSec-Fetch-Site: cross-site")),
        (403, format!("GET {base}/api/session HTTP/1.1\r\nHost: {address}\r\nSec-Fetch-Site: same-site")),
        (403, format!("DELETE {base}/api/job/1 HTTP/1.1\r\nHost: {address}\r\nOrigin: http://example.org")),
        (403, format!("DELETE {base}/api/job/1 HTTP/1.1\r\nHost: {address}\r\nOrigin: null")),
        (403, format!("DELETE {base}/api/job/1 HTTP/1.1\r\nHost: {address}\r\nOrigin: http://127.0.0.1:1")),
        (403, format!("DELETE {base}/api/job/1 HTTP/1.1\r\nHost: {address}\r\nOrigin: http://\u{e9}")),
    ] {
        let got = served.request(&head);
        assert_eq!(got.status, status, "{head}");
        assert!(got.json()["error"]["message"].is_string(), "{head}");
        assert!(!got.head.contains("access-control-allow"), "{head}");
    }
    let own = format!("\r\nOrigin: http://{address}\r\nSec-Fetch-Site: same-origin");
    assert_eq!(served.send("GET", "/api/session", &own).json(), json!({"bound": 256 << 20}));
    assert!(served.answer.begun().is_empty());
}

#[test]
fn questions_are_answered_or_become_jobs() {
    let served = Served::start();
    let options = "file=0&function=a%2fb";
    // On a busy machine even a quick answer may come late.
    let got = served.get(&format!("/api/ask/heap/census?{options}"));
    let got = if got.status == 202 { served.end_of(got.json()["job"].as_str().unwrap()) } else { got };
    assert!(got.head.contains(r#"heapledger-notes: ["\u00e9\"\u007f\ud83d\ude00"]"#), "{}", got.head);
    let question = Question::parse("heap/census", options).unwrap();
    assert_eq!((got.status, &*got.body), (200, format!("{question:?}").as_bytes()));

    let got = served.get("/api/ask/wait?gate=a");
    served.answer.wait_for_begun(2);
    let job = got.json()["job"].as_str().unwrap().to_owned();
    assert_eq!((got.status, got.json()), (202, json!({"job": job, "progress": got.json()["progress"]})));
    assert_eq!(served.get(&format!("/api/job/{job}")).json(), json!({"job": job, "progress": 0.25}));
    served.answer.open("a");
    assert_eq!(served.end_of(&job).status, 200);

    let job = served.get("/api/ask/wait?gate=b").json()["job"].as_str().unwrap().to_owned();
    assert_eq!(served.send("DELETE", &format!("/api/job/{job}"), "").status, 204);
    served.answer.wait_for_cancelled(1);
    assert_eq!(served.end_of(&job).status, 404);
}

#[test]
fn a_question_ends_if_its_client_goes_before_it_has_the_number_of_the_job() {
    let answer = Arc::new(TestAnswer::default());
    let jobs = Arc::new(Jobs::new(Arc::clone(&answer) as Arc<dyn Answer>, 1, 1 << 20));
    let router = Router { base: String::new(), once: Mutex::new(None), jobs: Arc::clone(&jobs) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let request = || Request::builder().uri("/api/ask/wait?gate=a").header("host", "127.0.0.1").body(()).unwrap();
    let mut begun = 0;
    runtime.block_on(async {
        loop {
            let mut response = Box::pin(router.respond(request()));
            begun += 1;
            let is_there = tokio::time::timeout(Duration::ZERO, &mut response).await.is_ok();
            answer.wait_for_begun(begun);
            // This is what the server does when the connection ends.
            drop(response);
            if !is_there {
                assert!(jobs.state_of(begun as u64).is_none());
                break;
            }
            // This thread stood still for so long that the response was there at the first look.
            assert!(jobs.cancel(begun as u64));
            answer.wait_for_cancelled(begun);
        }
    });
    answer.wait_for_cancelled(begun);
}

#[test]
fn failures_have_codes_causes_and_hints() {
    let served = Served::start();
    let ended = |path: &str| {
        let got = served.get(path);
        if got.status == 202 { served.end_of(got.json()["job"].as_str().unwrap()) } else { got }
    };
    let got = ended("/api/ask/fail?");
    let object =
        json!({"code": "HL0090", "message": "it makes no sense", "causes": ["because"], "hint": "another one"});
    assert_eq!((got.status, got.json()), (400, json!({ "error": object })));
    assert_eq!(ended("/api/ask/panic").json()["error"]["code"], "HL0091");
    let long = served.get(&format!("/api/ask/top?{}", "a".repeat(40 << 10)));
    assert_eq!((long.status, &long.json()["error"]["code"]), (414, &json!("HL0134")));
    // hyper refuses a head that is longer than its buffer, before it is a request.
    assert!(served.get(&format!("/api/ask/top?{}", "a".repeat(100 << 10))).status >= 400);
}

#[test]
fn large_answers_are_compressed_for_those_who_accept_it() {
    let served = Served::start();
    let ended = |more: &str| {
        loop {
            let got = served.send("GET", "/api/ask/large", more);
            if got.status != 202 {
                return got;
            }
        }
    };
    let packed = ended("\r\nAccept-Encoding: br, gzip;q=0.5");
    assert!(packed.head.contains("\r\ncontent-encoding: gzip\r\n") && packed.body.len() < 10_000, "{}", packed.head);
    for none in ["", "\r\nAccept-Encoding: br, gzip;q=0", "\r\nAccept-Encoding: identity"] {
        let plain = ended(none);
        assert!(!plain.head.contains("content-encoding"), "{}", plain.head);
        assert_eq!(plain.body, vec![b'a'; 100_000]);
    }
    let mut columns = served.get("/api/columns?file=0");
    while columns.status == 202 {
        columns = served.get("/api/columns?file=0");
    }
    assert!(columns.head.contains("content-type: application/octet-stream") && columns.body.starts_with(b"HLCOLS01"));
}

#[test]
fn events_say_which_file_has_changed() {
    let served = Served::start();
    let mut stream = TcpStream::connect(served.address).unwrap();
    let head = format!("GET {}/api/events HTTP/1.1\r\nHost: {}\r\n\r\n", served.base, served.address);
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "content-type: text/event-stream"));
    assert!(lines.any(|line| line == "event: memory"));
    served.answer.change_file(None);
    assert!(lines.any(|line| line == "event: file-changed"));
    assert_eq!(lines.next().unwrap(), r#"data: {"file":0,"missing":true}"#);
}

#[test]
fn a_port_that_is_taken_is_an_error() {
    let first = Viewer::listen(ViewerOptions::default()).unwrap();
    let port = first.listener.local_addr().unwrap().port();
    let taken = Viewer::listen(ViewerOptions { port, ..ViewerOptions::default() });
    assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
}
