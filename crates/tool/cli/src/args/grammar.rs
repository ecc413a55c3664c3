//! The grammar of the command line: `VERB [FILE]`, or `FILE` alone, which is short for
//! `summary FILE`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::{Arg, Command, FromArgMatches, ValueHint};

use super::Arguments;
use crate::error::Failure;
use crate::exit::Exit;
use crate::near::nearest;
use crate::target::program_file;
use crate::text::quoted;

/// The reason why a command line is not carried out.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It asks for help, or it breaks a rule of its verb.
    Clap(clap::Error),
    /// Its first word is neither a verb nor a file.
    Failure(Failure),
}

/// Parses a command line; its first word is the name of this command.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, Refusal> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let mut command = super::command();
    command.build();
    if let Some(first) = first_word(&command, &words) {
        let is_file = words[..first].iter().any(|word| word == "--");
        if is_file || verb(&command, &words[first]).is_none() {
            if !is_file {
                check_file(&command, &words, first).map_err(Refusal::Failure)?;
            }
            words.insert(1, SUMMARY.into());
        }
    }
    if let Some(failure) = negative(&command, &words) {
        return Err(Refusal::Failure(failure));
    }
    let matches = super::command().try_get_matches_from(words);
    matches.and_then(|matches| Arguments::from_arg_matches(&matches)).map_err(Refusal::Clap)
}

/// Refuses a negative number after an option: it would be taken for an option itself.
fn negative(command: &Command, words: &[OsString]) -> Option<Failure> {
    let mut command = command;
    let mut words = words.iter().skip(1).map(|word| word.to_string_lossy()).peekable();
    while let Some(word) = words.next() {
        if word == "--" || has_command(command) && !word.starts_with('-') {
            return None;
        }
        if let Some(verb) = verb(command, OsStr::new(&*word)) {
            command = verb;
        }
        let Some(option) = awaited(command, &word).filter(|option| !option.is_allow_hyphen_values_set()) else {
            continue;
        };
        let value = words.next()?;
        if value.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit())) {
            let what = option.get_help().map(|help| format!(": {help}")).unwrap_or_default();
            let failure = Failure::new(Exit::Usage, format_args!("the value of `{word}` cannot be negative: {value}"));
            return Some(failure.hint(format_args!("`{word}`{what}")));
        }
    }
    None
}

/// True if a verb takes a command line of its own.
fn has_command(command: &Command) -> bool {
    command.get_positionals().any(|argument| argument.get_value_hint() == ValueHint::CommandWithArguments)
}

/// The verb that a file alone is short for.
pub(crate) const SUMMARY: &str = "summary";

/// Returns the verb of this name.
pub(crate) fn verb<'c>(command: &'c Command, word: &OsStr) -> Option<&'c Command> {
    command.find_subcommand(word)
}

/// Returns the option whose value is the word that follows.
pub(crate) fn awaited<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let takes_value = |arg: &&Arg| arg.get_action().takes_values() && !arg.is_positional();
    if let Some(long) = word.strip_prefix("--") {
        let is_called = |arg: &&Arg| {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
        };
        return command.get_arguments().filter(takes_value).find(is_called);
    }
    for (at, letter) in word.strip_prefix('-')?.char_indices() {
        let arg = command.get_arguments().find(|arg| arg.get_short() == Some(letter))?;
        if takes_value(&arg) {
            return (at + 1 + letter.len_utf8() == word.len()).then_some(arg);
        }
    }
    None
}

/// Returns the index of the first word that is neither an option nor the value of one.
fn first_word(command: &Command, words: &[OsString]) -> Option<usize> {
    let summary = command.find_subcommand(SUMMARY)?;
    let mut is_value = false;
    for (at, word) in words.iter().enumerate().skip(1) {
        let text = word.to_string_lossy();
        match &*text {
            _ if is_value => is_value = false,
            "--" => return (at + 1 < words.len()).then_some(at + 1),
            // Help for the whole command, whatever follows.
            "-h" | "--help" | "-V" | "--version" => return None,
            text if text.starts_with('-') && text.len() > 1 => is_value = awaited(summary, text).is_some(),
            _ => return Some(at),
        }
    }
    None
}

/// Refuses a first word that is neither a verb nor a file that may be a recording.
fn check_file(command: &Command, words: &[OsString], first: usize) -> Result<(), Failure> {
    let word = &words[first];
    let path = Path::new(word);
    let text = word.to_string_lossy();
    if let Some(verb) = words.get(first + 1).filter(|next| verb(command, next).is_some() && !Path::new(next).exists()) {
        let verb = verb.to_string_lossy();
        let what = format_args!("`{verb}` stands behind the file `{text}`: the verb comes first");
        let mut line = words[1..].to_vec();
        line.swap(first - 1, first);
        return Err(Failure::new(Exit::Usage, what).hint(format_args!("heapledger {}", shell_line(&line))));
    }
    let line = shell_line(&words[first..]);
    if fs::symlink_metadata(path).is_ok() {
        if is_program(path) {
            let what = format_args!("`{text}` is a program, not a recording");
            return Err(Failure::new(Exit::Usage, what).hint(format_args!("to record it: heapledger record -- {line}")));
        }
        return Ok(());
    }
    if text.contains('/') {
        return Ok(());
    }
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name);
    let near: Vec<String> = nearest(&text, verbs).into_iter().map(|verb| format!("`heapledger {verb}`")).collect();
    let mut hints = Vec::new();
    if !near.is_empty() {
        hints.push(format!("did you mean {}?", near.join(" or ")));
    }
    if program_file(word).is_some() {
        hints.push(format!("to record the program: heapledger record -- {line}"));
    }
    if hints.is_empty() {
        return Ok(());
    }
    hints.push("`heapledger help` lists the verbs".to_owned());
    let what = format_args!("`{text}` is neither a verb nor a file that is here");
    Err(Failure::new(Exit::Usage, what).hint(hints.join("\n")))
}

/// Returns the words as they can be typed in a shell.
fn shell_line(words: &[OsString]) -> String {
    words.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// True if the kernel would run the file.
fn is_program(path: &Path) -> bool {
    let is_executable = |data: fs::Metadata| data.is_file() && data.permissions().mode() & 0o111 != 0;
    let mut start = [0; 4];
    fs::metadata(path).is_ok_and(is_executable)
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && (start == *b"\x7fELF" || start.starts_with(b"#!"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Verb;

    fn parsed(line: &str) -> Result<Arguments, Refusal> {
        parse(["heapledger"].into_iter().chain(line.split_whitespace()).map(Into::into))
    }

    #[track_caller]
    fn refused(line: &str) -> String {
        match parsed(line) {
            Err(Refusal::Failure(failure)) => failure.to_string(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_file_alone_is_summarised() {
        for line in ["x.hl --json", "--json x.hl", "--color never x.hl --json", "--process 7 x.hl --json"] {
            let Verb::Summary(summary) = parsed(line).unwrap().verb else { panic!("{line}: not summary") };
            assert!(summary.input.data.json || line.starts_with("--process"), "{line}");
            assert_eq!(summary.input.file.as_deref(), Some(Path::new("x.hl")), "{line}");
        }
        let Verb::Summary(summary) = parsed("-- top").unwrap().verb else { panic!("not summary") };
        assert_eq!(summary.input.file.as_deref(), Some(Path::new("top")));
        assert!(matches!(parsed(""), Err(Refusal::Clap(_))));
        assert!(matches!(parsed("x.hl y.hl"), Err(Refusal::Clap(_))));
        assert!(matches!(parsed("--help x.hl"), Err(Refusal::Clap(_))));
    }

    #[test]
    fn the_verb_comes_first() {
        let Verb::Top(top) = parsed("--color never top a.hl").unwrap().verb else { panic!("not top") };
        assert_eq!(top.input.file.as_deref(), Some(Path::new("a.hl")));
        let said = refused("a.hl top -n 3");
        assert!(said.ends_with("hint: heapledger top a.hl -n 3"), "{said}");
    }

    #[test]
    fn an_unknown_first_word_is_told_from_a_file() {
        let said = refused("tpo");
        assert!(said.contains("`tpo` is neither a verb nor a file") && said.contains("`heapledger top`?"), "{said}");
        let said = refused("sh -c true");
        assert!(said.contains("heapledger record -- sh -c true"), "{said}");
        let said = refused("/bin/sh -c true");
        assert!(said.contains("`/bin/sh` is a program") && said.contains("record -- /bin/sh -c true"), "{said}");
    }

    #[test]
    fn negative_numbers_have_their_own_message() {
        for line in
            ["top --at -1s", "top -n -3 a.hl", "a.hl --size -5", "tree --threshold -1", "record --duration -1s ls"]
        {
            let said = refused(line);
            assert!(said.contains("cannot be negative: -"), "{line}: {said}");
        }
        for line in ["top --at=-1s", "top -n=-3", "top --during=-1s", "temporary --within=-5"] {
            let Err(Refusal::Clap(error)) = parsed(line) else { panic!("{line}") };
            assert!(error.to_string().contains("cannot be negative"), "{line}: {error}");
        }
        assert!(parsed("record -- sleep -1").is_ok() && parsed("record nice -n -5 ls").is_ok());
    }

    #[test]
    fn options_that_await_a_value() {
        let mut command = crate::args::command();
        command.build();
        let top = verb(&command, OsStr::new("top")).unwrap();
        let name = |word| awaited(top, word).map(|arg| arg.get_id().as_str());
        assert_eq!((name("--by"), name("-n"), name("--rows")), (Some("by"), Some("rows"), Some("rows")));
        for word in ["--json", "--by=site", "-n3", "--nothing", "-", "--", "by"] {
            assert_eq!(name(word), None, "{word}");
        }
    }

    /// Examples and tables keep their form: the parser breaks lines that are longer.
    #[test]
    fn manuals_fit_80_columns() {
        for verb in crate::args::command().get_subcommands() {
            let about = verb.get_long_about().map(ToString::to_string).unwrap_or_default();
            for line in about.lines() {
                // `man` indents all by 7, and these lines by 3 less.
                let columns = if line.starts_with(' ') { 76 } else { 80 };
                assert!(line.chars().count() <= columns, "{}: {line}", verb.get_name());
            }
        }
    }
}
