//! Stack capture inside malloc: rule cache over .eh_frame, verified memo, stack-tree interning.
