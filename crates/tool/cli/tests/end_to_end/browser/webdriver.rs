//! Chromium, headless, through ChromeDriver: JSON over HTTP, by the WebDriver protocol.

use std::fs::{self, File};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heapledger_http::{HttpUrl, Timeouts, send_request};
use serde_json::{Value, json};

use super::end;
use crate::harness::{Scratch, installed, is_true_within, wait_until};

/// A time limit beyond any request to a browser on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running Chromium with a profile of its own, ended when dropped.
#[derive(Debug)]
pub(crate) struct Chromium {
    driver: Child,
    port: u16,
    session: String,
    /// The address at which the browser itself listens, and has the pages of its developer tools.
    pub(crate) devtools: String,
}

impl Chromium {
    /// Starts Chromium, or prints why it cannot.
    pub(crate) fn start(scratch: &Scratch) -> Option<Chromium> {
        let (browser, program) = (installed("chromium")?, installed("chromedriver")?);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let said = File::create(scratch.file("chromedriver.txt")).unwrap();
        let driver = Command::new(program)
            .arg(format!("--port={port}"))
            .env("HOME", scratch.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        let mut chromium = Chromium { driver, port, session: String::new(), devtools: String::new() };
        wait_until("ChromeDriver listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let profile = scratch.file("chromium");
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-quic",
            &format!("--user-data-dir={}", profile.display()),
        ];
        let options = json!({"binary": browser, "args": arguments});
        let wanted = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let wanted = json!({"capabilities": {"alwaysMatch": wanted}});
        let answer = chromium.send("POST", "/session", Some(&wanted));
        chromium.session = answer["sessionId"].as_str().unwrap().to_owned();
        let address = answer["capabilities"]["goog:chromeOptions"]["debuggerAddress"].as_str().unwrap();
        chromium.devtools = format!("http://{address}/devtools");
        chromium.post("timeouts", json!({"script": TIMEOUT.as_millis() as u64}));
        Some(chromium)
    }

    /// Opens a page, and waits until it has loaded.
    pub(crate) fn open(&self, url: &str) {
        self.post("url", json!({"url": url}));
    }

    /// Returns the value of an expression in the page; for a promise, its result.
    pub(crate) fn eval(&self, expression: &str) -> Value {
        let script = format!("return (async () => ({expression}))();");
        self.post("execute/sync", json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true in the page.
    pub(crate) fn wait(&self, expression: &str) {
        if !is_true_within(2 * TIMEOUT, || self.eval(expression) == true) {
            let loaded = "performance.getEntries().map((one) => [one.name, one.responseStatus, one.duration])";
            panic!(
                "waited in vain until {expression}\nthe page: {}\nloaded: {}\nlog: {}",
                self.eval("document.documentElement.outerHTML.slice(0, 20000)"),
                self.eval(loaded),
                self.log(),
            );
        }
    }

    /// Returns what the browser has logged since the last time: errors, and violations of policies.
    pub(crate) fn log(&self) -> Value {
        self.post("se/log", json!({"type": "browser"}))
    }

    /// Presses keys, one after the other: characters, or [`key`]s.
    pub(crate) fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|event| json!({"type": event, "value": key.to_string()})))
            .collect();
        self.post("actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}));
    }

    /// Clicks into the middle of the first element that matches a selector.
    pub(crate) fn click(&self, selector: &str) {
        self.post(&format!("element/{}/click", self.element(selector)), json!({}));
    }

    /// Chooses a file in the first input that matches a selector.
    pub(crate) fn choose(&self, selector: &str, file: &Path) {
        self.post(&format!("element/{}/value", self.element(selector)), json!({"text": file}));
    }

    /// Returns the protocol's id of the first element that matches a selector.
    fn element(&self, selector: &str) -> String {
        let found = self.post("element", json!({"using": "css selector", "value": selector}));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Sets the inner size of the window.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size);
    }

    /// Makes the page see a dark or a light colour scheme as the reader's preference.
    pub(crate) fn prefer_dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        self.command(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": value}]}),
        );
    }

    /// Returns a snapshot of the page's JavaScript heap, as DevTools saves it.
    pub(crate) fn heap_snapshot(&self) -> String {
        let snapshot = self.send("GET", &format!("/session/{}/chromium/heap_snapshot", self.session), None);
        snapshot.as_str().unwrap().to_owned()
    }

    /// Writes a screenshot of the visible part, as PNG.
    pub(crate) fn picture(&self, path: &Path) {
        let picture = self.send("GET", &format!("/session/{}/screenshot", self.session), None);
        fs::write(path, base64(picture.as_str().unwrap())).unwrap();
    }

    fn command(&self, command: &str, parameters: Value) {
        self.post("goog/cdp/execute", json!({"cmd": command, "params": parameters}));
    }

    fn post(&self, command: &str, parameters: Value) -> Value {
        self.send("POST", &format!("/session/{}/{command}", self.session), Some(&parameters))
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map_or(String::new(), Value::to_string);
        let url = HttpUrl::parse(&format!("http://127.0.0.1:{}", self.port)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            url.authority,
            body.len()
        );
        let timeouts = Timeouts { step: TIMEOUT, total: Duration::MAX };
        let answer = send_request(&url, &head, body.as_bytes(), timeouts).unwrap();
        // The connection may stay open after the body.
        let (status, length) = (answer.status, answer.content_length.unwrap());
        let value: Value = serde_json::from_reader(answer.take(length)).unwrap();
        assert_eq!(status, 200, "{method} {path}: {}", value["value"]);
        value["value"].clone()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        end(&mut self.driver);
    }
}

/// Keys that are not characters, by their numbers in WebDriver.
pub(crate) mod key {
    pub(crate) const END: char = '\u{e010}';
    pub(crate) const HOME: char = '\u{e011}';
    pub(crate) const LEFT: char = '\u{e012}';
    pub(crate) const RIGHT: char = '\u{e014}';
    pub(crate) const DOWN: char = '\u{e015}';
    pub(crate) const ESCAPE: char = '\u{e00c}';
    pub(crate) const ENTER: char = '\u{e007}';
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'=').map(digit).collect();
    let bytes = digits.chunks(4).flat_map(|chunk| {
        let bits = chunk.iter().fold(0_u32, |bits, &digit| bits << 6 | u32::from(digit)) << (6 * (4 - chunk.len()));
        let [_, bytes @ ..] = bits.to_be_bytes();
        bytes.into_iter().take(chunk.len() - 1)
    });
    bytes.collect()
}
