//! Processes that take the socket names of others: they are not trusted, and they do not hide the
//! real ones.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use heapledger_report_format::{Kind, Report, Reports, Unit};
use heapledger_reporters::{Collector, listen, register};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, Uid};
use serde_json::Value;

use crate::harness::{HEAPLEDGER, Scratch, exited, heapledger, skipped, wait_until};

/// The variable by which the test binary runs itself in a role: see `impostor`.
const ROLE: &str = "HEAPLEDGER_TEST_IMPOSTOR";
const NOBODY: &str = "65534";

/// Listens under another process's name and answers everything, in a process that a test starts;
/// otherwise it does nothing.
#[test]
fn impostor() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [kind, user, name] = role.split(' ').collect::<Vec<_>>().try_into().unwrap();
    if !user.is_empty() {
        let user = Uid::from_raw(user.parse().unwrap());
        // This thread is the one that listens.
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
    }
    let socket_type = if kind == "silent" { SocketType::SEQPACKET } else { SocketType::STREAM };
    let socket = |flags| rustix::net::socket_with(AddressFamily::UNIX, socket_type, flags, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let listener = socket(SocketFlags::CLOEXEC);
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, if kind == "full" { 0 } else { 16 }).unwrap();
    if kind == "full" {
        let mut waiting: Vec<OwnedFd> = Vec::new();
        loop {
            waiting.push(socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK));
            if rustix::net::connect(waiting.last().unwrap(), &address).is_err() {
                break;
            }
        }
        println!("listens");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    println!("listens");
    let mut kept = Vec::new();
    let stdin = std::io::stdin();
    loop {
        // All connections are read before it ends.
        let mut entries = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
        rustix::event::poll(&mut entries, None).unwrap();
        if entries[0].revents().is_empty() {
            return;
        }
        let client = rustix::net::accept(&listener).unwrap();
        let mut request = [0; 4096];
        let (count, _) = rustix::net::recv(&client, &mut request[..], RecvFlags::empty()).unwrap_or((0, 0));
        println!("asked {count}");
        if kind == "silent" {
            kept.push(client);
            continue;
        }
        let answer = if kind == "stream" { false_reports() } else { b"recorder 1\ncommand 1\noutput /false".to_vec() };
        let _ = rustix::net::send(&client, &answer, SendFlags::NOSIGNAL);
    }
}

fn false_reports() -> Vec<u8> {
    let report = Report {
        process: "".into(),
        path: "false".into(),
        stable_path: None,
        kind: Kind::Other,
        unit: Unit::Count,
        amount: 1,
        description: "False.".into(),
    };
    Reports { reports: vec![report], has_usable_size: true }.to_gzip()
}

/// A running impostor.
struct Impostor {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Impostor {
    /// Starts an impostor that answers at this name as this user.
    fn start(kind: &str, user: &str, name: &str) -> Impostor {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "impostors::impostor", "--nocapture"]).env(ROLE, format!("{kind} {user} {name}"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut impostor = Impostor { process, lines };
        impostor.wait_for("listens");
        impostor
    }

    fn wait_for(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it has ended without `{what}`");
            if line.contains(what) {
                return line;
            }
        }
    }

    /// Returns the number of bytes that it has received until now, for each connection.
    fn ended(mut self) -> Vec<String> {
        drop(self.process.stdin.take());
        let lines = self.lines.by_ref().lines().map_while(Result::ok);
        lines.filter_map(|line| line.strip_prefix("asked ").map(str::to_owned)).collect()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the users as which tests can run other processes.
fn users() -> Vec<&'static str> {
    if rustix::process::geteuid().is_root() {
        return vec!["", NOBODY];
    }
    skipped("only root can start processes of other users");
    vec![""]
}

#[test]
fn nobody_answers_for_a_process_that_does_not_listen() {
    let scratch = Scratch::new();
    for user in users() {
        let mut asked = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = asked.id().to_string();
        let impostor = Impostor::start("stream", user, &format!("heapledger-reports.{pid}.0"));
        let trace = scratch.file("trace.json");
        let lines: [&[&str]; 3] =
            [&["reports", "show", &pid], &["dmd", &pid], &["dump", "-o", trace.to_str().unwrap(), &pid]];
        for line in lines {
            let outcome = heapledger(line);
            let told = String::from_utf8_lossy(&outcome.stderr);
            assert_eq!(outcome.status, exited(102), "{line:?} {outcome:?}");
            assert!(outcome.stdout.is_empty() && told.contains("error[HL0041]"), "{line:?} {outcome:?}");
            assert!(told.contains(&format!("another process's: {}", impostor.process.id())), "{outcome:?}");
            assert!(told.contains("hint: a program answers once"), "{outcome:?}");
        }
        // Other tests connect to every socket that they find.
        let counts = impostor.ended();
        assert!(counts.len() >= 3 && counts.iter().all(|count| count == "0"), "nothing is asked of it: {counts:?}");
        asked.kill().unwrap();
        asked.wait().unwrap();
    }
}

#[test]
fn false_names_hide_nobody() {
    let _reporter = register("true", |collector: &mut Collector| collector.count("", 7, "What is true."));
    let _listener = listen().unwrap();
    let pid = std::process::id().to_string();
    // In hash order, so some come before the real one.
    let mut impostors: Vec<Impostor> =
        (0..6).map(|number| Impostor::start("stream", "", &format!("heapledger-reports.{pid}.{number}"))).collect();
    impostors.push(Impostor::start("full", "", &format!("heapledger-reports.{pid}.full")));
    for _ in 0..3 {
        let outcome = heapledger(["reports", "show", &pid]);
        assert!(outcome.status.success(), "{outcome:?}");
        assert!(outcome.text().contains("true") && !outcome.text().contains("false"), "{outcome:?}");
    }
}

#[test]
fn recordings_are_their_recorders() {
    let scratch = Scratch::new();
    for user in users() {
        let mut command = Command::new(HEAPLEDGER);
        command
            .args(["record", "--quiet", "-o"])
            .arg(scratch.file(&format!("of{user}.hl")))
            .args(["--", "sleep", "600"]);
        let mut recorder = command.stdin(Stdio::null()).spawn().unwrap();
        let pid = recorder.id();
        let _impostor = Impostor::start("status", user, &format!("heapledger-control.{pid}.0"));
        // Recordings of other tests may be there, too.
        let states = || {
            let outcome = heapledger(["status", "--json"]);
            let states: Value = serde_json::from_slice(&outcome.stdout).unwrap_or_default();
            states["rows"].as_array().cloned().unwrap_or_default()
        };
        let mut all = Vec::new();
        wait_until("the recording is known", || {
            all = states();
            all.iter().any(|state| state["recorder"] == pid)
        });
        assert!(all.iter().all(|state| state["file"] != "/false"), "{all:?}");
        rustix::process::kill_process(Pid::from_child(&recorder), Signal::TERM).unwrap();
        recorder.wait().unwrap();
    }
}

/// The name of a recorder's session is free once it has been killed. A program that survives it
/// gives nothing to another user who takes the name, and does not wait for that user.
#[test]
fn programs_that_outlive_their_recorder_speak_to_nobody_else() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can start processes of other users");
    }
    let scratch = Scratch::new();
    let mut command = Command::new(HEAPLEDGER);
    command.args(["record", "--quiet", "-o"]).arg(scratch.file("killed.hl"));
    // Each command of the shell is another process, which introduces itself.
    command.args(["--", "/bin/sh", "-c", "echo begun; read line; (exit 7); echo its $?"]);
    let mut recorder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(recorder.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let session = session(recorder.id());
    recorder.kill().unwrap();
    let mut stdin = recorder.stdin.take().unwrap();
    recorder.wait().unwrap();
    let impostor = Impostor::start("silent", NOBODY, &session);
    stdin.write_all(b"go on\n").unwrap();
    let (sender, rest) = mpsc::channel();
    std::thread::spawn(move || sender.send(lines.map_while(Result::ok).collect::<Vec<_>>()));
    let rest = rest.recv_timeout(Duration::from_secs(120)).expect("the program waits for somebody");
    assert_eq!(rest, ["its 7"]);
    let asked = impostor.ended();
    assert!(!asked.is_empty() && asked.iter().all(|count| count == "0"), "{asked:?}");
}

/// Returns the name of a recorder's session: that of its only listening socket with such a name.
fn session(recorder: u32) -> String {
    let held: Vec<String> = std::fs::read_dir(format!("/proc/{recorder}/fd"))
        .unwrap()
        .filter_map(|entry| Some(std::fs::read_link(entry.ok()?.path()).ok()?.to_str()?.to_owned()))
        .collect();
    let sockets = std::fs::read(Path::new("/proc/net/unix")).unwrap();
    let sockets = String::from_utf8_lossy(&sockets);
    let name = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_held = held.contains(&format!("socket:[{}]", words.get(6)?));
        let name = words.get(7)?.strip_prefix("@")?;
        (is_held && name.starts_with("heapledger-") && !name.contains('.')).then(|| name.to_owned())
    };
    sockets.lines().find_map(name).expect("a session")
}
