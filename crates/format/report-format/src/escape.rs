//! Names come from recordings, and recordings from anywhere, so names that are shown must not be
//! able to control the terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns the text with every character replaced that could move the cursor, change colours or
/// reorder the output.
///
/// `\n`, `\t` and the like are written as in Rust, all others as `\u{1b}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            harmless if is_harmless(harmless) => escaped.push(harmless),
            // Writing to a String cannot fail.
            other => drop(write!(escaped, "\\u{{{:x}}}", other as u32)),
        }
    }
    Cow::Owned(escaped)
}

/// True if a character may be shown as it is: it is not a control character, not a line separator,
/// and does not change the direction of text.
pub fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_text_is_borrowed() {
        assert!(matches!(escape("naïve → 名前"), Cow::Borrowed("naïve → 名前")));
    }

    #[test]
    fn nothing_reaches_the_terminal() {
        assert_eq!(escape("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(escape("a\nb\rc\td\0"), "a\\nb\\rc\\td\\u{0}");
        assert_eq!(escape("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(escape("\u{202e}txt.exe"), "\\u{202e}txt.exe");
    }
}
