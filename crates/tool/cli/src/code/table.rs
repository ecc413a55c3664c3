//! The macro that defines the codes, and their explanations.

use super::Code;

/// Defines [`Code`] and the table of explanations, in the order of the numbers.
macro_rules! codes {
    ($($(#[doc = $title:literal])+ $name:ident = $number:literal {
        cause: $cause:literal, consequence: $consequence:literal, remedy: $remedy:literal $(,)?
    })*) => {
        /// A kind of problem. A number is never used again for another kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($(#[doc = $title])+ $name = $number,)*
        }

        /// The explanations of all codes.
        pub(crate) const EXPLANATIONS: &[Explanation] = &[$(Explanation {
            code: Code::$name,
            title: concat!($($title),+),
            cause: $cause,
            consequence: $consequence,
            remedy: $remedy,
        },)*];
    };
}
pub(super) use codes;

/// The explanation of a code.
#[derive(Debug)]
pub(crate) struct Explanation {
    pub(crate) code: Code,
    pub(super) title: &'static str,
    pub(crate) cause: &'static str,
    pub(crate) consequence: &'static str,
    pub(crate) remedy: &'static str,
}

impl Explanation {
    /// Returns the problem in a few words.
    pub(crate) fn title(&self) -> &'static str {
        self.title.trim()
    }
}
