//! Patterns for names: a part of the name, wildcards, or a regular expression.

use std::fmt;

use regex::Regex;

/// A pattern that a name may match. It is case-sensitive.
///
/// - `text`: the name contains this text.
/// - `text*` (with `*` for any text, `?` for any character): the whole name matches.
/// - `/regex/`: the regular expression matches somewhere in the name (syntax of the `regex` crate).
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Option<Regex>,
}

/// The reason why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It is empty, and would match everything.
    #[error("an empty pattern matches everything")]
    Empty,
    /// The text between the slashes is not a regular expression.
    #[error("no regular expression: {0}")]
    Regex(String),
}

impl Pattern {
    /// Parses a text, a text with wildcards, or `/regex/`.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        let inner = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        if text.is_empty() || inner == Some("") {
            return Err(PatternError::Empty);
        }
        let regex = match inner {
            Some(regex) => Some(Regex::new(regex)),
            None => text.contains(['*', '?']).then(|| Regex::new(&wildcards(text))),
        };
        let regex = regex.transpose().map_err(|error| PatternError::Regex(error.to_string()))?;
        Ok(Pattern { text: text.to_owned(), regex })
    }

    /// True if the name matches.
    pub fn matches(&self, name: &str) -> bool {
        match &self.regex {
            Some(regex) => regex.is_match(name),
            None => name.contains(&self.text),
        }
    }

    /// Returns the pattern as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Returns the regular expression for a text with wildcards.
fn wildcards(text: &str) -> String {
    let part = |character: char| match character {
        '*' => ".*".to_owned(),
        '?' => ".".to_owned(),
        plain => regex::escape(plain.encode_utf8(&mut [0; 4])),
    };
    format!("(?s)^{}$", text.chars().map(part).collect::<String>())
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_wildcards_and_regular_expressions() {
        let matches = |pattern: &str, name: &str| Pattern::new(pattern).unwrap().matches(name);
        assert!(matches("parse", "json::parse_value") && !matches("parse", "json::Parse"));
        assert!(matches("a.b", "xa.b") && !matches("a.b", "aab"));
        assert!(matches("/^a.b$/", "aab") && !matches("/^a.b$/", "xaab"));
        assert!(matches("/", "a/b") && matches("/usr", "/usr/bin"));
        assert!(matches("json::*", "json::parse") && !matches("json::*", "x json::parse"));
        assert!(matches("*par?e", "json::parse") && !matches("par?e", "json::parse") && !matches("a.b*", "axb"));
        assert_eq!(Pattern::new(""), Err(PatternError::Empty));
        assert_eq!(Pattern::new("//"), Err(PatternError::Empty));
        assert!(matches!(Pattern::new("/(/"), Err(PatternError::Regex(_))));
    }
}
