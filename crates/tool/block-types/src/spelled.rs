//! Types as they are read.

use std::sync::Arc;

/// A type: its spelling, and its size.
pub(crate) type Spelled = (Arc<str>, Option<u64>);
