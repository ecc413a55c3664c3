//! Tests of clients that fetch profiles, and of servers that profiles are sent to. One process,
//! without the test harness, whose threads allocate, too.

use std::hint::black_box;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use heapledger_allocator::Allocator;
use heapledger_core::Bytes;
use heapledger_live_profile::{
    self as profile, FrameNames, ProfileOptions, ProfileServer, ProfileServerOptions, Protocol, PushOptions, Pusher,
};
use heapledger_query::Ledger;

#[path = "../../heapledger/tests/runner/mod.rs"]
mod runner;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

fn main() {
    let tests: &[(&str, fn())] = &[
        ("requests_are_answered", requests_are_answered),
        ("forbidden_requests_are_refused", forbidden_requests_are_refused),
        ("go_reads_what_we_hold", go_reads_what_we_hold),
        ("a_difference_is_waited_for", a_difference_is_waited_for),
        ("what_a_server_refuses_is_in_the_next", what_a_server_refuses_is_in_the_next),
        ("a_server_that_is_silent_holds_up_nobody", a_server_that_is_silent_holds_up_nobody),
    ];
    runner::run(tests, profile::stop);
}

#[inline(never)]
fn holds(blocks: usize) -> Vec<Vec<u8>> {
    let kept = (0..blocks).map(|_| black_box(Vec::with_capacity(black_box(1 << 20)))).collect();
    // Not at the end of a jump: then this function would be on no stack.
    black_box(kept)
}

struct Answer {
    status: u16,
    body: Vec<u8>,
}

/// A request with these lines between the first and the body.
fn ask(server: SocketAddr, request: &str, more: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(server).unwrap();
    write!(stream, "{request} HTTP/1.1\r\n{more}Connection: close\r\n\r\n{body}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, body: answer.split_off(end + 4) }
}

fn get(server: &ProfileServer, path: &str) -> Answer {
    ask(server.address(), &format!("GET {path}"), "Host: localhost\r\n", "")
}

fn requests_are_answered() {
    profile::start(ProfileOptions::default()).unwrap();
    let server = ProfileServer::start(ProfileServerOptions::default()).unwrap();
    assert!(server.url().starts_with("http://127.0.0.1:") && server.url().ends_with("/debug/pprof"));
    let index = String::from_utf8(get(&server, "/debug/pprof/").body).unwrap();
    assert!(index.contains("on, one sample point in 524288 bytes") && index.contains("/debug/pprof/heap"), "{index}");
    for path in ["/debug/pprof/heap", "/debug/pprof/allocs", "/debug/pprof/heap?gc=1&debug=0"] {
        let answer = get(&server, path);
        assert_eq!((answer.status, &answer.body[..2]), (200, &b"\x1f\x8b"[..]), "{path}");
    }
    let words: Vec<u8> = get(&server, "/debug/pprof/cmdline").body;
    assert_eq!(words.split(|byte| *byte == 0).next().unwrap(), std::env::args().next().unwrap().as_bytes());
    assert_eq!(get(&server, "/debug/pprof/symbol").body, b"num_symbols: 1\n");
    let address = holds as fn(usize) -> Vec<Vec<u8>> as usize + 1;
    let asked = format!("{address:#x}+0x1+nothing");
    let more = format!("Host: localhost\r\nContent-Length: {}\r\n", asked.len());
    let names = ask(server.address(), "POST /debug/pprof/symbol", &more, &asked).body;
    let names = String::from_utf8(names).unwrap();
    assert_eq!((names.lines().count(), names.contains("holds")), (2, true), "{names}");
    // One thread after the other ends; the port is free again.
    let address = server.address();
    server.stop();
    drop(TcpListener::bind(address).unwrap());
}

fn forbidden_requests_are_refused() {
    let server =
        ProfileServer::start(ProfileServerOptions { token: Some("secret".into()), ..ProfileServerOptions::default() })
            .unwrap();
    let with = |path: &str, more: &str| ask(server.address(), path, more, "").status;
    let host = "Host: 127.0.0.1\r\n";
    assert_eq!(with("GET /secret/debug/pprof/heap", host), 200);
    assert_eq!(with("GET /debug/pprof/heap", host), 404);
    assert_eq!(with("GET /sicret/debug/pprof/heap", host), 404);
    assert_eq!(with("GET /secret/debug/pprofheap", host), 404);
    assert_eq!(with("GET /secret/debug/pprof/profile", host), 404);
    assert_eq!(with("GET /secret/debug/pprof/heap", "Host: evil.example\r\n"), 421);
    assert_eq!(with("GET /secret/debug/pprof/heap", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n"), 403);
    assert_eq!(with("GET /secret/debug/pprof/heap", "Host: localhost\r\nOrigin: http://evil.example\r\n"), 403);
    assert_eq!(with("POST /secret/debug/pprof/heap", host), 405);
    for seconds in ["-1", "0", "x", "1e9", "NaN"] {
        assert_eq!(with(&format!("GET /secret/debug/pprof/heap?seconds={seconds}"), host), 400, "{seconds}");
    }
    assert_eq!(with("GET /secret/debug/pprof/heap", "Host: localhost\r\nHost: evil.example\r\n"), 400);
    // Clients that connect and send nothing do not keep others from asking.
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    assert_eq!(with("GET /secret/debug/pprof/heap", host), 200);
    drop(silent);
    // Nor do clients that have asked for a difference and disconnected.
    profile::start(ProfileOptions::default()).unwrap();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "GET /secret/debug/pprof/heap?seconds=3600 HTTP/1.1\r\n{host}\r\n").unwrap();
    }
    // Until it is noticed that they have gone, there may be too many.
    let until = Instant::now() + Duration::from_secs(60);
    while with("GET /secret/debug/pprof/heap?seconds=0.01", host) != 200 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// True if a tool that a test needs is installed.
fn has(tool: &str) -> bool {
    let is_there = Command::new(tool).arg("version").output().is_ok_and(|done| done.status.success());
    assert!(is_there || std::env::var_os("HEAPLEDGER_NO_SKIP").is_none(), "{tool} is not installed");
    if !is_there {
        println!("skipped: {tool} is not installed");
    }
    is_there
}

/// `go tool pprof` fetches function names from the running program, and the exact number of bytes
/// in the profile.
fn go_reads_what_we_hold() {
    if !has("go") {
        return;
    }
    profile::start(ProfileOptions::default()).unwrap();
    let server = ProfileServer::start(ProfileServerOptions::default()).unwrap();
    let kept = holds(50);
    // Pauses the ledger, so that allocations of the test itself are not in it.
    Ledger::get().pause();
    let scratch = std::env::temp_dir().join(format!("heapledger-profile-{}", std::process::id()));
    let pprof = |path: &str| {
        let words = ["tool", "pprof", "-top", "-unit=B", "-nodecount=1000", "-nodefraction=0"];
        let url = format!("{}{path}", server.url());
        let done = Command::new("go").args(words).arg(url).env("PPROF_TMPDIR", &scratch).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    for (path, kind) in [("/heap", "inuse_space"), ("/allocs", "alloc_space")] {
        let shown = pprof(path);
        let taken = profile::snapshot(FrameNames::None);
        let truth: u64 = taken
            .samples
            .iter()
            .map(|sample| if kind == "inuse_space" { sample.amounts.live } else { sample.amounts.allocated })
            .map(|amount| amount.bytes)
            .sum();
        assert!(truth > 40 << 20, "{truth}");
        assert!(shown.contains(&format!("Type: {kind}")), "{shown}");
        assert!(shown.contains(&format!("of {truth}B total")), "{truth}: {shown}");
        assert!(shown.lines().any(|line| line.contains("holds")), "{shown}");
    }
    let _ = std::fs::remove_dir_all(scratch);
    drop(kept);
}

fn a_difference_is_waited_for() {
    // At this rate the block is in the sample for certain.
    profile::start(ProfileOptions::every(Bytes(16 << 10))).unwrap();
    let server = ProfileServer::start(ProfileServerOptions::default()).unwrap();
    let (before, began) = (holds(20), Instant::now());
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| get(&server, "/debug/pprof/heap?seconds=4"));
        // Nobody says when the server has begun to count: long enough for a busy machine, and long
        // before it ends.
        std::thread::sleep(Duration::from_millis(1_500));
        drop(before);
        asked.join().unwrap()
    });
    assert!(began.elapsed() >= Duration::from_secs(4) && answer.status == 200);
    // A waiting request is answered at once when the server stops.
    let waiting = std::thread::scope(|scope| {
        let address = server.address();
        let request = move || ask(address, "GET /debug/pprof/heap?seconds=60", "Host: localhost\r\n", "").status;
        let asked = scope.spawn(request);
        std::thread::sleep(Duration::from_millis(1_500));
        server.stop();
        asked.join().unwrap()
    });
    assert_eq!(waiting, 200);
    if has("go") {
        let file = std::env::temp_dir().join(format!("heapledger-difference-{}.pb.gz", std::process::id()));
        std::fs::write(&file, &answer.body).unwrap();
        let words = ["tool", "pprof", "-raw"];
        let done = Command::new("go").args(words).arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        let raw = String::from_utf8(done.stdout).unwrap();
        // Blocks and bytes that were allocated, and those that are live: twenty less.
        let sample = raw.lines().find(|line| line.contains("-20971520")).unwrap_or_else(|| panic!("{raw}"));
        let values: Vec<i64> =
            sample.split_whitespace().map_while(|word| word.trim_end_matches(':').parse().ok()).collect();
        assert_eq!(values[..4], [0, 0, -20, -20_971_520], "{sample}");
    }
}

/// A server that answers so many requests with these statuses, and passes on what it was sent: the
/// head, and the body.
fn listen(statuses: &'static [u16]) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/base", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for status in statuses {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if line == "\r\n" {
                    break;
                }
                if let Some(digits) = line.strip_prefix("Content-Length: ") {
                    length = digits.trim().parse().unwrap();
                }
                head += &line;
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            write!(stream.get_mut(), "HTTP/1.1 {status} X\r\nContent-Length: 4\r\n\r\nwhy\n").unwrap();
            sender.send((head, body)).unwrap();
        }
    });
    (url, receiver)
}

fn options(protocol: Protocol, url: String) -> PushOptions {
    PushOptions {
        labels: vec![("env".into(), "test".into())],
        headers: vec![("X-Scope-OrgID".into(), "7".into())],
        every: Duration::from_millis(100),
        ..PushOptions::new(protocol, url, "clients")
    }
}

fn what_a_server_refuses_is_in_the_next() {
    profile::start(ProfileOptions::every(Bytes(16 << 10))).unwrap();
    let (url, sent) = listen(&[503, 200, 200]);
    let pusher = Pusher::start(options(Protocol::Pyroscope, url)).unwrap();
    drop(holds(10));
    let (head, body) = sent.recv().unwrap();
    let line = head.lines().next().unwrap();
    assert!(line.starts_with("POST /base/ingest?name=clients%7Benv%3Dtest%7D&from="), "{line}");
    assert!(!line.contains("format="), "a form is not pprof: {line}");
    assert!(
        head.contains("X-Scope-OrgID: 7\r\n") && head.contains("Content-Type: multipart/form-data; boundary="),
        "{head}"
    );
    let refused = profile_of_form(&body);
    let (_, body) = sent.recv().unwrap();
    let taken = profile_of_form(&body);
    // The refused amounts are sent again with the next profile, and then no more.
    let (_, body) = sent.recv().unwrap();
    let last = profile_of_form(&body);
    if has("go") {
        let [refused, taken, last] = [refused, taken, last].map(|file| allocated(&file));
        assert!(refused >= 10 << 20 && taken >= refused, "{refused} {taken}");
        assert!(last < 5 << 20, "{last}");
    }
    // The state is there once the answer has been read.
    let state = pusher.stop();
    assert!(state.sent == 2 && state.failed >= 1, "{state:?}");

    // The other protocol has other words around the same.
    let (url, sent) = listen(&[200]);
    let pusher = Pusher::start(PushOptions { every: Duration::from_secs(60), ..options(Protocol::Otlp, url) }).unwrap();
    let kept = holds(10);
    assert_eq!((pusher.stop().sent, kept.len()), (1, 10));
    let (head, body) = sent.recv().unwrap();
    assert!(head.starts_with("POST /base/v1development/profiles HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Content-Type: application/x-protobuf\r\n"), "{head}");
    let has_text = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(["service.name", "clients", "env", "inuse_space", "holds"].into_iter().all(has_text));
    // For whoever decodes it otherwise: see .ci/otlp.
    if let Some(path) = std::env::var_os("HEAPLEDGER_OTLP_OUT") {
        std::fs::write(path, &body).unwrap();
    }
    assert!(Pusher::start(PushOptions::new(Protocol::Otlp, "https://a", "b")).is_err());
}

/// The file in a form.
fn profile_of_form(body: &[u8]) -> Vec<u8> {
    let start = b"filename=\"profile.pprof\"\r\nContent-Type: application/octet-stream\r\n\r\n";
    let at = body.windows(start.len()).position(|part| part == start).unwrap() + start.len();
    let end = body.windows(4).rposition(|part| part == b"\r\n--").unwrap();
    body[at..end].to_vec()
}

/// The bytes that were allocated, as `go tool pprof` says.
fn allocated(file: &[u8]) -> u64 {
    let path = std::env::temp_dir().join(format!("heapledger-pushed-{}.pb.gz", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let words = ["tool", "pprof", "-top", "-unit=B", "-sample_index=alloc_space"];
    let done = Command::new("go").args(words).arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let shown = String::from_utf8(done.stdout).unwrap();
    let total = shown.split(" of ").nth(1).and_then(|rest| rest.split('B').next()?.parse().ok());
    total.unwrap_or_else(|| if shown.contains("Type: alloc_space") { 0 } else { panic!("{shown} {:?}", done.stderr) })
}

fn a_server_that_is_silent_holds_up_nobody() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let pusher = Pusher::start(options(Protocol::Pyroscope, url)).unwrap();
    let (mut connected, _) = listener.accept().unwrap();
    drop(pusher);
    // Its thread still waits for the answer: whoever drops it has not waited for that.
    connected.set_nonblocking(true).unwrap();
    let end = std::iter::repeat_with(|| connected.read(&mut [0; 4096])).find(|read| !matches!(read, Ok(1..))).unwrap();
    assert!(end.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{end:?}");
    drop(connected);
    // Nobody listens there any more.
    let address = listener.local_addr().unwrap();
    drop(listener);
    let pusher = Pusher::start(options(Protocol::Pyroscope, format!("http://{address}"))).unwrap();
    let began = Instant::now();
    while pusher.state().failed == 0 && began.elapsed() < Duration::from_secs(300) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let state = pusher.state();
    assert!(state.sent == 0 && state.failed > 0 && state.error.is_some(), "{state:?}");
}
