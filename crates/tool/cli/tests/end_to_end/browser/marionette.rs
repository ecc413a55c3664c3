//! Firefox, headless, through Marionette: JSON messages, each preceded by its length, on a local
//! socket.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::end;
use crate::harness::{Scratch, installed};

/// A time limit beyond any request to a browser on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(240);

/// A running Firefox with a profile of its own, ended when dropped.
#[derive(Debug)]
pub(crate) struct Firefox {
    process: Child,
    stream: BufReader<TcpStream>,
    requests: u64,
}

impl Firefox {
    /// Starts Firefox ESR, or prints why it cannot.
    pub(crate) fn start(scratch: &Scratch) -> Option<Firefox> {
        let program = installed("firefox-esr")?;
        let profile = scratch.file("profile");
        fs::create_dir_all(&profile).unwrap();
        let settings = "user_pref(\"marionette.port\", 0);\nuser_pref(\"app.update.enabled\", false);\n\
            user_pref(\"datareporting.policy.dataSubmissionEnabled\", false);\n";
        fs::write(profile.join("user.js"), settings).unwrap();
        let said = File::create(scratch.file("firefox.txt")).unwrap();
        let process = Command::new(program)
            .args(["--headless", "--no-remote", "--marionette", "--remote-allow-system-access", "--profile"])
            .arg(&profile)
            .env("HOME", scratch.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        let mut firefox = Starting(Some(process));
        let stream = connect(&profile.join("MarionetteActivePort"));
        let mut firefox = Firefox { process: firefox.0.take().unwrap(), stream, requests: 0 };
        firefox.receive();
        firefox.call("WebDriver:NewSession", json!({}));
        firefox.call("WebDriver:SetTimeouts", json!({"script": TIMEOUT.as_millis() as u64}));
        Some(firefox)
    }

    /// Opens a page, and waits until it has loaded.
    pub(crate) fn open(&mut self, url: &str) {
        self.call("WebDriver:Navigate", json!({"url": url}));
    }

    /// Runs JavaScript in the page, with the page's own rights, until it calls its last argument;
    /// returns the argument of that call.
    pub(crate) fn run(&mut self, script: &str, arguments: &[Value]) -> Value {
        let answer = self
            .call("WebDriver:ExecuteAsyncScript", json!({"script": script, "args": arguments, "sandbox": "system"}));
        answer["value"].clone()
    }

    /// Returns the value of an expression in the browser itself, with all rights.
    pub(crate) fn in_browser(&mut self, expression: &str) -> Value {
        self.call("Marionette:SetContext", json!({"value": "chrome"}));
        let script = format!("return ({expression});");
        let answer = self.call("WebDriver:ExecuteScript", json!({"script": script, "args": []}));
        self.call("Marionette:SetContext", json!({"value": "content"}));
        answer["value"].clone()
    }

    fn call(&mut self, command: &str, parameters: Value) -> Value {
        self.requests += 1;
        let message = json!([0, self.requests, command, parameters]).to_string();
        write!(self.stream.get_mut(), "{}:{message}", message.len()).unwrap();
        let answer = self.receive();
        assert_eq!(answer[1], self.requests, "{answer}");
        assert!(answer[2].is_null(), "{command} failed: {}", answer[2]);
        answer[3].clone()
    }

    fn receive(&mut self) -> Value {
        let mut length = String::new();
        loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            if byte == *b":" {
                break;
            }
            length.push(byte[0].into());
        }
        let mut message = vec![0; length.parse().unwrap()];
        self.stream.read_exact(&mut message).unwrap();
        serde_json::from_slice(&message).unwrap()
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// A process that cannot be asked to end yet.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(end);
    }
}

/// Connects to the socket whose port the browser writes into a file.
fn connect(port: &PathBuf) -> BufReader<TcpStream> {
    let started = Instant::now();
    loop {
        let number = fs::read_to_string(port).ok().and_then(|text| text.trim().parse::<u16>().ok());
        if let Some(stream) = number.and_then(|number| TcpStream::connect(("127.0.0.1", number)).ok()) {
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            return BufReader::new(stream);
        }
        assert!(started.elapsed() < TIMEOUT, "Firefox does not listen: {}", directory(port).display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn directory(port: &Path) -> &Path {
    port.parent().and_then(Path::parent).unwrap_or(port)
}
