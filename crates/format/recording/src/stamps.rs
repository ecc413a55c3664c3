//! The texts of stamps.

use std::borrow::Cow;

/// The type that a program declared for a block, and the place where it did so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StampText<'text> {
    /// The type's name.
    pub type_name: Cow<'text, str>,
    /// The source file; `None`: not known.
    pub file: Option<Cow<'text, str>>,
    /// The line in it; 0: not known.
    pub line: u32,
    /// The label that it gave.
    pub label: Option<Cow<'text, str>>,
}

impl StampText<'_> {
    /// Parses the parts of a text. Missing parts are unknown; further ones, of a newer version, are
    /// ignored.
    /// ```
    /// # use heapledger_recording::StampText;
    /// let stamp = StampText::parse(b"alloc::string::String\nsrc/cache.rs:118\nkeys");
    /// assert_eq!((&*stamp.type_name, stamp.file.as_deref()), ("alloc::string::String", Some("src/cache.rs")));
    /// assert_eq!((stamp.line, stamp.label.as_deref()), (118, Some("keys")));
    /// assert_eq!(StampText::parse(b"T").file, None);
    /// ```
    pub fn parse(text: &[u8]) -> StampText<'_> {
        let mut lines = text.split(|&byte| byte == b'\n').map(String::from_utf8_lossy);
        let type_name = lines.next().unwrap_or_default();
        let location = lines.next().filter(|location| !location.is_empty());
        let label = lines.next().filter(|label| !label.is_empty());
        let (file, line) = match location {
            None => (None, 0),
            Some(location) => {
                let parts = location.rsplit_once(':').and_then(|(file, line)| Some((file.len(), line.parse().ok()?)));
                let (length, line) = parts.unwrap_or((location.len(), 0));
                let file = match location {
                    Cow::Borrowed(location) => Cow::Borrowed(location.get(..length).unwrap_or(location)),
                    Cow::Owned(mut location) => {
                        location.truncate(length);
                        Cow::Owned(location)
                    }
                };
                (Some(file), line)
            }
        };
        StampText { type_name, file, line, label }
    }

    /// Returns the text with these parts.
    pub fn to_bytes(&self) -> Vec<u8> {
        let location = self.file.as_ref().map_or(String::new(), |file| format!("{file}:{}", self.line));
        let lines = [&*self.type_name, &location, self.label.as_deref().unwrap_or("")];
        let length = lines.iter().rposition(|line| !line.is_empty()).map_or(1, |last| last + 1);
        lines[..length].join("\n").into_bytes()
    }
}

#[cfg(test)]
mod tests;
