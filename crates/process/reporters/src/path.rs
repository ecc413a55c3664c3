//! The names that reporters give their measurements: what in them changes from run to run, and what
//! is nobody's business.
//!
//! [`part`], [`variable`] and [`private`] wrap a value that is shown as a part of a path or a
//! description. The latter two leave marks in the text, control characters that no name should
//! have, so that they work in whatever way a text comes to be. [`RenderedPath`] takes them out
//! again.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

/// Begins what changes from one run to the next.
const VARIABLE: char = '\u{1}';
/// Begins what is private.
const PRIVATE: char = '\u{2}';
/// Ends what the last of them began.
const END: char = '\u{3}';
/// Begins a part that is neither. Only where somebody else writes texts, as C programs do: [`part`]
/// has nothing to say that it does not do at once.
const PART: char = '\u{4}';

/// The replacement for variable parts in stable paths.
const ANY: &str = "NNN";
/// The replacement for private parts in anonymous collections.
const ANONYMIZED: &str = "<anonymized>";

/// Wraps a value as one part of a path, whatever its text contains: a `/` is written as `\`, which
/// viewers turn back.
///
/// ```
/// # use heapledger_reporters as reports;
/// use reports::part;
/// assert_eq!(format!("files/{}", part("/etc/hosts")), r"files/\etc\hosts");
/// ```
pub fn part<T: Display>(value: T) -> Part<T> {
    Part { value, begin: None }
}

/// Wraps a value as a [`part`] that changes from one run of a program to the next: the number of a
/// process or thread, an address, a port. Reports whose paths differ only there are compared with
/// each other.
pub fn variable<T: Display>(value: T) -> Part<T> {
    Part { value, begin: Some(VARIABLE) }
}

/// Wraps a value as a [`part`] that is private to the user: a network address, a file's name, a
/// text. Anonymous collections have `<anonymized>` there. It may be in a description, too.
pub fn private<T: Display>(value: T) -> Part<T> {
    Part { value, begin: Some(PRIVATE) }
}

/// The return type of [`part`], [`variable`] and [`private`]. Its text is meant for
/// [`Collector`](crate::Collector).
#[derive(Clone, Copy, Debug)]
pub struct Part<T> {
    value: T,
    begin: Option<char>,
}

impl<T: Display> Display for Part<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(begin) = self.begin {
            out.write_char(begin)?;
        }
        write!(PartWriter(out), "{}", self.value)?;
        if self.begin.is_some() {
            out.write_char(END)?;
        }
        Ok(())
    }
}

struct PartWriter<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for PartWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (number, piece) in text.split('/').enumerate() {
            if number > 0 {
                self.0.write_char('\\')?;
            }
            self.0.write_str(piece)?;
        }
        Ok(())
    }
}

/// A text without marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RenderedPath {
    pub(crate) text: String,
    /// With [`ANY`] for what changes; `None` if nothing does.
    pub(crate) stable: Option<String>,
}

impl RenderedPath {
    pub(crate) fn new(value: impl Display, is_anonymous: bool) -> RenderedPath {
        let mut writer = Writer { is_anonymous, ..Writer::default() };
        // It fails where the value's own `Display` does: then there is as much as it has written.
        let _ = write!(writer, "{value}");
        writer.rendered
    }

    /// The path of a report of this reporter.
    pub(crate) fn join(base: &str, value: impl Display, is_anonymous: bool) -> RenderedPath {
        let path = RenderedPath::new(value, is_anonymous);
        if let Some(absolute) = path.text.strip_prefix('/') {
            let stable = path.stable.as_ref().map(|stable| stable[1..].to_owned());
            return RenderedPath { text: absolute.to_owned(), stable };
        }
        let base = RenderedPath::new(base, is_anonymous);
        if path.text.is_empty() {
            return base;
        }
        let joined = |base: &str, path: &str| if base.is_empty() { path.to_owned() } else { format!("{base}/{path}") };
        let stable = (base.stable.is_some() || path.stable.is_some())
            .then(|| joined(base.stable.as_ref().unwrap_or(&base.text), path.stable.as_ref().unwrap_or(&path.text)));
        RenderedPath { text: joined(&base.text, &path.text), stable }
    }
}

#[derive(Default)]
struct Writer {
    rendered: RenderedPath,
    is_anonymous: bool,
    /// The marks that have begun and not ended, of which there are more within hostile texts only.
    open: Vec<char>,
}

impl Writer {
    fn is_in(&self, mark: char) -> bool {
        self.open.contains(&mark)
    }

    fn begin(&mut self, mark: char) {
        let (is_hidden, is_any) = (self.is_anonymous && self.is_in(PRIVATE), self.is_in(VARIABLE));
        self.open.push(mark);
        match mark {
            PRIVATE if self.is_anonymous && !is_hidden => {
                self.rendered.text.push_str(ANONYMIZED);
                if let Some(stable) = self.rendered.stable.as_mut().filter(|_| !is_any) {
                    stable.push_str(ANONYMIZED);
                }
            }
            VARIABLE if !is_hidden && !is_any => {
                self.rendered.stable.get_or_insert_with(|| self.rendered.text.clone()).push_str(ANY);
            }
            _ => {}
        }
    }
}

impl Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive([VARIABLE, PRIVATE, END, PART]) {
            let plain = piece.trim_end_matches([VARIABLE, PRIVATE, END, PART]);
            let mark = piece[plain.len()..].chars().next();
            // The text between marks is one part of the path.
            let plain = if self.open.is_empty() { Cow::Borrowed(plain) } else { Cow::Owned(plain.replace('/', "\\")) };
            if !(self.is_anonymous && self.is_in(PRIVATE)) {
                self.rendered.text.push_str(&plain);
                if !self.is_in(VARIABLE)
                    && let Some(stable) = &mut self.rendered.stable
                {
                    stable.push_str(&plain);
                }
            }
            match mark {
                Some(END) => _ = self.open.pop(),
                Some(mark) => self.begin(mark),
                None => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(value: impl Display, is_anonymous: bool) -> (String, Option<String>) {
        let rendered = RenderedPath::new(value, is_anonymous);
        (rendered.text, rendered.stable)
    }

    #[test]
    fn parts_are_one_part_each() {
        assert_eq!(rendered(format_args!("a/{}/b", part("x/y")), false), (r"a/x\y/b".into(), None));
        assert_eq!(rendered("a/b", false), ("a/b".into(), None));
        assert_eq!(rendered("", true), (String::new(), None));
    }

    #[test]
    fn what_changes_is_declared() {
        let path = format_args!("stacks/{} (tid={})/{}", part("a/b"), variable(7), variable("x/y"));
        assert_eq!(rendered(path, false), (r"stacks/a\b (tid=7)/x\y".into(), Some(r"stacks/a\b (tid=NNN)/NNN".into())));
    }

    #[test]
    fn marks_of_parts_from_c_are_removed() {
        let path = "a/\u{4}b/c\u{3}/\u{1}d/e\u{3}/f";
        assert_eq!(rendered(path, false), (r"a/b\c/d\e/f".into(), Some(r"a/b\c/NNN/f".into())));
    }

    #[test]
    fn what_is_private_is_hidden_on_demand() {
        let path = format_args!("top({}, id={})/{}", private("http://a/b"), variable(9), part("x"));
        let shown = (r"top(http:\\a\b, id=9)/x".into(), Some(r"top(http:\\a\b, id=NNN)/x".into()));
        assert_eq!(rendered(path, false), shown);
        let hidden = ("top(<anonymized>, id=9)/x".into(), Some("top(<anonymized>, id=NNN)/x".into()));
        assert_eq!(rendered(path, true), hidden);
    }

    #[test]
    fn both_in_either_order() {
        assert_eq!(rendered(private(variable("p")), false), ("p".into(), Some("NNN".into())));
        assert_eq!(rendered(variable(private("p")), false), ("p".into(), Some("NNN".into())));
        assert_eq!(rendered(private(variable("p")), true), ("<anonymized>".into(), None));
        assert_eq!(rendered(variable(private("p")), true), ("<anonymized>".into(), Some("NNN".into())));
    }

    #[test]
    fn marks_in_texts_do_no_harm() {
        for text in ["\u{3}\u{3}a", "\u{1}a", "\u{2}a\u{1}b\u{3}", "\u{1}\u{1}\u{1}", "\u{3}", "\u{4}/\u{2}"] {
            for is_anonymous in [false, true] {
                let (text, stable) = rendered(text, is_anonymous);
                assert!(!text.contains(char::is_control) && !stable.unwrap_or_default().contains(char::is_control));
            }
        }
    }

    #[test]
    fn paths_are_relative_to_the_reporter() {
        let join = |base: &str, path: &str| RenderedPath::join(base, path, false).text;
        assert_eq!(join("explicit/cache", "entries"), "explicit/cache/entries");
        assert_eq!(join("explicit/cache", ""), "explicit/cache");
        assert_eq!(join("explicit/cache", "/cache-hits"), "cache-hits");
        assert_eq!(join("", "explicit/a"), "explicit/a");
        let stable = |base: &dyn Display, path: &dyn Display| RenderedPath::join(&base.to_string(), path, false).stable;
        assert_eq!(stable(&variable(1), &"a"), Some("NNN/a".into()));
        assert_eq!(stable(&"a", &variable(1)), Some("a/NNN".into()));
        assert_eq!(stable(&"a", &format_args!("/b/{}", variable(1))), Some("b/NNN".into()));
        assert_eq!(stable(&"a", &"b"), None);
    }
}
