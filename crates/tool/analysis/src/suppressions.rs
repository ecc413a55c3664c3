//! Known leaks that are not to be reported again, from files in the syntax of LeakSanitizer.

use crate::amount::Amount;
use crate::names::Names;
use crate::profile::{Profile, Site};

/// Known leaks.
///
/// A file has a suppression `leak:PATTERN` on each line. Empty lines, and lines that begin with
/// `#`, are skipped. A leak is suppressed if the pattern matches the name, the module's path or the
/// source file of any function of its stack. In a pattern, `*` is any text. A pattern matches
/// anywhere in a name, unless it has `^` at its start or `$` at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions {
    suppressions: Vec<Suppression>,
}

/// A known leak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    /// The pattern as it was given.
    pub pattern: String,
    /// The amount held by the leaks that it suppressed.
    pub amount: Amount,
}

/// The reason why a text is not a list of suppressions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuppressionError {
    /// A line is not a suppression.
    #[error("line {line}: expected `leak:PATTERN`, found `{text}`")]
    Unknown {
        /// The number of the line, from 1.
        line: usize,
        /// The text of the line, at most 60 characters.
        text: String,
    },
    /// A pattern is empty; it would match all leaks, as `*` does.
    #[error("line {line}: the pattern is empty")]
    Empty {
        /// The number of the line, from 1.
        line: usize,
    },
}

impl Suppressions {
    /// Adds the suppressions of a file with this text.
    pub fn add(&mut self, text: &str) -> Result<(), SuppressionError> {
        for (at, line) in text.lines().enumerate() {
            let (line, number) = (line.trim(), at + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some(pattern) = line.strip_prefix("leak:") else {
                let text = line.chars().take(60).collect();
                return Err(SuppressionError::Unknown { line: number, text });
            };
            if pattern.is_empty() {
                return Err(SuppressionError::Empty { line: number });
            }
            self.suppressions.push(Suppression { pattern: pattern.to_owned(), amount: Amount::default() });
        }
        Ok(())
    }

    /// Removes known leaks from a profile, and attributes each to the first suppression that
    /// matches it. Returns the amount that was removed.
    pub fn apply(&mut self, profile: &mut Profile, names: &mut Names<'_, '_>) -> Amount {
        let mut suppressed = Amount::default();
        let sites = std::mem::take(&mut profile.sites);
        profile.whole = Amount::default();
        for site in sites {
            match self.find(&site, profile, names) {
                Some(suppression) => {
                    suppression.amount += site.amount;
                    suppressed += site.amount;
                }
                None => {
                    profile.whole += site.amount;
                    profile.sites.push(site);
                }
            }
        }
        suppressed
    }

    /// Returns all suppressions in order.
    pub fn iter(&self) -> impl Iterator<Item = &Suppression> {
        self.suppressions.iter()
    }

    fn find(&mut self, site: &Site, profile: &Profile, names: &mut Names<'_, '_>) -> Option<&mut Suppression> {
        let frames = names.frames(&profile.stacks, site.stack);
        let mut called: Vec<String> = Vec::new();
        for frame in &frames {
            let function = names.function(frame.function);
            called.extend([function.short.to_string(), function.full.to_string()]);
            called.push(names.module_path(function.module));
            called.extend(frame.location.as_ref().map(|location| location.file.to_string()));
        }
        self.suppressions.iter_mut().find(|it| called.iter().any(|name| matches(&it.pattern, name)))
    }
}

/// True if a name matches a pattern. Takes at most time in proportion to the product of their
/// lengths.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (is_start, pattern) = match pattern.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let (is_end, pattern) = match pattern.strip_suffix('$') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut parts: Vec<&str> = pattern.split('*').collect();
    let mut rest = name;
    if is_start {
        let Some(after) = rest.strip_prefix(parts.remove(0)) else { return false };
        rest = after;
        // `^text$` has no other parts.
        if parts.is_empty() {
            return !is_end || rest.is_empty();
        }
    }
    let last = if is_end { parts.pop() } else { None };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    last.is_none_or(|last| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name) in [
            ("parse", "json::parse_value"),
            ("^json", "json::parse"),
            ("value$", "json::parse_value"),
            ("^main$", "main"),
            ("^a*c$", "abc"),
            ("a*b*c", "xaxbxcx"),
            ("*/lib*.so", "/usr/lib/libx.so.3"),
            ("^a*a$", "aa"),
            ("^*x$", "x"),
            ("*", "anything"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("Parse", "parse"),
            ("^parse", "json::parse"),
            ("json$", "json::parse"),
            ("^main$", "main2"),
            ("^a*a$", "a"),
            ("a*b*c", "acb"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn files() {
        let mut known = Suppressions::default();
        known.add("# known\n\nleak:foo\n  leak:^bar$ \r\n").unwrap();
        assert_eq!(known.iter().map(|it| it.pattern.as_str()).collect::<Vec<_>>(), ["foo", "^bar$"]);
        let wrong = |text: &str| Suppressions::default().add(text).unwrap_err();
        assert_eq!(wrong("leak:x\nrace:y"), SuppressionError::Unknown { line: 2, text: "race:y".into() });
        assert_eq!(wrong("foo"), SuppressionError::Unknown { line: 1, text: "foo".into() });
        assert_eq!(wrong("\nleak:"), SuppressionError::Empty { line: 2 });
    }

    proptest! {
        /// Any file is accepted or refused without a panic, and a pattern matches like the
        /// equivalent regular expression.
        #[test]
        fn any_text(text in "[\\^$*ab\u{e9}]{0,12}", name in "[ab\u{e9}]{0,12}", file in any::<String>()) {
            crate::fuzzing::suppressions(format!("{file}\nleak:{text}\0{name}").as_bytes());
            let inner = text.strip_prefix('^').unwrap_or(&text);
            let inner = inner.strip_suffix('$').unwrap_or(inner);
            let middle: Vec<String> = inner.split('*').map(regex::escape).collect();
            let start = if text.starts_with('^') { "^" } else { "" };
            let end = if text.strip_prefix('^').unwrap_or(&text).ends_with('$') { "$" } else { "" };
            let regex = regex::Regex::new(&format!("(?s){start}{}{end}", middle.join(".*"))).unwrap();
            prop_assert_eq!(matches(&text, &name), regex.is_match(&name), "{} {}", text, name);
        }
    }
}
