//! Messages on stderr: notes and warnings, broken between words on a terminal.

use std::fmt;
use std::io::{self, Write};

use crate::code::Code;
use crate::error::HINT;
use crate::format::wrapped;
use crate::listener;

/// The narrowest terminal to whose width output is fitted, in characters.
pub(crate) const WIDTH_MIN: usize = 40;

/// Writes a text to stderr; on a terminal, breaks it between words. Ignores write errors. A verb
/// that answers a page has a listener, who gets it instead.
pub(crate) fn notify(text: impl fmt::Display) {
    if listener::note(&text) {
        return;
    }
    let stderr = io::stderr();
    let width = rustix::termios::tcgetwinsize(&stderr).ok().map(|size| usize::from(size.ws_col));
    let text = match width.filter(|&width| width >= WIDTH_MIN) {
        Some(width) => message(&text.to_string(), width),
        None => text.to_string(),
    };
    let _ = writeln!(&stderr, "{text}");
}

/// Writes a warning to stderr.
pub(crate) fn warn(code: Code, text: impl fmt::Display) {
    notify(format_args!("warning[{code}]: {text}"));
}

/// Breaks the long lines of a message between words. A command in a hint stays whole, so that it
/// can be pasted.
fn message(text: &str, width: usize) -> String {
    let mut is_hint = false;
    let lines = text.split('\n').flat_map(|line| {
        is_hint |= line.starts_with(HINT);
        if line.chars().count() <= width {
            return vec![line.to_owned()];
        }
        let start = line.find(|character| character != ' ').unwrap_or_default();
        let start = if is_hint { start.max(HINT.len()) } else { start };
        let (head, rest) = line.split_at(start);
        let command = match rest.rfind(": ") {
            _ if !is_hint => rest.len(),
            _ if rest.starts_with("heapledger ") => 0,
            at => at.map_or(rest.len(), |at| at + 2),
        };
        let (words, command) = rest.split_at(command);
        let mut lines = wrapped(words, width - start);
        if !command.is_empty() {
            match lines.last_mut() {
                Some(last) if last.is_empty() => last.push_str(command),
                Some(last) if last.chars().count() + 1 + command.chars().count() <= width - start => {
                    last.push(' ');
                    last.push_str(command);
                }
                _ => lines.push(command.to_owned()),
            }
        }
        let heads = std::iter::once(head.to_owned()).chain(std::iter::repeat(" ".repeat(start)));
        heads.zip(lines).map(|(head, line)| head + &line).collect()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_broken_between_words_and_commands_stay_whole() {
        let text = "error[HL0001]: something that takes more than one line\n  caused by: another thing that does not fit\n\n\
                    hint: to see what it was all about: heapledger top --by function --metric blocks recording.hl\n      \
                    heapledger record --aggregate -o a.hl -- ./server --port 8080";
        assert_eq!(
            message(text, 40),
            "error[HL0001]: something that takes more\nthan one line\n  caused by: another thing that does not\n  fit\n\n\
             hint: to see what it was all about:\n      \
             heapledger top --by function --metric blocks recording.hl\n      \
             heapledger record --aggregate -o a.hl -- ./server --port 8080"
        );
        assert_eq!(message("hint: in order to do this: cd a", 40), "hint: in order to do this: cd a");
    }
}
