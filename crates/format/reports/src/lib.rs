//! The one tree printer.
