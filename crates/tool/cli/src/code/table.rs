//! The macro that defines the codes.

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
