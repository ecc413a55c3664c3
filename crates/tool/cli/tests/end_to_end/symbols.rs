//! Names for a recording that is read later, or on another machine.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{HEAPLEDGER, Job, Recording, Scratch, installed, number, program, wait_until};

/// A recording of a program that has been moved: it is stripped, in `kept/bin`, with its debug file
/// in `kept/debug`.
struct Moved {
    scratch: Scratch,
    recording: Recording,
    build_id: String,
}

impl Moved {
    fn new() -> Option<Moved> {
        for tool in ["objcopy", "strip"] {
            installed(tool)?;
        }
        let scratch = Scratch::new();
        for directory in ["bin", "kept", "kept/bin", "kept/debug"] {
            fs::create_dir(scratch.file(directory)).unwrap();
        }
        let moved = scratch.file("bin/growth");
        fs::copy(program("growth"), &moved).unwrap();
        let run = |tool: &str, arguments: &[&str]| {
            let done = Command::new(tool).args(arguments).current_dir(scratch.path()).output().unwrap();
            assert!(done.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        };
        run("objcopy", &["--only-keep-debug", "bin/growth", "kept/debug/growth"]);
        run("strip", &["bin/growth"]);
        let (_, recording) = Job::new([moved.to_str().unwrap(), "20"]).recorded(&scratch);
        fs::rename(&moved, scratch.file("kept/bin/growth")).unwrap();
        let info = recording.ask("info", &[]);
        let modules = info["modules"].as_array().unwrap().iter();
        let mut of_program =
            modules.filter(|module| module["path"].as_str().is_some_and(|path| path.ends_with("/growth")));
        let build_id = of_program.next().and_then(|module| module["build_id"].as_str()).unwrap_or_default().to_owned();
        assert!(!build_id.is_empty(), "{info:#}");
        Some(Moved { scratch, recording, build_id })
    }

    /// Returns the row with the most bytes, as `top` prints it under these conditions, and its
    /// messages.
    fn first(&self, options: &[&str], variables: &[(&str, &str)]) -> (Value, String) {
        let words = [HEAPLEDGER, "top", "--total", "-n", "1", "--json", self.recording.path.to_str().unwrap()];
        let mut job = Job::new(words.iter().chain(options));
        for (name, value) in variables {
            job = job.variable(name, value);
        }
        let outcome = job.bare();
        assert!(outcome.status.success(), "{outcome:?}");
        let mut answer: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        (answer["rows"][0].take(), String::from_utf8_lossy(&outcome.stderr).into_owned())
    }

    #[track_caller]
    fn assert_named(&self, row: &Value) {
        let file = row["file"].as_str().unwrap_or_default();
        assert!(file.ends_with(".rs") && number(row, "line") > 0, "{row:#}");
    }

    #[track_caller]
    fn assert_not_named(&self, row: &Value) {
        assert!(row["function"].as_str().unwrap().starts_with("growth+0x") && row["file"].is_null(), "{row:#}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_programs_that_are_elsewhere() {
    let Some(moved) = Moved::new() else { return };
    moved.assert_not_named(&moved.first(&[], &[]).0);
    let kept = moved.scratch.file("kept");
    moved.assert_named(&moved.first(&["--symbols", kept.to_str().unwrap()], &[]).0);
    // The program itself has no debug information; its debug file is enough.
    for (name, is_named) in [("bin/growth", false), ("debug/growth", true)] {
        let (row, _) = moved.first(&["--symbols", kept.join(name).to_str().unwrap()], &[]);
        if is_named { moved.assert_named(&row) } else { moved.assert_not_named(&row) }
    }
    // The recording contains addresses, not programs.
    let bytes = fs::read(&moved.recording.path).unwrap();
    assert!(!bytes.windows(4).any(|bytes| bytes == b"\x7fELF"), "{:?}", moved.recording);
}

/// Names that were found once need not be searched for again.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_earlier_runs() {
    let Some(moved) = Moved::new() else { return };
    let (kept, cache) = (moved.scratch.file("kept"), moved.scratch.file("cache"));
    let variables = [("XDG_CACHE_HOME", cache.to_str().unwrap())];
    moved.assert_not_named(&moved.first(&[], &variables).0);
    let (found, _) = moved.first(&["--symbols", kept.to_str().unwrap()], &variables);
    moved.assert_named(&found);
    assert!(cache.join("heapledger/symbols").join(&moved.build_id).is_file());
    fs::remove_dir_all(kept).unwrap();
    assert_eq!(moved.first(&[], &variables).0, found);
    // The cache is in the home directory if that variable is not set, and there is none without a
    // home directory.
    let home = moved.scratch.file("home");
    fs::create_dir(&home).unwrap();
    fs::rename(&cache, home.join(".cache")).unwrap();
    let home = ("HOME", home.to_str().unwrap());
    assert_eq!(moved.first(&[], &[("XDG_CACHE_HOME", "relative"), home]).0, found);
    moved.assert_not_named(&moved.first(&[], &[("XDG_CACHE_HOME", ""), ("HOME", "")]).0);
}

/// A server for the files in a directory, ended when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(directory: PathBuf) -> Option<Server> {
        let debuginfod = installed("debuginfod")?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(debuginfod);
        command.args(["-d", ":memory:", "-p", &port.to_string(), "-F"]).arg(directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Some(Server { child: command.spawn().unwrap(), port })
    }

    /// True if the server has this file already.
    fn has(&self, path: &str) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let asked = write!(stream, "GET {path} HTTP/1.0\r\n\r\n").and_then(|()| {
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).map(|()| answer)
        });
        asked.is_ok_and(|answer| answer.ends_with(b" 200"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn from_debuginfod() {
    if installed("debuginfod-find").is_none() {
        return;
    }
    let Some(moved) = Moved::new() else { return };
    let Some(server) = Server::start(moved.scratch.file("kept/debug")) else { return };
    wait_until("the server has the debug file", || server.has(&format!("/buildid/{}/debuginfo", moved.build_id)));
    let (urls, cache) = (format!("http://127.0.0.1:{}", server.port), moved.scratch.file("cache"));
    let variables = [("DEBUGINFOD_URLS", &*urls), ("DEBUGINFOD_CACHE_PATH", cache.to_str().unwrap())];
    let (row, told) = moved.first(&[], &variables);
    moved.assert_named(&row);
    assert!(told.contains("asking debuginfod for growth"), "{told}");
    // The client has cached it.
    drop(server);
    moved.assert_named(&moved.first(&[], &variables).0);
    // No server is asked unless that variable is set; and an unreachable server is not an error.
    moved.assert_not_named(&moved.first(&[], &[("DEBUGINFOD_URLS", ""), variables[1]]).0);
    let empty = moved.scratch.file("empty");
    let (row, _) = moved.first(&[], &[variables[0], ("DEBUGINFOD_CACHE_PATH", empty.to_str().unwrap())]);
    moved.assert_not_named(&row);
    // A missing client is not an error either.
    let (row, _) = moved.first(&[], &[variables[0], ("PATH", "/nonexistent")]);
    moved.assert_not_named(&row);
}
