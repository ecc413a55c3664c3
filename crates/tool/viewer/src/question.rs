//! Questions, from the queries of addresses.

use std::fmt;

/// The maximum length of a query, in bytes.
const QUERY_BYTES_MAX: usize = 32 << 10;
/// The maximum number of options.
const OPTIONS_MAX: usize = 256;

/// A verb with its options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The name of the verb; with a slash before the name of an action, if it has actions.
    pub verb: String,
    /// The options in their order, by their long names without dashes. Flags have an empty value.
    pub options: Vec<(String, String)>,
}

/// The reason why a query is no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionError {
    /// The query is longer than 32 KiB.
    TooLong,
    /// The query has more than 256 options.
    TooMany,
}

impl fmt::Display for QuestionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuestionError::TooLong => write!(f, "the query has more than {QUERY_BYTES_MAX} bytes"),
            QuestionError::TooMany => write!(f, "the query has more than {OPTIONS_MAX} options"),
        }
    }
}

impl std::error::Error for QuestionError {}

impl Question {
    /// Reads the query of an address, as forms write it. Bytes that are not UTF-8 become
    /// U+FFFD.
    ///
    /// # Errors
    ///
    /// See [`QuestionError`].
    pub fn parse(verb: &str, query: &str) -> Result<Question, QuestionError> {
        if query.len() > QUERY_BYTES_MAX || verb.len() > QUERY_BYTES_MAX {
            return Err(QuestionError::TooLong);
        }
        let options: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            .take(OPTIONS_MAX + 1)
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        if options.len() > OPTIONS_MAX {
            return Err(QuestionError::TooMany);
        }
        Ok(Question { verb: verb.into(), options })
    }

    /// Returns the values of an option, in their order.
    pub fn values<'q>(&'q self, option: &'q str) -> impl Iterator<Item = &'q str> {
        self.options.iter().filter(move |(key, _)| key == option).map(|(_, value)| &**value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_in_their_order_and_flags_are_empty() {
        let question = Question::parse("top", "file=0&by=type&function=a%26b+c&own=&file=1&at").unwrap();
        let options = [("file", "0"), ("by", "type"), ("function", "a&b c"), ("own", ""), ("file", "1"), ("at", "")];
        assert_eq!(question.options, options.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(question.values("file").collect::<Vec<_>>(), ["0", "1"]);
    }

    #[test]
    fn queries_are_bounded_and_never_panic() {
        assert_eq!(Question::parse("top", &"a".repeat(QUERY_BYTES_MAX + 1)), Err(QuestionError::TooLong));
        assert_eq!(Question::parse("top", &"a&".repeat(OPTIONS_MAX + 1)), Err(QuestionError::TooMany));
        assert_eq!(Question::parse("top", &"a&".repeat(OPTIONS_MAX)).unwrap().options.len(), OPTIONS_MAX);
        let question = Question::parse("top", "%ff=%&=%00&&%zz").unwrap();
        let options = [("\u{fffd}", "%"), ("", "\0"), ("%zz", "")];
        assert_eq!(question.options, options.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
}
