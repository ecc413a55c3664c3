//! Snapshots of the output of the reading verbs for a small recording.
//!
//! The files in `snapshots/golden` have commands and their output, as in a terminal: FILE is the
//! recording, DECLARED that of a program which declares contexts and heaps. To add a command, add
//! its line; `HEAPLEDGER_BLESS=1 cargo test -p heapledger-cli snapshots` writes the output.

mod contexts;
mod heaps;
mod over_time;
mod phc;
mod recording;
mod selection;
mod tables;
mod types;

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use self::recording::recording;
use crate::args;
use crate::output::Output;
use crate::verbs::answer;

/// A temporary file that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(is_declared: bool) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("heapledger-snapshot-{}-{number}.hl", std::process::id()));
        fs::write(&path, recording(is_declared)).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Output that can be read after it was printed.
#[derive(Clone, Default)]
pub(crate) struct Captured(pub(crate) Rc<RefCell<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the output of `heapledger LINE`, with the recording's name in place of FILE.
fn printed(line: &str) -> String {
    printed_of(line, false)
}

/// Returns the output for a program that declares contexts and heaps.
fn declared(line: &str) -> String {
    printed_of(line, true)
}

/// Checks that the commands of a golden file print what stands there.
fn golden(name: &str) {
    golden_of(name, |line| printed_of(line, line.contains("DECLARED")));
}

/// Checks a golden file, whose commands `print` answers.
fn golden_of(name: &str, print: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/snapshots/golden").join(format!("{name}.txt"));
    let golden = fs::read_to_string(&path).unwrap();
    let commands = golden.lines().filter_map(|line| line.strip_prefix("$ heapledger "));
    let outputs: Vec<_> = commands.map(|line| format!("$ heapledger {line}{}", print(line))).collect();
    assert!(!outputs.is_empty(), "{} has no command", path.display());
    let printed = outputs.join("\n");
    if std::env::var_os("HEAPLEDGER_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, printed).unwrap();
    } else {
        assert!(golden == printed, "{}: HEAPLEDGER_BLESS=1 writes it anew; printed was\n{printed}", path.display());
    }
}

fn printed_of(line: &str, is_declared: bool) -> String {
    let file = Scratch::new(is_declared);
    let name = if line.contains("DECLARED") { "DECLARED" } else { "FILE" };
    answered(line, &[(name, file.0.clone())])
}

/// Returns the output of `heapledger LINE`, in which these names stand for files.
fn answered(line: &str, files: &[(&str, PathBuf)]) -> String {
    let words = line.split_whitespace().map(|word| {
        let named = files.iter().find(|(name, _)| word.starts_with(name));
        named.map_or_else(|| word.to_owned(), |(name, path)| word.replace(name, &path.to_string_lossy()))
    });
    let arguments = args::parse(["heapledger".to_owned()].into_iter().chain(words).map(Into::into)).unwrap();
    let captured = Captured::default();
    let mut out = Output::into(captured.clone());
    answer(&arguments.verb, &mut out).unwrap();
    let text = String::from_utf8(captured.0.borrow().clone()).unwrap();
    let hide = |text: String, (name, path): &(&str, PathBuf)| text.replace(&*path.to_string_lossy(), name);
    format!("\n{}", files.iter().fold(text, hide))
}
