//! One spelling of a type's name, whatever its source.

use crate::cxx_name;
use crate::language::Language;
use crate::rust::name::Type;
use crate::type_name::TypeName;

impl TypeName {
    /// Makes a name from the spelling of the debug information, a demangler or a program itself.
    pub fn new(language: Language, spelled: &str) -> Self {
        match language {
            Language::Rust => Type::parse(spelled).name(),
            Language::Cxx => cxx_name::name(spelled),
            Language::C => Self::plain(&spelled.replace(" *", "*")),
            Language::Other => Self::plain(spelled),
        }
    }
}
