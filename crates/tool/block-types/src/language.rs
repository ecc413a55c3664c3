//! Languages of code.

use heapledger_symbols::demangle;

/// The language of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Rust.
    Rust,
    /// C++.
    Cxx,
    /// C, and assembly.
    C,
    /// Another language, or unknown.
    Other,
}

impl Language {
    /// Returns the language that the debug information names.
    pub(crate) fn of_unit(language: gimli::DwLang) -> Self {
        match language {
            gimli::DW_LANG_Rust => Self::Rust,
            gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20 => Self::Cxx,
            gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
            | gimli::DW_LANG_Mips_Assembler => Self::C,
            _ => Self::Other,
        }
    }

    /// Returns the language by the mangling of a symbol.
    pub(crate) fn of_symbol(name: &[u8]) -> Self {
        if name.starts_with(b"_R") || demangle::is_legacy_rust(name) || name.starts_with(b"__rust_") {
            Self::Rust
        } else if demangle::is_mangled(name) {
            Self::Cxx
        } else {
            Self::C
        }
    }
}
