//! The recording format: chunks, event columns, index and footer. Pure: bytes in, bytes out.
