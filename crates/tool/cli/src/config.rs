//! `heapledger.toml`: the permanent declarations of a project, or a user, about functions.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use heapledger_analysis::{Declared, Pattern};
use serde::Deserialize;

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::text::shown;

/// The name of the file.
const NAME: &str = "heapledger.toml";
/// The maximum size of the file, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    wrappers: Vec<toml::Spanned<String>>,
    own: Vec<toml::Spanned<String>>,
}

/// The declarations of the file that applies to this run of the command.
static DECLARED: OnceLock<Declared> = OnceLock::new();

/// Reads the nearest file: that of the project, else that of the user. It is not an error if there
/// is none.
pub(crate) fn load() -> Result<()> {
    let Some(path) = find() else { return Ok(()) };
    let declared = read(&path).map_err(|(line, why)| {
        let line = line.map_or(String::new(), |line| format!(" line {line}:"));
        Failure::new(Exit::Usage, format_args!("cannot use `{}`:{line} {why}", shown(&path)))
            .hint("it has lists of patterns: wrappers = [\"pool_*\"] and own = [\"vendored::*\"]")
    })?;
    // The file is read once, so the value is never set already.
    let _ = DECLARED.set(declared);
    Ok(())
}

/// Returns the declarations of the file, and these wrappers of the command line.
pub(crate) fn declared(wrappers: &[Pattern]) -> Declared {
    let mut declared = DECLARED.get().cloned().unwrap_or_default();
    declared.wrappers.extend_from_slice(wrappers);
    declared
}

/// Returns the file in the current directory or above it, up to the root of the repository; else
/// the user's own. Outside of a repository only the current directory counts, because anybody may
/// have written the directories above.
fn find() -> Option<PathBuf> {
    let project = std::env::current_dir().ok().and_then(|here| of_project(&here));
    let user = || {
        let directory =
            |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
        Some(directory.join("heapledger").join(NAME)).filter(is_there)
    };
    project.or_else(user)
}

fn of_project(here: &Path) -> Option<PathBuf> {
    let root = here.ancestors().find(|directory| directory.join(".git").exists()).unwrap_or(here);
    let inside = here.ancestors().take_while(|directory| directory.starts_with(root));
    inside.map(|directory| directory.join(NAME)).find(is_there)
}

fn is_there(path: &PathBuf) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// The reason why a file cannot be used, and its line.
type Unusable = (Option<usize>, String);

fn read(path: &Path) -> std::result::Result<Declared, Unusable> {
    let text = text(path).map_err(|error| (None, error.to_string()))?;
    parse(&text)
}

fn text(path: &Path) -> io::Result<String> {
    // Reading a FIFO or a device could block.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("it has more than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

fn parse(text: &str) -> std::result::Result<Declared, Unusable> {
    let line = |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1;
    let config: Config = toml::from_str(text)
        .map_err(|error| (error.span().map(|span| line(span.start)), error.message().to_owned()))?;
    let patterns = |texts: Vec<toml::Spanned<String>>| {
        let pattern = |text: toml::Spanned<String>| {
            Pattern::new(text.get_ref()).map_err(|why| (Some(line(text.span().start)), why.to_string()))
        };
        texts.into_iter().map(pattern).collect::<std::result::Result<Vec<_>, Unusable>>()
    };
    Ok(Declared { wrappers: patterns(config.wrappers)?, own: patterns(config.own)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_make_sense() {
        let declared = parse("# ours\nwrappers = [\"pool_*\", '/^arena_/']\nown = [\"std::\"]\n").unwrap();
        assert_eq!(declared.wrappers, [Pattern::new("pool_*").unwrap(), Pattern::new("/^arena_/").unwrap()]);
        assert_eq!(declared.own, [Pattern::new("std::").unwrap()]);
        assert!(parse("").unwrap().wrappers.is_empty());
    }

    #[test]
    fn projects_end_at_the_root_of_their_repository() {
        let directory = tempfile::TempDir::new_in("/tmp").unwrap();
        let root = directory.path();
        let inside = root.join("repository/src");
        fs::create_dir_all(&inside).unwrap();
        fs::write(root.join(NAME), "").unwrap();
        // Outside of a repository only the directory itself counts.
        assert_eq!(of_project(&inside), None);
        assert_eq!(of_project(root), Some(root.join(NAME)));
        fs::create_dir(root.join("repository/.git")).unwrap();
        assert_eq!(of_project(&inside), None);
        for file in [root.join("repository").join(NAME), inside.join(NAME)] {
            fs::write(&file, "").unwrap();
            assert_eq!(of_project(&inside), Some(file));
        }
    }

    #[test]
    fn mistakes_have_lines_and_reasons() {
        for (text, line, why) in [
            ("wrappers = [\"a\"]\nwrapers = []\n", 2, "unknown field `wrapers`"),
            ("wrappers = \"pool_*\"\n", 1, "expected a sequence"),
            ("own = [\n  \"a\",\n  \"\",\n]\n", 3, "an empty pattern matches everything"),
            ("\nown = [\"/(/\"]\n", 2, "no regular expression"),
            ("wrappers = [\n", 1, ""),
            ("own = [1]", 1, "invalid type"),
            ("\u{0}", 1, ""),
        ] {
            let (found, reason) = parse(text).unwrap_err();
            assert!(found == Some(line) && reason.contains(why) && !reason.is_empty(), "{text}: {found:?} {reason}");
        }
        // No file makes the parser panic.
        let deep = "wrappers = ".to_owned() + &"[".repeat(100_000);
        assert!(parse(&deep).is_err());
    }
}
