//! Columns.
