//! The types of blocks as they are known in a session, and how sure they are.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use heapledger_block_types::{Confidence, SiteSizes, SiteType, TypeName};
use heapledger_recording::ModuleId;

use crate::functions::Location;
use crate::pattern::Pattern;
use crate::stacks::StackFrame;

/// The part of a block's type that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TypeBy {
    /// The type of the whole block: for a buffer of `T`, `[T]`.
    #[default]
    Block,
    /// The type of which the block has one or many: for a buffer of `T`, `T`.
    Element,
    /// The container that the block belongs to. A block that is in none stands for itself.
    Container,
}

/// A type of the session, or a container. Types with the same full name are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

/// The name of the type of blocks about which nothing is known.
pub const UNKNOWN_TYPE: &str = "[unknown]";

/// The certainty of a type, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Certainty {
    /// The program stamped the block.
    Stamped,
    /// The type was inferred.
    Inferred(Confidence),
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Certainty::Stamped => f.pad("stamped"),
            Certainty::Inferred(confidence) => confidence.fmt(f),
        }
    }
}

/// The stamp of a program on a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its type.
    pub name: TypeName,
    /// The position in the program that stamps the block.
    pub location: Option<Location>,
    /// The label of the stamp.
    pub label: Option<String>,
}

/// The type of the blocks of a site.
#[derive(Clone, Debug)]
pub struct Typed {
    /// The stamp, which takes precedence.
    pub stamp: Option<Stamp>,
    /// The inferred type.
    pub inferred: Arc<Inferred>,
}

/// The type that was inferred from a stack.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// The type.
    pub site: SiteType,
    /// The module from which it was inferred.
    pub module: Option<ModuleId>,
    /// The totals that were ever allocated there, against which sizes were checked.
    pub sizes: SiteSizes,
}

impl Inferred {
    /// True if anything is known.
    pub fn is_known(&self) -> bool {
        self.site.block.is_some() || !self.site.candidates.is_empty()
    }
}

impl Typed {
    /// Returns the certainty of the type.
    pub fn certainty(&self) -> Certainty {
        match self.stamp {
            Some(_) => Certainty::Stamped,
            None => Certainty::Inferred(self.inferred.site.confidence),
        }
    }

    /// True if anything is known.
    pub fn is_known(&self) -> bool {
        self.stamp.is_some() || self.inferred.is_known()
    }

    /// Returns the name of the type.
    pub fn name(&self, by: TypeBy) -> TypeName {
        if let Some(stamp) = &self.stamp {
            return stamp.name.clone();
        }
        let site = &self.inferred.site;
        let name = match by {
            TypeBy::Block => None,
            TypeBy::Element => site.element.clone(),
            TypeBy::Container => site.container.as_deref().map(|called| TypeName::plain(container(called))),
        };
        name.or_else(|| site.block.clone()).unwrap_or_else(|| TypeName::plain(UNKNOWN_TYPE))
    }

    /// True if a pattern matches one of its names: the block's, the element's or the container's,
    /// in short or in full.
    pub(crate) fn matches(&self, pattern: &Pattern) -> bool {
        let mut names = [TypeBy::Block, TypeBy::Element, TypeBy::Container].into_iter().map(|by| self.name(by));
        names.any(|name| pattern.matches(name.short()) || pattern.matches(name.full()))
    }
}

/// The types of a session that were asked for so far.
#[derive(Debug, Default)]
pub(crate) struct Types {
    /// The totals that every stack ever allocated, whatever context, heap or stamp the blocks have.
    pub(crate) sizes: Option<HashMap<Frames, SiteSizes>>,
    pub(crate) inferred: HashMap<Frames, Arc<Inferred>>,
    /// The ids, by full name.
    ids: HashMap<Box<str>, TypeId>,
}

/// A stack as its frames, which are the same in all profiles, unlike node ids.
pub(crate) type Frames = Box<[StackFrame]>;

impl Types {
    /// Estimates the memory that the types of stacks take, in bytes. Takes a pass over the stacks.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let frames = |frames: &Frames| size_of_val::<[StackFrame]>(frames) + size_of::<Frames>();
        let inferred: usize = self.inferred.keys().map(|key| frames(key) + size_of::<Arc<Inferred>>()).sum();
        let sizes: usize = self.sizes.iter().flatten().map(|(key, _)| frames(key) + size_of::<SiteSizes>()).sum();
        (inferred + self.inferred.len() * size_of::<Inferred>() + sizes) as u64
    }

    /// Returns the id of the type with this name.
    pub(crate) fn id(&mut self, name: &TypeName) -> TypeId {
        let next = TypeId(self.ids.len() as u32);
        *self.ids.entry(name.full().into()).or_insert(next)
    }
}

/// Returns the container of a member function: `Vec<u8>` for `Vec<u8>::push`. Other names are
/// returned as they are.
fn container(called: &str) -> &str {
    let mut depth = 0_usize;
    let mut last = None;
    for (at, character) in called.char_indices() {
        match character {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && called[at..].starts_with("::") => last = Some(at),
            _ => {}
        }
    }
    let around = last.map_or("", |at| &called[..at]);
    let name = around.rsplit("::").next().unwrap_or_default();
    let is_type = around.ends_with('>') || name.starts_with(char::is_uppercase) || name == "string";
    if is_type { around } else { called }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_those_of_what_was_called() {
        for (called, of) in [
            ("HashMap<Key, Vec<Token>>::insert", "HashMap<Key, Vec<Token>>"),
            ("std::map<int, std::vector<long>>::operator[]", "std::map<int, std::vector<long>>"),
            ("String::push_str", "String"),
            ("std::string::append", "std::string"),
            ("Vec<Token>", "Vec<Token>"),
            ("std::make_unique<a::B>", "std::make_unique<a::B>"),
            ("mpsc::channel", "mpsc::channel"),
            ("", ""),
        ] {
            assert_eq!(container(called), of);
        }
    }
}
