//! Protobuf.
