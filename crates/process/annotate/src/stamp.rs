//! Stamps: declarations by which a Rust program says what its blocks are.
//!
//! An allocator is asked for a number of bytes, and is not told their purpose.
//! [`stamp!`](crate::stamp!) adds it: the type of a block, by its static name, the source location
//! of the declaration, and an optional label.
//!
//! ```
//! # extern crate heapledger_annotate as heapledger;
//! use heapledger::stamp;
//!
//! struct Token {
//!     kind: u8,
//!     at: (u32, u32),
//! }
//!
//! let first = stamp!(Box::new(Token { kind: 1, at: (1, 1) })); // a block of `Token`
//! let mut tokens = stamp!(Vec::with_capacity(64), "of one line"); // a block of `[Token]`
//! tokens.push(*first);
//! stamp!(&tokens, "kept"); // later, and again: the last stamp counts
//! ```
//!
//! Observers (`heapledger record`, the ledger in a program) show blocks and bytes by these names.
//! Blocks without stamp are `[unknown]` to a ledger; in a recording they have the type from the
//! debug information. A block that is reallocated keeps its stamp.
//!
//! A value can be stamped if it [owns blocks](OwnsBlocks): boxes, vectors, strings, maps and the
//! like, references to them, options of them, raw pointers, and types of one's own. A value without
//! blocks, such as an empty vector, is not an error.
//!
//! # What it costs
//!
//! Without the feature `stamps`, which is on by default in the crate `heapledger`: nothing, the
//! macro is its expression. With it, if nobody observes, two loads and two tests. `docs/stamps.md`
//! has the figures for the rest. No stamp allocates, blocks, or fails; all may be made in any
//! thread.

mod owners;
mod place;

pub use owners::OwnsBlocks;
#[doc(hidden)]
pub use place::{Place, stamped};

/// Stamps the blocks that a value owns with the name of their type, and returns the value.
///
/// ```
/// # extern crate heapledger_annotate as heapledger;
/// # use heapledger::stamp;
/// # use std::collections::HashMap;
/// let name = stamp!(String::from("of a page"));
/// let mut routes = HashMap::from([("/", 1), ("/users", 2)]);
/// stamp!(&mut routes, "routes").insert("/about", 3);
/// # assert_eq!((name.len(), routes.len()), (9, 3));
/// ```
///
/// The name is that of [`OwnsBlocks::type_name`], in a generic function that of the type it has
/// been made for. With it goes the file and the line of the macro, and the label, a constant, if
/// there is one. Up to 4,094 different pairs of type and place are told apart, what comes after
/// them is `(other)`.
///
/// The value may be any expression of a type that owns blocks; what else it has in it is not looked
/// at: a vector of boxes is one block. Something that owns none that is known does not compile:
///
/// ```compile_fail,E0277
/// # extern crate heapledger_annotate as heapledger;
/// heapledger::stamp!(7);
/// ```
#[cfg(feature = "stamps")]
#[macro_export]
macro_rules! stamp {
    ($value:expr $(,)?) => {
        $crate::stamp!($value, "")
    };
    ($value:expr, $label:expr $(,)?) => {
        $crate::__private::stamped($value, {
            static PLACE: $crate::__private::Place =
                $crate::__private::Place::new(::core::file!(), ::core::line!(), $label);
            &PLACE
        })
    };
}

/// Expands to its expression: this program is built without stamps.
#[cfg(not(feature = "stamps"))]
#[macro_export]
macro_rules! stamp {
    ($value:expr $(, $label:expr)? $(,)?) => {
        $value
    };
}
