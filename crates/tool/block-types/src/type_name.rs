//! Names of types, full and short.

use std::fmt;
use std::sync::Arc;

/// The name of a type. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeName {
    full: Arc<str>,
    short: Arc<str>,
}

impl TypeName {
    /// Makes a name from a normal spelling, which is used as the full and the short one.
    pub fn plain(name: &str) -> Self {
        let name: Arc<str> = name.into();
        Self { full: name.clone(), short: name }
    }

    pub(crate) fn spelled(full: &str, short: &str) -> Self {
        if full == short {
            return Self::plain(full);
        }
        Self { full: full.into(), short: short.into() }
    }

    pub(crate) fn shared(full: Arc<str>, short: Arc<str>) -> Self {
        Self { full, short }
    }

    /// Returns the full and the short spelling.
    pub(crate) fn parts(&self) -> (&Arc<str>, &Arc<str>) {
        (&self.full, &self.short)
    }

    /// Returns the normal spelling, which is the same whatever the mangling and level of debug
    /// information. For Rust it is that of [`std::any::type_name`], but closures have their number.
    pub fn full(&self) -> &str {
        &self.full
    }

    /// Returns the spelling without paths and default arguments: for tables.
    pub fn short(&self) -> &str {
        &self.short
    }

    /// Returns the name of a buffer of these: `[T]`.
    pub fn buffer(&self) -> Self {
        Self::spelled(&format!("[{}]", self.full), &format!("[{}]", self.short))
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.full())
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.full(), f)
    }
}
