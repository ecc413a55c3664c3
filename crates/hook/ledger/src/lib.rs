//! The one state machine: block register, per-site totals, peaks and temporaries.
