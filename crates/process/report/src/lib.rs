//! Memory reporters: the parts of a program say how much memory they hold.
