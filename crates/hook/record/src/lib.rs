//! The recorder hook: allocator calls become events in this thread's ring.
