//! The command line of a question that the page asks.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, ValueHint};
use heapledger_viewer::Question;

use crate::args::{self, values};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// The option of a question that names a file of the session by its number.
pub(super) const FILE: &str = "file";

/// Options about the output, which goes to the page as JSON.
const OUTPUT: [&str; 9] = ["json", "csv", "color", "page", "svg", "markdown", "collapsed", "force", "output"];

/// A file that a question is about, and the moment that was given with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked<'f> {
    pub(super) path: &'f Path,
    pub(super) when: Option<&'f str>,
}

/// Returns the number of a file, and the moment that is given with it: `0`, or `0@1.5s`.
pub(super) fn file_number(text: &str) -> Result<(usize, Option<&str>)> {
    let (number, when) = text.split_once('@').map_or((text, None), |(number, when)| (number, Some(when)));
    let number = number.parse().map_err(|_| refused(format_args!("`{text}` is no number of a file")))?;
    if let Some(Err(why)) = when.map(values::moment) {
        return Err(refused(why));
    }
    Ok((number, when))
}

/// Returns the command line that asks a question about files. Each option must be one of the verb's
/// and name no file; nothing in a value is taken for another option. `more` are options with files
/// that the user gave, for verbs that have them.
pub(super) fn words(question: &Question, files: &[Asked<'_>], more: &[(&str, OsString)]) -> Result<Vec<OsString>> {
    let mut root = args::command();
    root.build();
    let command = question.verb.split('/').try_fold(&root, |command, name| command.find_subcommand(name));
    let command = command.ok_or_else(|| refused(format_args!("there is no verb `{}`", question.verb)))?;
    let mut words: Vec<OsString> = vec!["heapledger".into()];
    words.extend(question.verb.split('/').map(OsString::from));
    for (name, value) in question.options.iter().filter(|(name, _)| name != FILE) {
        if positional(command, name).is_none() {
            words.push(option(command, name, value, &question.verb)?);
        }
    }
    for (name, value) in more.iter().filter(|(name, _)| long(command, name).is_some()) {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        words.push(word);
    }
    words.push("--json".into());
    words.extend(positionals(command, question, files)?);
    Ok(words)
}

/// Returns an option with its value, as one word.
fn option(command: &Command, name: &str, value: &str, verb: &str) -> Result<OsString> {
    let arg =
        long(command, name).filter(|arg| !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version"));
    let arg = arg.ok_or_else(|| refused(format_args!("`{verb}` has no option `{name}`")))?;
    let name = arg.get_long().unwrap_or_default();
    if names_files(arg) || OUTPUT.contains(&name) {
        return Err(refused(format_args!("the option `{name}` cannot be set by the page")));
    }
    match arg.get_action().takes_values() {
        true => Ok(format!("--{name}={value}").into()),
        false if value.is_empty() => Ok(format!("--{name}").into()),
        false => Err(refused(format_args!("the option `{name}` has no value"))),
    }
}

/// Returns the words that are no options, in their order: files, and others such as a function.
fn positionals(command: &Command, question: &Question, files: &[Asked<'_>]) -> Result<Vec<OsString>> {
    let mut all: Vec<&Arg> = command.get_positionals().filter(|arg| !arg.is_last_set()).collect();
    all.sort_by_key(|arg| arg.get_index());
    let mut files = files.iter();
    let mut words = Vec::new();
    for arg in all {
        if names_files(arg) {
            let count = arg.get_num_args().map_or(1, |range| range.max_values());
            words.extend(files.by_ref().take(count).map(file));
            continue;
        }
        for value in question.values(arg.get_id().as_str()) {
            if value.starts_with('-') {
                let what = format_args!("`{value}` begins with a dash, as an option does");
                return Err(refused(what).hint("a pattern between slashes can begin with one: /^-/"));
            }
            words.push(value.into());
        }
    }
    match files.next() {
        None => Ok(words),
        Some(_) => Err(refused(format_args!("`{}` is not about so many files", question.verb))),
    }
}

/// Returns a file as a word that is taken for a file, and not for an option, a process or an
/// address.
fn file(asked: &Asked<'_>) -> OsString {
    let text = asked.path.to_string_lossy();
    let is_plain = !text.starts_with('-') && !text.contains(':') && text.parse::<u64>().is_err();
    let mut word = match is_plain || text.starts_with('/') || text.starts_with("./") {
        true => asked.path.as_os_str().to_owned(),
        false => Path::new(".").join(asked.path).into_os_string(),
    };
    if let Some(when) = asked.when {
        word.push("@");
        word.push(when);
    }
    word
}

/// Returns the argument without a name in front of it that has this id.
fn positional<'c>(command: &'c Command, id: &str) -> Option<&'c Arg> {
    command.get_positionals().find(|arg| arg.get_id() == id && !names_files(arg) && !arg.is_last_set())
}

/// Returns the option with a long name.
fn long<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    })
}

/// True if the value of an argument is a file, a directory or a command.
fn names_files(arg: &Arg) -> bool {
    let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    is_path || !matches!(arg.get_value_hint(), ValueHint::Unknown | ValueHint::Other)
}

/// Returns the failure of a request that cannot be made.
pub(super) fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, why).code(Code::PageRequest)
}

#[cfg(test)]
mod tests;
