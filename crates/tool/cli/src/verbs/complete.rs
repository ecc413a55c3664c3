//! The possible next words of a command line. The completion scripts of bash, zsh and fish ask for
//! them by the hidden verb `complete-words`, so that one implementation, with the tree of the help,
//! knows the grammar.
//!
//! The first line of the answer says what else there is to complete: `values` (nothing), `files
//! PREFIX`, `directories PREFIX` (after this beginning of the word), or `command N`: the words from
//! the N-th on are a command line of their own. Each further line is a value, a tab, and a
//! description.

use std::fmt;

use clap::{Arg, Command, ValueHint};

use crate::args::{self, CompleteWords, SUMMARY, awaited, verb};
use crate::error::Result;
use crate::output::Output;

pub(crate) fn run(arguments: &CompleteWords, out: &mut Output) -> Result<()> {
    let words: Vec<String> = arguments.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut command = args::command();
    command.build();
    let answer = Answer::of(&command, &words);
    out.line(&answer.rest)?;
    for (value, what) in &answer.values {
        out.line(format_args!("{value}\t{what}"))?;
    }
    Ok(())
}

/// Completions of the last word.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    rest: Rest,
    /// Values, and their descriptions.
    values: Vec<(String, String)>,
}

/// Names that the shell completes beside the values.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    Files(String),
    Directories(String),
    Command(usize),
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rest::Nothing => f.write_str("values"),
            Rest::Files(prefix) => write!(f, "files {prefix}"),
            Rest::Directories(prefix) => write!(f, "directories {prefix}"),
            Rest::Command(first) => write!(f, "command {first}"),
        }
    }
}

/// A command line as far as it has been typed.
struct Line<'c> {
    command: &'c Command,
    /// The number of positional arguments that have been typed.
    positionals: usize,
    /// True after `--`.
    only_positionals: bool,
    /// The option whose value comes next.
    value_of: Option<&'c Arg>,
    /// True if the words are verbs to explain.
    is_help: bool,
}

impl Answer {
    /// Returns the answer for the words after the command's name, of which the last one is being
    /// typed.
    fn of(root: &Command, words: &[String]) -> Answer {
        let Some((current, before)) = words.split_last() else { return Answer::of(root, &[String::new()]) };
        let mut line = Line { command: root, positionals: 0, only_positionals: false, value_of: None, is_help: false };
        let mut before = before.iter().enumerate().peekable();
        while let Some((at, word)) = before.next() {
            if line.starts_command(word) {
                return Answer::other(Rest::Command(at));
            }
            line.read(root, word);
            // bash has the sign of `--option=value` as a word of its own.
            before.next_if(|(_, next)| line.value_of.is_some() && *next == "=");
        }
        if line.starts_command(current) {
            return Answer::other(Rest::Command(words.len() - 1));
        }
        line.answer(root, current)
    }

    fn other(rest: Rest) -> Answer {
        Answer { rest, values: Vec::new() }
    }

    /// Returns the values of an argument that begin with `current`, after a prefix of the word.
    fn value(argument: &Arg, prefix: &str, current: &str) -> Answer {
        let rest = match argument.get_value_hint() {
            ValueHint::FilePath | ValueHint::AnyPath => Rest::Files(prefix.to_owned()),
            ValueHint::DirPath => Rest::Directories(prefix.to_owned()),
            _ => Rest::Nothing,
        };
        // If there are several values, the last one is being typed.
        let several = argument.get_value_delimiter().and_then(|delimiter| current.rfind(delimiter));
        let (settled, current) = current.split_at(several.map_or(0, |at| at + 1));
        let values = argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
        let values = values.filter(|value| value.get_name().starts_with(current)).map(|value| {
            let what = value.get_help().map(ToString::to_string).unwrap_or_default();
            (format!("{prefix}{settled}{}", value.get_name()), what)
        });
        Answer { rest, values: values.collect() }
    }

    /// Returns the options of a command that begin with this text.
    fn options(command: &Command, current: &str) -> Answer {
        let mut values = Vec::new();
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let what = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let long = argument.get_long().map(|long| format!("--{long}"));
            let short = argument.get_short().map(|short| format!("-{short}"));
            values.extend(long.or(short).filter(|name| name.starts_with(current)).map(|name| (name, what)));
        }
        Answer { rest: Rest::Nothing, values }
    }

    /// Returns the verbs of a command that begin with this text.
    fn verbs(command: &Command, current: &str) -> Answer {
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs = verbs.filter(|verb| verb.get_name().starts_with(current));
        let what = |verb: &Command| verb.get_about().map(ToString::to_string).unwrap_or_default();
        Answer { rest: Rest::Nothing, values: verbs.map(|verb| (verb.get_name().to_owned(), what(verb))).collect() }
    }
}

impl<'c> Line<'c> {
    /// Takes one more word, which is not the last one.
    fn read(&mut self, root: &'c Command, word: &str) {
        if self.value_of.take().is_some() {
            return;
        }
        if !self.only_positionals && word == "--" {
            self.only_positionals = true;
        } else if self.is_option(word) {
            self.value_of = awaited(self.command, word);
        } else if let Some(verb) = self.verb(word) {
            (self.command, self.is_help) = match verb.get_name() {
                "help" => (root, true),
                _ => (verb, self.is_help),
            };
        } else {
            if self.is_root() {
                self.command = verb(root, SUMMARY.as_ref()).unwrap_or(root);
            }
            self.positionals += 1;
        }
    }

    fn answer(&self, root: &Command, current: &str) -> Answer {
        if let Some(option) = self.value_of {
            return Answer::value(option, "", current);
        }
        if self.is_help {
            return Answer::verbs(self.command, current);
        }
        if !self.only_positionals && current.starts_with('-') {
            return match current.split_once('=') {
                Some((name, value)) => match awaited(self.command, name) {
                    Some(option) => Answer::value(option, &format!("{name}="), value),
                    None => Answer::other(Rest::Nothing),
                },
                None => Answer::options(self.command, current),
            };
        }
        if let Some(argument) = self.positional() {
            return Answer::value(argument, "", current);
        }
        if self.positionals > 0 {
            return Answer::other(Rest::Nothing);
        }
        if !self.is_root() {
            return Answer::verbs(self.command, current);
        }
        // A file alone is short for `summary FILE`.
        let values = if self.only_positionals { Vec::new() } else { Answer::verbs(root, current).values };
        Answer { rest: Rest::Files(String::new()), values }
    }

    fn is_root(&self) -> bool {
        self.command.get_name() == env!("CARGO_BIN_NAME")
    }

    fn is_option(&self, word: &str) -> bool {
        !self.only_positionals && word.len() > 1 && word.starts_with('-')
    }

    /// Returns the verb that a word names at this position.
    fn verb(&self, word: &str) -> Option<&'c Command> {
        if self.only_positionals || self.positionals > 0 { None } else { verb(self.command, word.as_ref()) }
    }

    /// Returns the positional argument that comes next.
    fn positional(&self) -> Option<&'c Arg> {
        let mut all = self.command.get_positionals();
        let is_repeated = |argument: &&Arg| argument.get_num_args().is_some_and(|number| number.max_values() > 1);
        all.nth(self.positionals).or_else(|| self.command.get_positionals().last().filter(is_repeated))
    }

    /// True if a word at this position begins a command line of its own.
    fn starts_command(&self, word: &str) -> bool {
        let is_command = |argument: &Arg| argument.get_value_hint() == ValueHint::CommandWithArguments;
        self.value_of.is_none()
            && !self.is_option(word)
            && (self.only_positionals || word != "-")
            && self.positional().is_some_and(is_command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first line of the answer, and its values.
    fn asked(line: &str) -> (String, Vec<String>) {
        let mut command = args::command();
        command.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let answer = Answer::of(&command, &words);
        (answer.rest.to_string(), answer.values.into_iter().map(|(value, _)| value).collect())
    }

    #[track_caller]
    fn assert_answer(line: &str, rest: &str, values: &[&str]) {
        assert_eq!(asked(line), (rest.to_owned(), values.iter().map(|&value| value.to_owned()).collect()), "{line}");
    }

    #[test]
    fn verbs_come_first_and_files_after_them() {
        assert_answer("an", "files ", &["anonymize"]);
        assert_answer("top a", "files ", &[]);
        assert_answer("a.hl t", "values", &[]);
        assert_answer("top a.hl b", "values", &[]);
        assert_answer("diff a.hl b", "files ", &[]);
        assert_answer("reports s", "values", &["show", "save"]);
        assert_answer("help sum", "values", &["summary"]);
        assert_answer("help reports s", "values", &["show", "save"]);
        assert!(!asked("").1.iter().any(|verb| ["self-test", "complete-words"].contains(&verb.as_str())));
    }

    #[test]
    fn options_and_their_values() {
        assert_answer("top --ro", "values", &["--rows"]);
        assert_answer("top --by fu", "values", &["function"]);
        assert_answer("top --by=fu", "values", &["--by=function"]);
        assert_answer("top --by = fu", "values", &["function"]);
        assert_answer("tree --by type,co", "values", &["type,context"]);
        assert_answer("--color al", "values", &["always"]);
        assert_answer("flame --output=x", "files --output=", &[]);
        assert_answer("top --debug-dir ", "directories ", &[]);
        assert_answer("top -n 3 a", "files ", &[]);
        assert_answer("top -n ", "values", &[]);
        assert_answer("top --by=site a", "files ", &[]);
        assert_answer("a.hl --thr", "values", &["--thread"]);
    }

    #[test]
    fn a_command_has_its_own_completion() {
        assert_answer("record -- l", "command 2", &[]);
        assert_answer("record l", "command 1", &[]);
        assert_answer("record -o x.hl -- ls --al", "command 4", &[]);
        assert_answer("record -o x", "files ", &[]);
        assert_answer("record --out", "values", &["--output"]);
        assert_answer("run --hook h.so -- make ", "command 4", &[]);
        assert_answer("doctor ./s", "command 1", &[]);
        assert_answer("check -- ", "command 2", &[]);
    }
}
