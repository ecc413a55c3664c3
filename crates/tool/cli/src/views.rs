//! Answers for people, as several verbs print them: figures, headlines, tables, rows, trees,
//! pictures.

pub(crate) mod call_tree;
pub(crate) mod chart;
pub(crate) mod departures;
pub(crate) mod flame_graph;
pub(crate) mod headline;
pub(crate) mod heap_pages;
pub(crate) mod listing;
pub(crate) mod palette;
pub(crate) mod parts;
pub(crate) mod rows;
pub(crate) mod sampled;
pub(crate) mod table;
