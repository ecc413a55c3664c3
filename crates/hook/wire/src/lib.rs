//! How the observed program and the collector talk: session handshake, shared-memory rings and event encoding.
