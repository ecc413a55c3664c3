//! The stories of `docs/heap.md`: its commands print what the page shows, about snapshots that the
//! programs of `examples/heap` have just made.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::browser::marionette::Firefox;
use crate::browser::webdriver::Chromium;
use crate::harness::{HEAPLEDGER, Job, Scratch, installed, wait_until};
use crate::readme::root;

/// A command of the page, and the lines that it shows below it.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Returns the commands of the section with this title.
fn steps(title: &str) -> Vec<Step> {
    let page = fs::read_to_string(root().join("docs/heap.md")).unwrap();
    let mut sections = page.split("\n## ").skip(1);
    let section = sections.find(|section| section.starts_with(title)).unwrap_or_else(|| panic!("no section: {title}"));
    let mut steps: Vec<Step> = Vec::new();
    for block in section.split("\n```").skip(1).step_by(2) {
        let lines = block.strip_prefix("console\n").unwrap_or_default();
        for line in lines.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { command: command.to_owned(), shown: Vec::new() }),
                None => steps.last_mut().expect("a command before its output").shown.push(line.to_owned()),
            }
        }
    }
    steps
}

/// Returns what is the same in each run: the words of a line, without figures.
fn words(line: &str) -> String {
    if line.starts_with('{') {
        return line.replace(|c: char| c.is_ascii_digit(), "");
    }
    let is_figure = |word: &&str| {
        let digits = word.trim_start_matches(['+', '-', '<', '[']);
        digits.starts_with(|c: char| c.is_ascii_digit())
            || ["B", "KiB", "MiB", "%"].contains(&digits.trim_end_matches(','))
    };
    let words = line.split_whitespace().filter(|word| !is_figure(word));
    words.map(|word| if word.starts_with('@') { "@" } else { word }).collect::<Vec<_>>().join(" ")
}

/// Returns the ids of nodes in a line.
fn ids(line: &str) -> Vec<&str> {
    let parts = line.split('@').skip(1);
    parts.map(|part| part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default()).collect()
}

/// Runs the commands of some steps, in order, and compares each line that the page shows. An id on
/// the page stands for the one that an earlier command has printed at its place.
fn replay(steps: &[Step], directory: &Path) {
    let mut ids_here: HashMap<String, String> = HashMap::new();
    for step in steps {
        let command: Vec<&str> = step.command.split(' ').map(|word| ids_here.get(word).map_or(word, |id| id)).collect();
        let command = command.join(" ");
        let search = format!("{}:/usr/bin:/bin", Path::new(HEAPLEDGER).parent().unwrap().display());
        let outcome = Job::new(["/bin/bash", "-c", &command]).directory(directory).variable("PATH", search).bare();
        assert!(outcome.status.success(), "{command}: {outcome:?}");
        let printed = outcome.text().replace(&directory.display().to_string(), "/srv/app");
        let mut rest: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
        for line in step.shown.iter().filter(|line| !line.is_empty()) {
            let found = rest.iter().position(|other| words(other) == words(line));
            let found = found.unwrap_or_else(|| panic!("{command}\nnot there: {line}\n{printed}"));
            // Rows of equal sizes are in the order of their ids; the steps of a path have an order.
            let found = if step.command.contains(" paths ") {
                rest.drain(..=found).next_back()
            } else {
                Some(rest.remove(found))
            };
            let found = found.unwrap_or_default();
            ids_here.extend(ids(line).into_iter().zip(ids(found)).map(|(shown, id)| (shown.to_owned(), id.to_owned())));
        }
    }
}

/// A running server, ended when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the newest snapshot in a directory that is not one of `known`, when it is complete.
fn snapshot(directory: &Path, known: &[PathBuf]) -> PathBuf {
    let mut found = None;
    wait_until("Node.js has written a snapshot", || {
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let is_new = |path: &PathBuf| path.extension().is_some_and(|it| it == "heapsnapshot") && !known.contains(path);
        found = files.into_iter().find(is_new);
        let end = found.as_ref().and_then(|path| fs::read(path).ok()).unwrap_or_default();
        end.ends_with(b"]}\n") || end.ends_with(b"]}")
    });
    found.unwrap()
}

/// Makes `early.heapsnapshot` after 100 requests and `late.heapsnapshot` after 3,000, as the page
/// says.
fn snapshots_of_the_service(directory: &Path) -> Option<()> {
    let node = installed("node")?;
    fs::copy(root().join("examples/heap/server.js"), directory.join("server.js")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = directory.join("server.js");
    let words = ["--heapsnapshot-signal=SIGUSR2".into(), script.into_os_string(), port.to_string().into()];
    let server = Command::new(node).args(words).current_dir(directory).stdout(Stdio::piped()).spawn().unwrap();
    let mut server = Server(server);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listening\n");
    let mut known = Vec::new();
    for (users, name) in [(0..100, "early.heapsnapshot"), (100..3000, "late.heapsnapshot")] {
        for user in users {
            request(port, user);
        }
        kill_process(Pid::from_child(&server.0), Signal::USR2).unwrap();
        let made = snapshot(directory, &known);
        fs::copy(&made, directory.join(name)).unwrap();
        known.extend([made, directory.join(name)]);
    }
    Some(())
}

fn request(port: u16, user: u32) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET /user{user} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(&format!("hello, user{user}")), "{answer}");
}

/// The leak of the service is found by three commands, and the other sections ask about the same
/// snapshots.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_service_leaks_as_told() {
    let scratch = Scratch::new();
    let Some(()) = snapshots_of_the_service(scratch.path()) else { return };
    let told = steps("A service that leaks through closures");
    assert_eq!(told.len(), 3);
    replay(&told, scratch.path());
    replay(&steps("Breakdowns"), scratch.path());
    replay(&steps("Strings and code by kind"), scratch.path());
    replay(&steps("Other verbs"), scratch.path());
    if installed("jq").is_some() {
        replay(&steps("As JSON"), scratch.path());
        replay(&steps("Convert a snapshot"), scratch.path());
    }
}

/// Asks Firefox for a snapshot of the process of another tab, as its memory panel does.
const SNAPSHOT_OF_A_TAB: &str = r#"
    const done = arguments[arguments.length - 1];
    const { gBrowser } = Services.wm.getMostRecentWindow("navigator:browser");
    const triggeringPrincipal = Services.scriptSecurityManager.getSystemPrincipal();
    const tab = gBrowser.addTab(arguments[0], { triggeringPrincipal });
    (async () => {
        while (tab.linkedBrowser.currentURI.spec !== arguments[0] || tab.linkedBrowser.webProgress.isLoadingDocument) {
            await new Promise((next) => setTimeout(next, 20));
        }
        const { require } = ChromeUtils.importESModule("resource://devtools/shared/loader/Loader.sys.mjs");
        const { CommandsFactory } = require("devtools/shared/commands/commands-factory");
        const commands = await CommandsFactory.forTab(tab);
        await commands.targetCommand.startListening();
        const memory = await commands.targetCommand.targetFront.getFront("memory");
        await memory.attach();
        const file = await memory.saveHeapSnapshot();
        await commands.destroy();
        return file;
    })().then(done, (error) => done(`error: ${error}`));
"#;

/// The page keeps detached nodes, as Chromium and Firefox see it.
#[test]
#[ignore = "needs Chromium and Firefox ESR; in .ci/run"]
fn the_page_keeps_detached_nodes_as_told() {
    let scratch = Scratch::new();
    let told = steps("A page that keeps detached nodes");
    let (of_chromium, of_firefox): (Vec<Step>, Vec<Step>) =
        told.into_iter().partition(|step| step.command.contains("page.heapsnapshot"));
    assert_eq!((of_chromium.len(), of_firefox.len()), (2, 2));
    let url = format!("file://{}", root().join("examples/heap/page.html").display());
    if let Some(chromium) = Chromium::start(&scratch) {
        chromium.open(&url);
        fs::write(scratch.file("page.heapsnapshot"), chromium.heap_snapshot()).unwrap();
        replay(&of_chromium, scratch.path());
    }
    if let Some(mut firefox) = Firefox::start(&scratch) {
        firefox.open("about:memory");
        let file = firefox.run(SNAPSHOT_OF_A_TAB, &[json!(url)]);
        let file = file.as_str().unwrap();
        fs::copy(file, scratch.file("page.fxsnapshot")).unwrap_or_else(|error| panic!("{file}: {error}"));
        fs::remove_file(file).unwrap();
        replay(&of_firefox, scratch.path());
    }
}
