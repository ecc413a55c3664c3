//! Whose code allocates.

use super::frame::{Frame, Name};
use super::whose::Whose;

/// The function of the program's own that a block is allocated for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name, without arguments.
    pub function: String,
    /// The type whose method it is; `None`: it is a function alone, or nobody knows.
    pub of_type: Option<String>,
    /// Its `file:line`.
    pub place: Option<String>,
    /// The program's own; otherwise of a library that it is built of, since nothing else is on the stack.
    pub is_own: bool,
}

/// A frame of a stack: whose it is, and the owner that it would be. `None`: nothing is known of it.
pub(crate) type KnownFrame<'o> = Option<&'o (Whose, Owner)>;

/// Returns whose the blocks are that were allocated at a stack, given from the inside.
pub(crate) fn owner_in(stack: &[KnownFrame<'_>]) -> Option<Owner> {
    let at = owner_at(stack)?;
    let (_, owner) = stack[at]?;
    if !owner.is_bare() {
        return Some(owner.clone());
    }
    // An inlined function is mostly in the source file of the one that it was inlined in.
    let mut outer = stack[at + 1..].iter().flatten().map(|(_, outer)| outer);
    let outer = outer.find(|outer| !outer.is_bare() && outer.file() == owner.file());
    Some(outer.filter(|_| owner.file().is_some()).map_or_else(|| owner.by_file(), |outer| owner.inside(outer)))
}

/// Returns which frame of a stack is the owner's: the innermost of the best there are, and none of
/// the language's.
pub(crate) fn owner_at(stack: &[KnownFrame<'_>]) -> Option<usize> {
    let whose = |frame: &KnownFrame<'_>| frame.map_or(Whose::Library, |(whose, _)| *whose);
    let (at, best) = stack.iter().enumerate().min_by_key(|(_, frame)| whose(frame))?;
    (whose(best) != Whose::Library).then_some(at)
}

impl Owner {
    pub(crate) fn of(text: &str) -> Owner {
        let frame = Frame::parse(text);
        let is_own = Whose::of(text) <= Whose::Helper;
        let place = frame.place.map(str::to_owned);
        let name = Name::parse(frame.function);
        let scope = name.whole_scope();
        let function = if scope.is_empty() { name.function.clone() } else { format!("{scope}::{}", name.function) };
        Owner { function, of_type: name.is_of_type().then_some(scope), place, is_own }
    }

    /// The file that it is in.
    pub(crate) fn file(&self) -> Option<&str> {
        Some(self.place.as_ref()?.rsplit_once(':')?.0)
    }

    /// What a reporter would be of.
    pub fn subject(&self) -> &str {
        self.of_type.as_deref().unwrap_or(&self.function)
    }

    /// Whether the name says nothing of what it is a part of: that of a closure, or of a function that was inlined, as debug
    /// information has them.
    pub(super) fn is_bare(&self) -> bool {
        self.of_type.is_none() && !self.function.contains("::")
    }

    /// The same place, in a function that one further out has the name of.
    pub(super) fn inside(&self, outer: &Owner) -> Owner {
        let Owner { function, of_type, .. } = outer.clone();
        Owner { function, of_type, ..self.clone() }
    }

    /// By what a function of no name is known: where it is.
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
        let Some(place) = &self.place else { return Ok(()) };
        let from = place.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
        write!(f, " ({})", &place[from..])
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
