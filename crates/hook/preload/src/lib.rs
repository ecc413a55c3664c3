//! The preload library: exports the malloc family and the bridge symbol.
