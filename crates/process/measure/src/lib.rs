//! How much memory a value owns, asked of the allocator.
