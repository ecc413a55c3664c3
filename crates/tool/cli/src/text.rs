//! Paths and command lines as people read them, and words as they type them.

use std::borrow::Cow;
use std::path::Path;

use heapledger_recording::ImageStart;
use heapledger_report_format::escape;

/// Returns a path for people.
pub(crate) fn shown(path: &Path) -> String {
    escape(&path.to_string_lossy()).into_owned()
}

/// Returns the last three components of a path that has more.
pub(crate) fn shortened(path: &str) -> Cow<'_, str> {
    let kept: usize = path.rsplit('/').take(3).map(|component| component.len() + 1).sum();
    if kept < path.len() { Cow::Owned(format!("…{}", &path[path.len() - kept..])) } else { Cow::Borrowed(path) }
}

/// Quotes a word for a shell, if necessary.
pub(crate) fn quoted(name: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+,:=@%".contains(character);
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

/// Returns the command line of an image: its arguments, or at least its executable.
pub(crate) fn command(image: &ImageStart) -> String {
    let words: Vec<Cow<'_, str>> = image.argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
    if words.is_empty() { String::from_utf8_lossy(&image.executable).into_owned() } else { words.join(" ") }
}

/// Returns the command line of an image, escaped for people.
pub(crate) fn shown_command(image: &ImageStart) -> String {
    escape(&command(image)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_can_be_typed() {
        assert_eq!(quoted("heapledger.server.4411.hl"), "heapledger.server.4411.hl");
        assert_eq!(quoted("a b'c.hl"), r"'a b'\''c.hl'");
    }

    #[test]
    fn long_paths_are_shortened() {
        assert_eq!(shortened("main.c"), "main.c");
        assert_eq!(shortened("/src/main.c"), "/src/main.c");
        assert_eq!(shortened("/a/b/c/d.rs"), "…/b/c/d.rs");
        assert_eq!(shortened("b/c/d.rs"), "b/c/d.rs");
    }

    #[test]
    fn commands() {
        let mut image = ImageStart { executable: b"/bin/cat".to_vec(), ..ImageStart::default() };
        assert_eq!(command(&image), "/bin/cat");
        image.argv = vec![b"cat".to_vec(), b"a\xff\x1b[m".to_vec()];
        assert_eq!(command(&image), "cat a\u{fffd}\x1b[m");
        assert_eq!(shown_command(&image), "cat a\u{fffd}\\u{1b}[m");
    }
}
