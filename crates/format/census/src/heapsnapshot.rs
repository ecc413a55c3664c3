//! V8's heap snapshots (`.heapsnapshot`), as `v8.writeHeapSnapshot` of Node.js, Chromium's DevTools
//! and the inspector's `HeapProfiler.takeHeapSnapshot` write them; and `.heaptimeline`, the same
//! with stacks and moments.
//!
//! The file is a JSON object. `snapshot.meta` names the fields of a node, of an edge, and so on;
//! the other members are long arrays of numbers, so many per node or edge, and `strings`, which the
//! numbers refer to. The fields differ between versions of V8; see `heap-snapshot-generator.cc`
//! there. The edges of a node follow those of the node before it; an edge leads to the position of
//! the target's first number in `nodes`.
//!
//! # Meaning
//!
//! The type name of a node is V8's, such as `closure`. The other properties follow from it:
//!
//! | type | coarse type | class |
//! |---|---|---|
//! | `object` | object | the constructor's name |
//! | `closure` | object | `Function` |
//! | `regexp` | object | `RegExp` |
//! | `string`, `concatenated string`, `sliced string` | string | |
//! | `code` | script | |
//! | `native` with the name of a DOM node | DOM node | |
//! | all others | other | |
//!
//! The script file of a function comes from its script, which the graph contains, or from the names
//! that stacks give to scripts.

mod json;
mod meaning;
mod meta;
mod raw;
mod read;
mod script_files;
mod traces;
mod write;

pub use read::read;
pub(crate) use write::types_lost;
pub use write::write;

#[cfg(test)]
pub(crate) use tests::WHOLE;

#[cfg(test)]
mod tests;
