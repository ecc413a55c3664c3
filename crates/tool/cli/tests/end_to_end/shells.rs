//! Completion scripts in common shells, and the grammar that they complete.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::{HEAPLEDGER, Job, Scratch, exited, heapledger, installed, wait_until};

/// The text typed before a tab, and the completed line.
const COMPLETED: &[(&str, &str)] = &[
    ("heapledger top a.h", "top a.hl"),
    ("heapledger a.h", "a.hl"),
    ("heapledger anon", "anonymize"),
    ("heapledger a.hl --thr", "a.hl --thread"),
    ("heapledger top --by fu", "top --by function"),
    ("heapledger top --by=fu", "top --by=function"),
    ("heapledger tree --by type,con", "tree --by type,context"),
    ("heapledger flame -o two", "flame -o two words"),
    ("heapledger flame --output=two", "flame --output=two words"),
    ("heapledger top --debug-dir deb", "top --debug-dir debug"),
    ("heapledger help sum", "help summary"),
    ("heapledger reports sh", "reports show"),
    ("heapledger record -- a-prog", "record -- a-program"),
    ("heapledger record -q a-prog", "record -q a-program"),
    ("heapledger record -o x.hl -- a-program a.h", "record -o x.hl -- a-program a.hl"),
];

/// Types lines into a shell on a terminal, each with a tab at its end; the command that runs must
/// be the right one.
fn completes(name: &str, line: &str, rc: &str) {
    let (Some(shell), Some(script)) = (installed(name), installed("script")) else { return };
    let scratch = Scratch::new();
    for directory in ["bin", "debug", "home"] {
        fs::create_dir(scratch.file(directory)).unwrap();
    }
    scratch.write("a.hl", "");
    scratch.write("two words", "");
    scratch.script("bin/a-program", "#!/bin/sh\n");
    // Replaces the command: logs its arguments, except for the calls of the completion.
    let called = scratch.file("called");
    let called_quoted = called.display();
    let stub = format!(
        "#!/bin/sh\n[ \"$1\" = complete-words ] && exec '{HEAPLEDGER}' \"$@\"\necho \"$*\" >> '{called_quoted}'\n"
    );
    scratch.script("bin/heapledger", stub);
    let completion = heapledger(["completions", name]);
    assert!(completion.status.success(), "{completion:?}");
    scratch.write("completion", &completion.stdout);
    scratch.write("home/.zshrc", rc);
    scratch.write("home/rc", rc);

    let line = line.replace("SHELL", shell.to_str().unwrap());
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(script)
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .current_dir(scratch.path())
        .env("PATH", format!("{}:{path}", scratch.file("bin").display()))
        .env("HOME", scratch.file("home"))
        .env("ZDOTDIR", scratch.file("home"))
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_DATA_HOME")
        .stdin(Stdio::piped())
        .stdout(fs::File::create(scratch.file("screen")).unwrap())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    for (number, (typed, expected)) in COMPLETED.iter().enumerate() {
        keys.write_all(format!("{typed}\t\r").as_bytes()).unwrap();
        let calls = || fs::read_to_string(&called).unwrap_or_default();
        wait_until(&format!("{name} runs `{typed}`"), || calls().lines().count() > number);
        let calls = calls();
        // zsh removes the slash of a directory if the line ends there.
        let call = calls.lines().nth(number).map(|call| call.trim_end_matches([' ', '/']));
        assert_eq!(call, Some(*expected), "{name}: {typed}");
    }
    keys.write_all(b"exit\r").unwrap();
    drop(keys);
    child.wait().unwrap();
}

#[test]
fn bash_completes() {
    completes("bash", "SHELL --noprofile --rcfile home/rc -i", "source ./completion\n");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn zsh_completes() {
    completes("zsh", "SHELL -d -i", "autoload -Uz compinit\ncompinit -u -D\nsource ./completion\n");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn fish_completes() {
    completes("fish", "SHELL --no-config -i -C 'source ./completion'", "");
}

/// One grammar: the verb comes first, a file alone is summarised, and `help` is not a file.
#[test]
fn the_verb_comes_first() {
    let scratch = Scratch::new();
    let (_, first) = Job::fixture("dies", "10 exit").recorded(&scratch);
    let (_, second) = Job::fixture("dies", "20 exit").recorded(&scratch);
    // The newest file, which must not be used.
    fs::copy(&second.path, scratch.file("heapledger.newest.hl")).unwrap();
    let run = |words: &[&OsStr]| {
        let words = [OsStr::new(HEAPLEDGER)].into_iter().chain(words.iter().copied());
        Job::new(words).directory(scratch.path()).bare()
    };
    let file = first.path.as_os_str();
    let refused = run(&[file, OsStr::new("top"), OsStr::new("--json")]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status, exited(2), "{refused:?}");
    assert!(refused.stdout.is_empty() && said.contains("heapledger top") && said.contains("--json"), "{refused:?}");
    let alone = run(&[file, OsStr::new("--json")]);
    assert_eq!(alone.stdout, run(&[OsStr::new("summary"), file, OsStr::new("--json")]).stdout);
    assert!(alone.status.success() && !alone.stdout.is_empty(), "{alone:?}");

    let help = run(&[OsStr::new("help"), OsStr::new("top")]);
    assert!(help.status.success() && help.text().contains("Usage: heapledger top"), "{help:?}");
    assert_eq!(help.text(), run(&[OsStr::new("top"), OsStr::new("--help")]).text());
    assert_eq!(run(&[OsStr::new("help")]).text(), run(&[OsStr::new("--help")]).text());
    let help = run(&[OsStr::new("help"), OsStr::new("tpo")]);
    assert_eq!(help.status, exited(2), "{help:?}");

    let program = scratch.file("a-program");
    fs::hard_link(crate::harness::program("dies"), &program).unwrap();
    for (words, hint) in [
        (["tpo", "-n3"], "did you mean `heapledger top`?"),
        (["sort", "-u"], "heapledger record -- sort -u"),
        (["./a-program", "-x"], "heapledger record -- ./a-program -x"),
    ] {
        let outcome = run(&words.map(OsStr::new));
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(outcome.status == exited(2) && said.contains(hint), "{words:?}: {outcome:?}");
    }
}
