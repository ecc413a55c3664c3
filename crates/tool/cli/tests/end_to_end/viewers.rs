//! Files of `heapledger export`, in the programs that people view them with: the totals that they
//! show are ours.
//!
//! `.ci/viewers` installs these programs and runs the tests; HEAPLEDGER_VIEWERS is the directory of
//! those from npm.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::browser::webdriver::Chromium;
use crate::export::{exported, totals};
use crate::harness::{Job, Recording, Scratch, installed, number, program, skipped, wait_until};

/// Returns a file or directory of an npm package, or `None` after printing that there is none.
fn package(path: &str) -> Option<PathBuf> {
    let Some(viewers) = std::env::var_os("HEAPLEDGER_VIEWERS") else {
        skipped("HEAPLEDGER_VIEWERS is not set: .ci/viewers does it");
        return None;
    };
    let path = Path::new(&viewers).join("node_modules").join(path);
    assert!(path.exists(), "{}", path.display());
    Some(path)
}

fn recorded(scratch: &Scratch) -> Recording {
    Job::fixture("mix_threads", "3000").recorded(scratch).1
}

/// Returns a number such as `1,234,567`.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

#[test]
#[ignore = "needs google-pprof; in .ci/viewers"]
fn google_pprof() {
    let Some(pprof) = installed("google-pprof") else { return };
    let scratch = Scratch::new();
    let recording = recorded(&scratch);
    for at in ["peak", "end"] {
        let (file, _) = exported(&scratch, &recording, "gperftools", &["--at", at]);
        let (blocks, bytes) = totals(&recording);
        let live = if at == "peak" { 1 } else { 2 };
        for (option, total) in [
            ("--inuse_objects", format!("Total: {} objects", blocks[live])),
            ("--inuse_space", format!("Total: {} B", bytes[live])),
            ("--alloc_objects", format!("Total: {} objects", blocks[0])),
            ("--alloc_space", format!("Total: {} B", bytes[0])),
        ] {
            let mut command = Command::new(&pprof);
            let done = command.args(["--text", "--show_bytes", option]).arg(program("mix_threads")).arg(&file).output();
            let done = done.unwrap();
            let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
            assert!(out.starts_with(&format!("{total}\n")), "{option} {at}: expected {total}\n{out}\n{err}");
            // It has found the program, and the function in it.
            assert!(bytes[live] == 0 || option != "--alloc_space" || out.contains("mix_step"), "{out}\n{err}");
        }
    }
    // A program whose code is at other addresses in memory than in the file: linked by lld, as Rust
    // programs are.
    let (_, recording) = Job::fixture("growth", "50").recorded(&scratch);
    let (file, _) = exported(&scratch, &recording, "gperftools", &["--total"]);
    let done =
        Command::new(&pprof).args(["--text", "--cum", "--alloc_space"]).arg(program("growth")).arg(&file).output();
    let out = String::from_utf8(done.unwrap().stdout).unwrap();
    assert!(out.contains("growth::round") && out.contains("growth::main"), "{out}");
    if installed("go").is_some() {
        let options = ["tool", "pprof", "-top", "-cum", "-sample_index=alloc_space"];
        let done = Command::new("go").args(options).arg(&file).output();
        let out = String::from_utf8(done.unwrap().stdout).unwrap();
        assert!(out.lines().any(|line| line.ends_with(" round")), "{out}");
    }
}

/// Valgrind's viewer: what it reads from the file, and what it displays.
#[test]
#[ignore = "needs Chromium and Valgrind's dh_view.html; in .ci/viewers"]
fn dh_view() {
    let page = ["/usr/libexec/valgrind/dh_view.html", "/usr/lib/valgrind/dh_view.html"];
    let Some(page) = page.into_iter().find(|page| Path::new(page).exists()) else {
        return skipped("Valgrind's dh_view.html is not installed");
    };
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let recording = recorded(&scratch);
    let (file, _) = exported(&scratch, &recording, "dhat", &[]);
    chromium.open(&format!("file://{page}"));
    chromium.choose("input[type=file]", &file);
    chromium.wait("gRoot !== undefined && document.body.innerText.includes('At t-gmax')");
    let root = chromium.eval(
        "[gRoot._totalBlocks, gRoot._atTGmaxBlocks, gRoot._atTEndBlocks, \
          gRoot._totalBytes, gRoot._atTGmaxBytes, gRoot._atTEndBytes]",
    );
    let (blocks, bytes) = totals(&recording);
    let expected: Vec<i64> = blocks.into_iter().chain(bytes).collect();
    assert_eq!(serde_json::from_value::<Vec<i64>>(root).unwrap(), expected);
    let shown = chromium.eval("document.body.innerText");
    let shown = shown.as_str().unwrap();
    // The root comes first.
    for (at, title) in ["Total:", "At t-gmax:", "At t-end:"].into_iter().enumerate() {
        let line = shown.lines().find(|line| line.trim_start().starts_with(title)).unwrap_or_else(|| panic!("{shown}"));
        let (bytes, blocks) =
            (format!("{} bytes (", grouped(bytes[at])), format!(" in {} blocks", grouped(blocks[at])));
        assert!(line.contains(&bytes) && line.contains(&blocks), "{line}: {bytes}{blocks}");
    }
    assert!(shown.contains("mix_step (") && shown.contains("mix_threads"), "{shown}");
}

/// The page of the npm package: the profile that it has read, as it writes it to a file of its own.
#[test]
#[ignore = "needs Chromium and the npm package speedscope; in .ci/viewers"]
fn speedscope() {
    let Some(page) = package("speedscope/dist/release/index.html") else { return };
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let recording = recorded(&scratch);
    let (blocks, bytes) = totals(&recording);
    let temporary = recording.total("temporary_allocations");
    let all = [bytes[1], blocks[1], bytes[0], blocks[0], bytes[2], blocks[2], temporary];
    for (to, options, expected) in [
        ("collapsed", &["--at", "peak"][..], &[bytes[1]][..]),
        ("collapsed", &["--total", "--metric", "blocks"], &[blocks[0]]),
        ("heapprofile", &["--at", "peak"], &[bytes[1]]),
        ("heapprofile", &["--total"], &[bytes[0]]),
        ("speedscope", &[], &all),
        ("pprof", &["--at", "peak"], &[bytes[1]]),
        ("pprof", &["--total"], &[bytes[0]]),
    ] {
        let (file, _) = exported(&scratch, &recording, to, options);
        chromium.open(&format!("file://{}", page.display()));
        chromium.wait("document.querySelector('input[type=file]') !== null");
        chromium.choose("input[type=file]", &file);
        chromium.wait("document.title.endsWith(' - speedscope')");
        chromium.eval(
            "(window.saved = null, \
              URL.createObjectURL = (blob) => { window.saved = blob.text(); return 'javascript:void 0' }, true)",
        );
        chromium.eval("window.dispatchEvent(new KeyboardEvent('keydown', { key: 's', ctrlKey: true }))");
        chromium.wait("window.saved !== null");
        let saved = chromium.eval("window.saved");
        let saved: Value = serde_json::from_str(saved.as_str().unwrap()).unwrap();
        let profiles = saved["profiles"].as_array().unwrap();
        let found: Vec<i64> = profiles.iter().map(outermost).collect();
        assert_eq!(found, expected, "{to} {options:?}");
        let names: Vec<&str> =
            saved["shared"]["frames"].as_array().unwrap().iter().map(|frame| frame["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"work"), "{to}: {names:?}");
    }
}

/// Returns the time between the beginnings and the ends of a profile's outermost functions.
fn outermost(profile: &Value) -> i64 {
    let (mut depth, mut sum) = (0, 0);
    for event in profile["events"].as_array().unwrap_or_else(|| panic!("{profile:#}")) {
        let at = number(event, "at");
        match event["type"].as_str() {
            Some("O") => {
                sum -= if depth == 0 { at } else { 0 };
                depth += 1;
            }
            _ => {
                depth -= 1;
                sum += if depth == 0 { at } else { 0 };
            }
        }
    }
    assert_eq!((depth, sum), (0, number(profile, "endValue") - number(profile, "startValue")));
    sum
}

/// Chrome's own developer tools, which are pages of the browser: the panel *Memory* with a file.
#[test]
#[ignore = "needs Chromium; in .ci/viewers"]
fn devtools() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let recording = recorded(&scratch);
    let (blocks, bytes) = totals(&recording);
    for (options, expected) in
        [(&["--at", "peak"][..], bytes[1]), (&["--total"], bytes[0]), (&["--total", "--metric", "blocks"], blocks[0])]
    {
        let (file, _) = exported(&scratch, &recording, "heapprofile", options);
        let text = Value::from(std::fs::read_to_string(file).unwrap());
        chromium.open(&format!("{}/devtools_app.html", chromium.devtools));
        // The panel appears soon after the page. It recognises an allocation profile by the end of
        // the name.
        chromium.eval(&format!(
            "(async () => {{
                const {{ViewManager}} = await import('/devtools/ui/legacy/legacy.js');
                const {{HeapProfilerPanel}} = await import('/devtools/panels/profiler/profiler.js');
                await ViewManager.ViewManager.instance().showView('heap-profiler');
                window.panel = HeapProfilerPanel.HeapProfilerPanel.instance();
                await panel.loadFromFile(new File([{text}], 'heapledger.heapprofile'));
                const types = panel.profileTypes;
                window.profiles = [...types].flatMap((type) => type.getProfiles());
                panel.showProfile(profiles[0]);
            }})()"
        ));
        chromium.wait("panel.visibleView?.profileInternal?.root?.total > 0");
        let found = chromium.eval("[panel.visibleView.adjustedTotal, panel.visibleView.profileInternal.root.total]");
        assert_eq!(found, serde_json::json!([expected, expected]), "{options:?}");
        // The displayed text, which is in shadow trees.
        let shown = chromium.eval(
            "(() => {
                const texts = [];
                const visit = (node) => {
                    if (node.shadowRoot) visit(node.shadowRoot);
                    if (node.nodeType === Node.TEXT_NODE) texts.push(node.textContent.trim());
                    node.childNodes.forEach(visit);
                };
                visit(document.body);
                return texts;
            })()",
        );
        assert!(shown.as_array().unwrap().contains(&"work".into()), "{shown:#}");
    }
}

/// The command line of the Firefox Profiler, with a directory for its files.
pub(crate) struct Profiler {
    node: PathBuf,
    command: PathBuf,
    /// Has a short path, because it contains sockets.
    directory: TempDir,
}

impl Profiler {
    /// Returns `None` after printing that it is missing.
    pub(crate) fn new() -> Option<Profiler> {
        let (node, command) = (package("node/bin/node")?, package(".bin/profiler-cli")?);
        let directory = tempfile::Builder::new().prefix("heapledger-profiler-").tempdir().unwrap();
        Some(Profiler { node, command, directory })
    }

    /// Returns its answer.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        self.try_ask(words).unwrap_or_else(|complaint| panic!("{words:?}: {complaint}"))
    }

    /// Returns its answer, or its error message.
    fn try_ask(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.node);
        command.arg(&self.command).args(words).env("PROFILER_CLI_SESSION_DIR", self.directory.path());
        let done = command.output().unwrap();
        let [text, complaint] = [done.stdout, done.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        if done.status.success() { Ok(text) } else { Err(text + &complaint) }
    }

    /// Returns its answer as JSON.
    pub(crate) fn ask_json(&self, words: &[&str]) -> Value {
        let text = self.ask(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
    }

    /// Loads a file in place of the one before.
    pub(crate) fn load(&self, file: &Path) {
        let _ = self.try_ask(&["stop", "--all"]);
        // It gives its server half a second to start; on a busy machine the server then still
        // starts later.
        if let Err(complaint) = self.try_ask(&["load", file.to_str().unwrap()]) {
            wait_until(&complaint, || self.try_ask(&["profile", "info"]).is_ok());
        }
    }

    /// Returns the sum of a thread's calls, and the names on the path to the largest, from the
    /// outside.
    pub(crate) fn calls(&self, thread: &str, strategy: &str) -> (i64, Vec<String>) {
        let answer = self.ask_json(&["thread", "samples-top-down", "--thread", thread, "--strategy", strategy]);
        let root = &answer["regularCallTree"];
        let way = std::iter::successors(Some(root), |node| node["children"].get(0));
        (number(root, "totalSamples"), way.map(|node| node["name"].as_str().unwrap().to_owned()).collect())
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        let _ = self.try_ask(&["stop", "--all"]);
    }
}

#[test]
#[ignore = "needs the npm packages node and @firefox-devtools/profiler-cli; in .ci/viewers"]
fn firefox_profiler() {
    let scratch = Scratch::new();
    let Some(profiler) = Profiler::new() else { return };
    let recording = recorded(&scratch);
    let (blocks, bytes) = totals(&recording);
    let (file, _) = exported(&scratch, &recording, "dhat", &[]);
    profiler.load(&file);
    let dhat: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let most = dhat["pps"].as_array().unwrap().iter().map(|point| number(point, "mb")).sum();
    for (thread, expected) in ["t-0", "t-1", "t-2", "t-3"].iter().zip([bytes[0], most, bytes[1], bytes[2]]) {
        let (total, way) = profiler.calls(thread, "native-allocations");
        assert_eq!(total, expected, "{thread}");
        assert!(way.iter().any(|name| name == "work"), "{way:?}");
    }
    // It makes one sample per unit, so only a small figure works.
    let (file, _) = exported(&scratch, &recording, "collapsed", &["--at", "end", "--metric", "blocks"]);
    profiler.load(&file);
    assert_eq!(profiler.calls("t-0", "timing").0, blocks[2]);
}

/// The picture: the text of its outermost box.
#[test]
#[ignore = "needs Chromium; in .ci/viewers"]
fn a_flame_graph() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let recording = recorded(&scratch);
    let (blocks, bytes) = totals(&recording);
    for (options, unit, total) in
        [(&["--at", "peak"][..], "bytes", bytes[1]), (&["--total", "--metric", "blocks"], "allocations", blocks[0])]
    {
        let (file, _) = exported(&scratch, &recording, "flamegraph", options);
        chromium.open(&format!("file://{}", file.display()));
        let titles = chromium.eval("[...document.querySelectorAll('g title')].map((title) => title.textContent)");
        let whole = Value::from(format!("all ({} {unit}, 100%)", grouped(total)));
        assert!(titles.as_array().unwrap().contains(&whole), "{whole}: {titles:#}");
    }
}

/// DHAT's own counts of a program: for each stack the total, the maximum, and the bytes live at the
/// end.
#[test]
#[ignore = "needs Valgrind; in .ci/viewers"]
fn each_stack_is_that_of_dhat() {
    let Some(valgrind) = installed("valgrind") else { return };
    let scratch = Scratch::new();
    let theirs = scratch.file("theirs.json");
    let own = format!("--dhat-out-file={}", theirs.display());
    // By default its stacks end after twelve functions; and it does not see frees inside the C
    // library.
    let words = [valgrind.to_str().unwrap(), "--tool=dhat", "--num-callers=100", "--run-libc-freeres=no", &own];
    // A program without realloc, which DHAT does not count as an allocation.
    let under = Job::new(words).argument(program("lives")).bare();
    assert!(under.status.success(), "{under:?}");
    let (_, recording) = Job::fixture("lives", "").recorded(&scratch);
    let (ours, _) = exported(&scratch, &recording, "dhat", &[]);
    let [ours, theirs] = [ours, theirs].map(|file| {
        let file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let points = file["pps"].as_array().unwrap().iter();
        let mut points: Vec<_> =
            points.map(|point| ["tb", "tbk", "mb", "gb", "gbk", "eb", "ebk"].map(|name| number(point, name))).collect();
        points.sort_unstable();
        points
    });
    assert!(ours.len() >= 3, "{ours:?}");
    assert_eq!(ours, theirs);
}
