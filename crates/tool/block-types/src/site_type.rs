//! The type of the blocks that a site allocates: the answer, and how certain it is.

use std::fmt;
use std::sync::Arc;

use crate::type_name::TypeName;

/// The type of the blocks that a site allocates.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteType {
    /// The exact type of a block; a buffer of `T` is spelled `[T]`. `None`: unknown.
    pub block: Option<TypeName>,
    /// The type of the elements if the block is a buffer, a table or a node.
    pub element: Option<TypeName>,
    /// The container that the block belongs to, `Vec<Token>`, or the function of it that was
    /// called: `HashMap<Key, Token>::insert`.
    pub container: Option<Arc<str>>,
    /// How certain the type is.
    pub confidence: Confidence,
    /// The evidence for the type.
    pub evidence: Evidence,
    /// The possible types if the evidence is ambiguous.
    pub candidates: Vec<TypeName>,
    /// Bytes of the element, or of the block if it has no element; `None` if unknown.
    pub size: Option<u64>,
    /// The result of comparing the blocks' sizes with the type's.
    pub size_check: SizeCheck,
    /// The index of the stack's place that gave the type, and so of the binary that it is from.
    pub module: Option<usize>,
}

impl SiteType {
    /// Returns the answer for an unknown type.
    pub fn unknown() -> Self {
        Self {
            block: None,
            element: None,
            container: None,
            confidence: Confidence::Unknown,
            evidence: Evidence::None,
            candidates: Vec::new(),
            size: None,
            size_check: SizeCheck::NotPossible,
            module: None,
        }
    }
}

/// The certainty of a type, the most certain first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// The evidence names the type and no other, and no size contradicts it.
    Exact,
    /// The evidence allows another type, but the sizes agree with this one.
    SizeConsistent,
    /// The evidence names several types, or a size contradicts it.
    Ambiguous,
    /// A guess from the surroundings, such as source text or the name of a C function.
    Probable,
    /// The type is unknown.
    Unknown,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exact => "exact",
            Self::SizeConsistent => "size-consistent",
            Self::Ambiguous => "ambiguous",
            Self::Probable => "probable",
            Self::Unknown => "unknown",
        })
    }
}

/// The evidence from which a type was concluded. Displays as plain words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The type arguments of a function that was inlined there, from the debug information.
    Inlined(Arc<str>),
    /// The type arguments of the physical function.
    Function(Arc<str>),
    /// A template parameter, by its name: `_Tp`.
    TemplateParameter(Arc<str>),
    /// The constructor that runs right after the call.
    Constructor,
    /// The text of the source line.
    SourceText,
    /// The variable that receives the result, by its name.
    Variable(Arc<str>),
    /// The name of the function in the symbol table.
    SymbolName(Arc<str>),
    /// The C function that allocates for its caller, by its name.
    CFunction(Arc<str>),
    /// No evidence.
    None,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inlined(function) => write!(f, "inlined {function}"),
            Self::Function(function) => write!(f, "function {function}"),
            Self::TemplateParameter(name) => write!(f, "template parameter {name}"),
            Self::Constructor => f.write_str("constructor after the call"),
            Self::SourceText => f.write_str("source text"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::SymbolName(name) => write!(f, "symbol {name}"),
            Self::CFunction(name) => write!(f, "C function {name}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// The result of comparing the sizes of blocks with a type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SizeCheck {
    /// The sizes agree with the type.
    Consistent,
    /// The sizes contradict the type; the reason in plain words: "40 bytes in 1 block, but Foo has
    /// 24".
    Inconsistent(Box<str>),
    /// The size of the type is unknown, or allows no conclusion.
    NotPossible,
}
