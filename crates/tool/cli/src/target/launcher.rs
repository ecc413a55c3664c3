//! Finds the programs that a shell script starts by `exec`, as far as its text says. The script is
//! not run.
//!
//! The parser understands assignments of words, `$NAME`, `${NAME:-WORD}`, the usual ways to name
//! the script's own directory, and the shims of pyenv and similar tools. A word with anything else
//! in it is unknown. Branches are ignored: every `exec` counts.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most bytes of a script that are read.
const LENGTH_MAX: u64 = 64 << 10;
/// The most programs that are named.
const STARTS_MAX: usize = 8;
/// The most levels of nested expansions.
const DEPTH_MAX: usize = 4;
/// The most bytes of an expanded word.
const WORD_MAX: usize = 4096;

/// True if an interpreter is a shell whose scripts are understood.
pub(super) fn is_shell(interpreter: &Path) -> bool {
    const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];
    interpreter.file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell))
}

/// Returns the words after `exec` in a script, each with the program that it names, if known: a
/// path, or a name to look up.
pub(super) fn started_by(script: &Path) -> Vec<(String, Option<PathBuf>)> {
    let mut bytes = Vec::new();
    let read = File::open(script).and_then(|file| file.take(LENGTH_MAX).read_to_end(&mut bytes));
    if read.is_err() {
        return vec![];
    }
    let mut reader = Script { path: script, variables: HashMap::new(), starts: vec![] };
    reader.read(&String::from_utf8_lossy(&bytes));
    reader.starts
}

struct Script<'a> {
    path: &'a Path,
    /// The values of variables; `None` if a value is unknown.
    variables: HashMap<String, Option<String>>,
    starts: Vec<(String, Option<PathBuf>)>,
}

impl Script<'_> {
    fn read(&mut self, text: &str) {
        let joined = text.replace("\\\n", " ");
        let mut lines = joined.lines();
        while let Some(line) = lines.next() {
            let words = words(line);
            self.commands(&words);
            // The text of a here-document is not part of the script.
            let Some(end) = here_document(&words) else { continue };
            lines.by_ref().find(|line| line.trim() == end);
        }
    }

    fn commands(&mut self, words: &[String]) {
        const BEFORE_COMMANDS: [&str; 14] =
            [";", "&", "|", "(", ")", "{", "then", "else", "elif", "do", "!", "if", "while", "export"];
        let mut is_start = true;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if std::mem::replace(&mut is_start, BEFORE_COMMANDS.contains(&word.as_str())) {
                if let Some((name, value)) = assignment(word) {
                    let value = self.expand(value, 0);
                    let known = self.variables.entry(name.to_owned()).or_insert_with(|| value.clone());
                    // The value depends on conditions at run time.
                    if *known != value {
                        *known = None;
                    }
                    is_start = true;
                } else if word == "exec" {
                    self.exec(words.as_slice());
                }
            }
        }
    }

    /// Adds the program that `exec` starts with these words after it.
    fn exec(&mut self, words: &[String]) {
        let mut words = words;
        while let Some((option, rest)) = words.split_first().filter(|(word, _)| word.starts_with('-')) {
            words = if option == "-a" { rest.get(1..).unwrap_or(&[]) } else { rest };
        }
        let Some(word) = words.first() else { return };
        // A redirection without a command.
        let is_redirection = word.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['<', '>']);
        if is_redirection || [";", "&", "|", ")"].contains(&word.as_str()) || self.starts.len() >= STARTS_MAX {
            return;
        }
        let value = self.expand(word, 0).filter(|value| !value.is_empty());
        let program = value.map(PathBuf::from).map(|program| self.behind_shim(&program, words).unwrap_or(program));
        let start = (word.clone(), program);
        if !self.starts.contains(&start) {
            self.starts.push(start);
        }
    }

    /// Returns the program that pyenv, rbenv or a similar tool would start for
    /// `exec ROOT/libexec/pyenv exec PROGRAM`.
    fn behind_shim(&self, manager: &Path, words: &[String]) -> Option<PathBuf> {
        let name = manager.file_name()?.to_str()?.strip_suffix("env")?;
        if words.get(1)? != "exec" || !manager.parent()?.ends_with("libexec") {
            return None;
        }
        let program = self.expand(words.get(2)?, 0)?;
        let root = manager.parent()?.parent()?;
        let language = match name {
            "py" => "python",
            "rb" => "ruby",
            "nod" => "node",
            other => other,
        };
        let first_line = |path: PathBuf| Some(std::fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned());
        let in_directories = || {
            let here = std::env::current_dir().ok()?;
            here.ancestors().find_map(|directory| first_line(directory.join(format!(".{language}-version"))))
        };
        let version = std::env::var(format!("{}ENV_VERSION", name.to_uppercase())).ok();
        let version = version.or_else(in_directories).or_else(|| first_line(root.join("version")))?;
        let version = version.split(':').next()?;
        let file = root.join("versions").join(version).join("bin").join(&program);
        file.is_file().then_some(file)
    }

    /// Expands a word; `None` if its value is unknown.
    fn expand(&self, word: &str, depth: usize) -> Option<String> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut text = String::new();
        let mut rest = word;
        let mut is_quoted = false;
        while let Some(next) = rest.chars().next() {
            rest = &rest[next.len_utf8()..];
            match next {
                '"' => is_quoted = !is_quoted,
                '\'' if !is_quoted => {
                    let (literal, behind) = rest.split_once('\'')?;
                    text.push_str(literal);
                    rest = behind;
                }
                '\\' => {
                    let escaped = rest.chars().next()?;
                    text.push(escaped);
                    rest = &rest[escaped.len_utf8()..];
                }
                '`' => {
                    let (command, behind) = rest.split_once('`')?;
                    text.push_str(&self.output(command, depth)?);
                    rest = behind;
                }
                '$' if rest.starts_with('(') => {
                    let end = closing(rest, '(', ')')?;
                    text.push_str(&self.output(&rest[1..end], depth)?);
                    rest = &rest[end + 1..];
                }
                '$' if rest.starts_with('{') => {
                    let end = closing(rest, '{', '}')?;
                    text.push_str(&self.parameter(&rest[1..end], depth)?);
                    rest = &rest[end + 1..];
                }
                '$' if rest.starts_with('0') => {
                    text.push_str(self.path.to_str()?);
                    rest = &rest[1..];
                }
                '$' => {
                    let length = name_length(rest);
                    text.push_str(&self.variable(&rest[..length])?);
                    rest = &rest[length..];
                }
                '*' | '?' | '[' if !is_quoted => return None,
                other => text.push(other),
            }
            if text.len() > WORD_MAX {
                return None;
            }
        }
        Some(text)
    }

    /// Returns the value of a variable of the script, or else of the environment. Arguments are
    /// unknown.
    fn variable(&self, name: &str) -> Option<String> {
        if name.is_empty() {
            return None;
        }
        match self.variables.get(name) {
            Some(value) => value.clone(),
            None => std::env::var(name).ok(),
        }
    }

    /// Expands the inside of `${…}`.
    fn parameter(&self, inside: &str, depth: usize) -> Option<String> {
        let length = if inside.starts_with('0') { 1 } else { name_length(inside) };
        let (name, operation) = inside.split_at(length);
        let value = || if name == "0" { self.path.to_str().map(str::to_owned) } else { self.variable(name) };
        match operation {
            "" => value(),
            "%/*" => value().and_then(|value| Some(value.rsplit_once('/')?.0.to_owned())),
            "##*/" => value().map(|value| value.rsplit('/').next().unwrap_or_default().to_owned()),
            _ => {
                let default = operation.strip_prefix(":-").or_else(|| operation.strip_prefix('-'))?;
                // A variable with an unknown value is not an unset variable.
                match self.variables.get(name) {
                    Some(None) => None,
                    _ => value().filter(|value| !value.is_empty()).or_else(|| self.expand(default, depth + 1)),
                }
            }
        }
    }

    /// Returns the output of a command substitution, for a few commands that name directories.
    fn output(&self, command: &str, depth: usize) -> Option<String> {
        let words = words(command);
        let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "--").collect();
        let value = |word: &str| self.expand(word, depth + 1);
        match words.as_slice() {
            ["dirname", word] => {
                let value = value(word)?;
                let parent = Path::new(&value).parent()?.to_str()?;
                Some(if parent.is_empty() { ".".to_owned() } else { parent.to_owned() })
            }
            ["basename", word] => Some(value(word)?.rsplit('/').next()?.to_owned()),
            ["readlink", "-f" | "-e", word] | ["realpath", word] => {
                std::fs::canonicalize(value(word)?).ok()?.to_str().map(str::to_owned)
            }
            ["cd", word, "&", "&", "pwd"] | ["cd", word, "&", "&", "pwd", "-P"] | ["cd", word, ";", "pwd"] => {
                value(word)
            }
            _ => None,
        }
    }
}

/// Splits an assignment `NAME=WORD`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    (!name.is_empty() && name_length(name) == name.len()).then_some((name, value))
}

/// Returns the length of the variable's name with which a text begins.
fn name_length(text: &str) -> usize {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// Returns the position at which the bracket that a text begins with closes.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// Splits a line into its words, with their quotes, and its operators, each of one character.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    let mut word = String::new();
    let mut rest = line;
    let mut is_quoted = false;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '\'' if !is_quoted => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '$' if rest[1..].starts_with('(') => 2 + closing(&rest[1..], '(', ')').unwrap_or(0),
            '$' if rest[1..].starts_with('{') => 2 + closing(&rest[1..], '{', '}').unwrap_or(0),
            '`' => rest[1..].find('`').map_or(rest.len(), |end| end + 2),
            _ => next.len_utf8(),
        };
        let (piece, behind) = rest.split_at(length.min(rest.len()));
        rest = behind;
        if next == '"' {
            is_quoted = !is_quoted;
        }
        if !is_quoted && next == '#' && word.is_empty() {
            break;
        }
        if !is_quoted && (next.is_whitespace() || ";&|()".contains(next)) {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if !next.is_whitespace() {
                words.push(piece.to_owned());
            }
        } else {
            word.push_str(piece);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Returns the line that ends the here-document that these words begin.
fn here_document(words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word.contains("<<") && !word.contains("<<<"))?;
    let (_, end) = words[at].split_once("<<")?;
    let end = end.strip_prefix('-').unwrap_or(end);
    let end = if end.is_empty() { words.get(at + 1)?.as_str() } else { end };
    Some(end.replace(['\'', '"', '\\'], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(text: &str) -> Vec<(String, Option<PathBuf>)> {
        let mut script = Script { path: Path::new("/opt/tool/bin/run"), variables: HashMap::new(), starts: vec![] };
        script.read(text);
        script.starts
    }

    #[test]
    fn programs_behind_exec_are_found() {
        for (text, expected) in [
            ("APP=x\nLIB=/usr/lib/$APP\nif [ 1 ]; then\n  exec $LIB/$APP \"$@\"\nfi", Some("/usr/lib/x/x")),
            ("exec \"$(dirname \"$0\")/../lib/tool\" \"$@\"", Some("/opt/tool/bin/../lib/tool")),
            ("exec \"${0%/*}/tool\"", Some("/opt/tool/bin/tool")),
            ("D=$(cd `dirname $0` && pwd); exec $D/'my tool'", Some("/opt/tool/bin/my tool")),
            ("[ -x /a ] && exec -a name \"${TOOL_OF_NOBODY:-/bin/tool}\"", Some("/bin/tool")),
            ("exec $0.bin \"$@\"", Some("/opt/tool/bin/run.bin")),
            ("exec \\\n  grep -E \"$@\"", Some("grep")),
            ("if x; then P=/a; else P=/b; fi; exec $P", None),
            ("exec \"$1\"", None),
            ("exec $(which java)", None),
        ] {
            let found = starts(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].1.as_deref(), expected.map(Path::new), "{text}");
        }
    }

    #[test]
    fn other_words_are_no_programs() {
        for text in [
            "# exec /bin/a",
            "echo exec /bin/a",
            "exec >log 2>&1",
            "exec 3</dev/null; true",
            "cat <<'END'\nexec /bin/a\nEND\n",
            "echo \"; exec /bin/a\"",
            "exec",
            "",
        ] {
            assert_eq!(starts(text), [], "{text}");
        }
    }

    #[test]
    fn hostile_scripts_do_no_harm() {
        let _ = starts(&format!("exec {}", "${a:-".repeat(2_000)));
        let _ = starts(&format!("exec {}", "$(dirname ".repeat(2_000)));
        let doubling: String = (0..64).map(|i| format!("a{}=$a{i}$a{i}xxxxxxxx\n", i + 1)).collect();
        assert_eq!(starts(&format!("a0=x\n{doubling}exec $a64")), [("$a64".to_owned(), None)]);
        for text in [
            "exec \"",
            "exec '",
            "exec $",
            "exec ${",
            "exec `",
            "exec \\",
            "é=ü\nexec $é",
            "<<",
            "exec $(\"",
            "$((((",
            "exec ${é%/*}",
        ] {
            let _ = starts(text);
        }
    }
}
