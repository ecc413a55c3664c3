//! Questions asked of a recording: totals, sites, trees, leaks, temporaries.
