//! Answers for other programs: the documents of `--json` and `--csv`, and what several of them
//! contain. A document of one verb alone is in the verb's file.

pub(crate) mod amounts;
pub(crate) mod document;
pub(crate) mod group;
pub(crate) mod names;
pub(crate) mod parts;
pub(crate) mod recording;
pub(crate) mod selection;
pub(crate) mod table;
