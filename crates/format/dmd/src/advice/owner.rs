//! The owner of an allocation.

use super::code_class::CodeClass;
use super::frame::{Frame, Name};

/// The function of the program's own that a block is allocated for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name, without arguments.
    pub function: String,
    /// The type whose method it is; `None`: it is a free function, or this is not known.
    pub of_type: Option<String>,
    /// Its `file:line`.
    pub location: Option<String>,
    /// True if it is the program's own; otherwise it is in a library that the program is built of,
    /// since nothing else is on the stack.
    pub is_own: bool,
}

/// The class of a frame, and the owner that it would be. `None`: nothing is known about it.
pub(crate) type KnownFrame<'o> = Option<&'o (CodeClass, Owner)>;

/// Returns the owner of the blocks that a stack allocated, given from the inside.
pub(crate) fn owner_in(stack: &[KnownFrame<'_>]) -> Option<Owner> {
    let at = owner_at(stack)?;
    let (_, owner) = stack[at]?;
    if !owner.is_bare() {
        return Some(owner.clone());
    }
    // An inlined function is mostly in the same source file as the function that it was inlined
    // into.
    let mut outer = stack[at + 1..].iter().flatten().map(|(_, outer)| outer);
    let outer = outer.find(|outer| !outer.is_bare() && outer.file() == owner.file());
    Some(outer.filter(|_| owner.file().is_some()).map_or_else(|| owner.by_file(), |outer| owner.inside(outer)))
}

/// Returns the index of the owner's frame in a stack: the innermost of the best class on the
/// stack. `None`: all frames are library code (of the language, the system or the allocator).
pub(crate) fn owner_at(stack: &[KnownFrame<'_>]) -> Option<usize> {
    let class = |frame: &KnownFrame<'_>| frame.map_or(CodeClass::Library, |(class, _)| *class);
    let (at, best) = stack.iter().enumerate().min_by_key(|(_, frame)| class(frame))?;
    (class(best) != CodeClass::Library).then_some(at)
}

impl Owner {
    pub(crate) fn of(text: &str) -> Owner {
        let frame = Frame::parse(text);
        let is_own = CodeClass::of(text) <= CodeClass::Helper;
        let location = frame.location.map(str::to_owned);
        let name = Name::parse(frame.function);
        let scope = name.whole_scope();
        let function = if scope.is_empty() { name.function.clone() } else { format!("{scope}::{}", name.function) };
        Owner { function, of_type: name.is_of_type().then_some(scope), location, is_own }
    }

    /// Returns its source file.
    pub(crate) fn file(&self) -> Option<&str> {
        Some(self.location.as_ref()?.rsplit_once(':')?.0)
    }

    /// Returns the name for which a reporter would be made.
    pub fn subject(&self) -> &str {
        self.of_type.as_deref().unwrap_or(&self.function)
    }

    /// True if the name does not tell what it is a part of: that of a closure, or of an inlined
    /// function, as debug information has them.
    pub(super) fn is_bare(&self) -> bool {
        self.of_type.is_none() && !self.function.contains("::")
    }

    /// Returns the same place, in the function of an outer frame.
    pub(super) fn inside(&self, outer: &Owner) -> Owner {
        let Owner { function, of_type, .. } = outer.clone();
        Owner { function, of_type, ..self.clone() }
    }

    /// Returns the owner with its file as a name, if the function has no name.
    pub(super) fn by_file(&self) -> Owner {
        match self.file().filter(|_| self.function.starts_with('{')) {
            Some(file) => {
                let from = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
                Owner { function: format!("{} of {}", self.function, &file[from..]), ..self.clone() }
            }
            None => self.clone(),
        }
    }
}

/// `function (file:line)`, with no more of the file's path than its last two parts.
impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.function)?;
        let Some(location) = &self.location else { return Ok(()) };
        let from = location.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
        write!(f, " ({})", &location[from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_named() {
        let owner = Owner::of("<store::db::Db>::set::{closure#0} (/home/me/store/src/db.rs:142)");
        assert_eq!(owner.to_string(), "store::db::Db::set (src/db.rs:142)");
        assert_eq!((owner.subject(), owner.file()), ("store::db::Db", Some("/home/me/store/src/db.rs")));
        assert_eq!(Owner::of("store::fill<int>(int) (a.cc:7)").subject(), "store::fill");
    }
}
