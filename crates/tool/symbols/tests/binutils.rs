//! Comparison of answers with `addr2line` of binutils and of LLVM.

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use heapledger_symbols::{NameSource, SymbolFrame, SymbolizerOptions};
use object::{Object, ObjectSection};
use support::{Scratch, Subject};

/// One frame in the output of `addr2line -f -i`: function and location.
type Line = (String, String);

fn ask(tool: &str, file: &Path, offsets: &[u64]) -> Option<Vec<Vec<Line>>> {
    let mut command = Command::new(tool);
    command.args(["-a", "-f", "-i", "-C"]).arg("-e").arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().ok()?;
    let mut input = String::new();
    offsets.iter().for_each(|offset| writeln!(input, "{offset:#x}").unwrap());
    let mut stdin = child.stdin.take()?;
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut answers: Vec<Vec<Line>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
        } else {
            let place = lines.next()?.split(" (discriminator").next()?.to_owned();
            answers.last_mut()?.push((line.to_owned(), place));
        }
    }
    (answers.len() == offsets.len()).then_some(answers)
}

fn place(frame: &SymbolFrame) -> String {
    let line = frame.line.map_or("?".to_owned(), |line| line.to_string());
    format!("{}:{line}", frame.file.as_deref().unwrap_or("??"))
}

fn same_place(ours: &str, theirs: &str, tool: &str) -> bool {
    let normal = |place: &str| {
        let (file, line) = place.rsplit_once(':').unwrap();
        // The tools join a relative compilation directory with the directories of files in
        // different ways; and binutils 2.40 then often names another file of the unit.
        let file = match tool {
            _ if file.starts_with('/') => file,
            "addr2line" => "",
            _ => file.rsplit('/').next().unwrap(),
        };
        (file.to_owned(), if line == "0" { "?" } else { line }.to_owned())
    };
    normal(ours) == normal(theirs)
}

/// True if the names agree. Our spelling has more of scopes and types: the rest must be in theirs.
fn same_name(ours: &SymbolFrame, theirs: &str) -> bool {
    let last = ours.function.short().rsplit("::").next().unwrap().trim_matches(['{', '}', '_']);
    theirs.contains(last)
}

/// Compares a sample of the code in a file: all locations and names must be equal, except for
/// `allowed` of 1000.
#[track_caller]
fn compare(tool: &str, subject: &Subject, count: u64, allowed: usize) {
    let there = if tool == "addr2line" { support::installed(tool) } else { support::is_installed(tool) };
    if !there {
        return support::not_here(&format!("{tool} is not installed"));
    }
    let data = std::fs::read(&subject.path).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let text = elf.section_by_name(".text").unwrap();
    // Spread evenly, with an odd step so that all alignments occur.
    let step = (text.size() / count) | 1;
    let offsets: Vec<u64> = (0..text.size() / step).map(|index| text.address() + index * step).collect();
    let theirs = ask(tool, &subject.path, &offsets).unwrap();
    let (mut known, mut inlined, mut different) = (0, 0, Vec::new());
    for (&offset, theirs) in offsets.iter().zip(&theirs) {
        let ours = subject.frames(offset);
        // Without a line, binutils takes the file from a symbol; between functions, it names the
        // one before.
        let no_line = theirs.iter().all(|(_, place)| place.ends_with(":?") || place.ends_with(":0"));
        if no_line || ours[0].source == NameSource::None {
            continue;
        }
        known += 1;
        inlined += usize::from(ours.len() > 1);
        let pairs = || ours.iter().zip(theirs);
        // binutils gives the symbol's name to the innermost function, even if it is inlined; LLVM
        // to the last one, and it may be any of its aliases.
        let unnamed = if tool != "addr2line" { ours.len() - 1 } else { 0 };
        let unnamed = (ours.len() > 1 || tool != "addr2line").then_some(unnamed);
        let same = ours.len() == theirs.len()
            && pairs().all(|(ours, (_, theirs))| same_place(&place(ours), theirs, tool))
            && pairs().enumerate().all(|(at, (ours, (theirs, _)))| unnamed == Some(at) || same_name(ours, theirs));
        if !same {
            different.push((offset, ours, theirs));
        }
    }
    println!("{tool} {}: {known} addresses, {inlined} inlined, {} different", subject.path.display(), different.len());
    assert!(known * 10 > offsets.len() * 8 && inlined * 10 > known, "the sample says too little");
    assert!(different.len() * 1000 <= known * allowed, "{different:#?}");
}

#[test]
fn rust_program() {
    let scratch = Scratch::new();
    let subject = Subject::new(support::rust_program(&scratch));
    compare("addr2line", &subject, 400, 0);
    compare("llvm-addr2line", &subject, 4000, 0);
}

#[test]
fn c_library() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let subject = Subject::with(path, SymbolizerOptions::default());
    if subject.state().debug_file.is_none() {
        return support::not_here(&format!("no debug information of {path}"));
    }
    compare("addr2line", &subject, 4000, 0);
    compare("llvm-addr2line", &subject, 4000, 0);
}
