//! Real browsers, driven by small clients of their own protocols.

pub(crate) mod marionette;
