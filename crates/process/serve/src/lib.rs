//! `about:memory` of a program, in a browser.
