//! The language of breakdowns: how a census groups nodes, and the figures it gives for each group.
//!
//! It is the language of SpiderMonkey's `takeCensus`, whose text form is JSON, with two additions.
//! An array of breakdowns counts each node by all of them; the engine documents it and does not
//! implement it. `descriptiveType` has a child `other`, as Firefox's memory tool writes it.
//!
//! ```text
//! { "by": "coarseType", "objects": { "by": "objectClass" }, "other": { "by": "internalType" } }
//! ```

mod json;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

/// A breakdown: groups nodes, or ends a branch of groups with the figures of one group.
///
/// A child that the text form leaves out is [`Breakdown::count`]. Nesting is bounded, since
/// [`check`](Breakdown::check) rejects a word that is within itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breakdown {
    /// Ends a branch with figures: the number of nodes, and the sum of their sizes in bytes.
    Count {
        /// True if the number of nodes is in the result.
        count: bool,
        /// True if the sum of sizes is in the result.
        bytes: bool,
        /// A text that is copied to the result.
        label: Option<String>,
    },
    /// Ends a branch with the ids of its nodes, in the order of the census.
    Bucket,
    /// Groups nodes by their class.
    ObjectClass {
        /// Applies within each class.
        then: Box<Breakdown>,
        /// Applies to nodes without a class.
        other: Box<Breakdown>,
    },
    /// Groups nodes by their coarse type.
    CoarseType(Box<CoarseTypes>),
    /// Groups nodes by their type name.
    InternalType {
        /// Applies within each type.
        then: Box<Breakdown>,
    },
    /// Groups nodes by their descriptive name, which is the node name of DOM nodes.
    DescriptiveType {
        /// Applies within each name.
        then: Box<Breakdown>,
        /// Applies to nodes without a descriptive name.
        other: Box<Breakdown>,
    },
    /// Groups nodes by the stack that allocated them.
    AllocationStack {
        /// Applies within each stack.
        then: Box<Breakdown>,
        /// Applies to nodes without a stack.
        no_stack: Box<Breakdown>,
    },
    /// Groups nodes by the file of their script.
    Filename {
        /// Applies within each file.
        then: Box<Breakdown>,
        /// Applies to nodes without a file.
        no_filename: Box<Breakdown>,
    },
    /// Counts each node by each of these breakdowns.
    All(Vec<Breakdown>),
}

/// The breakdowns within each coarse type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoarseTypes {
    /// Applies to objects.
    pub objects: Breakdown,
    /// Applies to scripts, which are code in all its forms.
    pub scripts: Breakdown,
    /// Applies to strings.
    pub strings: Breakdown,
    /// Applies to everything else.
    pub other: Breakdown,
    /// Applies to DOM nodes.
    pub dom_node: Breakdown,
}

/// A word that groups nodes, which is the value of `by` in the text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// No group: the figures of all nodes.
    Count,
    /// No group: the ids of all nodes.
    Bucket,
    /// The class.
    ObjectClass,
    /// The coarse type.
    CoarseType,
    /// The type name.
    InternalType,
    /// The descriptive name.
    DescriptiveType,
    /// The stack that allocated the node.
    AllocationStack,
    /// The file of the script.
    Filename,
}

/// The reasons why a breakdown is rejected.
///
/// Their texts are those of the engine, as far as it has the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakdownError {
    /// The text is not JSON.
    Json(String),
    /// `by` has a value that is not a word of the language. The value is quoted as in the message.
    Unrecognized(String),
    /// A word is within itself. The word is quoted as in the message.
    Nested(String),
    /// A breakdown is `null`.
    Null,
    /// A list of words goes on after this one, which has no groups.
    NoGroups(By),
    /// A list of words is empty.
    Empty,
}

impl Breakdown {
    /// Returns the breakdown without groups: the number of nodes, and their bytes.
    pub const fn count() -> Breakdown {
        Breakdown::Count { count: true, bytes: true, label: None }
    }

    /// Returns a breakdown by class, with `then` within each. Other nodes are counted.
    pub fn object_class(then: Breakdown) -> Breakdown {
        Breakdown::ObjectClass { then: Box::new(then), other: Box::new(Breakdown::count()) }
    }

    /// Returns a breakdown by coarse type, with a copy of `then` within each.
    pub fn coarse_type(then: Breakdown) -> Breakdown {
        Breakdown::CoarseType(Box::new(CoarseTypes {
            objects: then.clone(),
            scripts: then.clone(),
            strings: then.clone(),
            other: then.clone(),
            dom_node: then,
        }))
    }

    /// Returns a breakdown by type name, with `then` within each.
    pub fn internal_type(then: Breakdown) -> Breakdown {
        Breakdown::InternalType { then: Box::new(then) }
    }

    /// Returns a breakdown by descriptive name, with `then` within each. Other nodes are counted.
    pub fn descriptive_type(then: Breakdown) -> Breakdown {
        Breakdown::DescriptiveType { then: Box::new(then), other: Box::new(Breakdown::count()) }
    }

    /// Returns a breakdown by stack, with `then` within each. Nodes without a stack are counted.
    pub fn allocation_stack(then: Breakdown) -> Breakdown {
        Breakdown::AllocationStack { then: Box::new(then), no_stack: Box::new(Breakdown::count()) }
    }

    /// Returns a breakdown by file, with `then` within each. Nodes without a file are counted.
    pub fn filename(then: Breakdown) -> Breakdown {
        Breakdown::Filename { then: Box::new(then), no_filename: Box::new(Breakdown::count()) }
    }

    /// Replaces the breakdown of nodes that belong to none of the groups.
    ///
    /// Has no effect on breakdowns whose groups hold all nodes.
    #[must_use]
    pub fn or_else(mut self, rest: Breakdown) -> Breakdown {
        match &mut self {
            Breakdown::ObjectClass { other, .. } | Breakdown::DescriptiveType { other, .. } => **other = rest,
            Breakdown::AllocationStack { no_stack, .. } => **no_stack = rest,
            Breakdown::Filename { no_filename, .. } => **no_filename = rest,
            Breakdown::Count { .. }
            | Breakdown::Bucket
            | Breakdown::CoarseType(_)
            | Breakdown::InternalType { .. }
            | Breakdown::All(_) => {}
        }
        self
    }

    /// Returns the breakdown by the first word, within each group by the second, and so on.
    ///
    /// The next word applies to nodes that belong to no group, too.
    ///
    /// # Errors
    ///
    /// Fails if `words` is empty, has a word twice, or goes on after a word without groups.
    pub fn nested(words: &[By]) -> Result<Breakdown, BreakdownError> {
        for (index, word) in words.iter().enumerate() {
            if words[..index].contains(word) {
                return Err(BreakdownError::Nested(json::quoted(word.name())));
            }
        }
        let Some((last, before)) = words.split_last() else { return Err(BreakdownError::Empty) };
        if let Some(word) = before.iter().find(|word| matches!(word, By::Count | By::Bucket)) {
            return Err(BreakdownError::NoGroups(*word));
        }
        let mut breakdown = last.with(Breakdown::count());
        for word in before.iter().rev() {
            breakdown = word.with(breakdown);
        }
        Ok(breakdown)
    }

    /// Returns a copy in which each figure is replaced by the ids of the nodes.
    pub fn with_buckets(&self) -> Breakdown {
        let inner = |child: &Breakdown| Box::new(child.with_buckets());
        match self {
            Breakdown::Count { .. } | Breakdown::Bucket => Breakdown::Bucket,
            Breakdown::ObjectClass { then, other } => Breakdown::ObjectClass { then: inner(then), other: inner(other) },
            Breakdown::CoarseType(types) => Breakdown::CoarseType(Box::new(CoarseTypes {
                objects: types.objects.with_buckets(),
                scripts: types.scripts.with_buckets(),
                strings: types.strings.with_buckets(),
                other: types.other.with_buckets(),
                dom_node: types.dom_node.with_buckets(),
            })),
            Breakdown::InternalType { then } => Breakdown::InternalType { then: inner(then) },
            Breakdown::DescriptiveType { then, other } => {
                Breakdown::DescriptiveType { then: inner(then), other: inner(other) }
            }
            Breakdown::AllocationStack { then, no_stack } => {
                Breakdown::AllocationStack { then: inner(then), no_stack: inner(no_stack) }
            }
            Breakdown::Filename { then, no_filename } => {
                Breakdown::Filename { then: inner(then), no_filename: inner(no_filename) }
            }
            Breakdown::All(list) => Breakdown::All(list.iter().map(Breakdown::with_buckets).collect()),
        }
    }

    /// Checks that no word is within itself, as the engine does for the text form.
    ///
    /// # Errors
    ///
    /// Fails with [`BreakdownError::Nested`] for the first word that is.
    pub fn check(&self) -> Result<(), BreakdownError> {
        check_path(self, &mut Vec::new())
    }

    /// Returns the word by which this groups, or `None` for [`Breakdown::All`].
    pub fn by(&self) -> Option<By> {
        Some(match self {
            Breakdown::Count { .. } => By::Count,
            Breakdown::Bucket => By::Bucket,
            Breakdown::ObjectClass { .. } => By::ObjectClass,
            Breakdown::CoarseType(_) => By::CoarseType,
            Breakdown::InternalType { .. } => By::InternalType,
            Breakdown::DescriptiveType { .. } => By::DescriptiveType,
            Breakdown::AllocationStack { .. } => By::AllocationStack,
            Breakdown::Filename { .. } => By::Filename,
            Breakdown::All(_) => return None,
        })
    }

    /// Returns the children, in the order in which the engine reads them.
    pub fn children(&self) -> Vec<&Breakdown> {
        match self {
            Breakdown::Count { .. } | Breakdown::Bucket => Vec::new(),
            Breakdown::ObjectClass { then, other } | Breakdown::DescriptiveType { then, other } => vec![then, other],
            Breakdown::CoarseType(types) => {
                vec![&types.objects, &types.scripts, &types.strings, &types.other, &types.dom_node]
            }
            Breakdown::InternalType { then } => vec![then],
            Breakdown::AllocationStack { then, no_stack } => vec![then, no_stack],
            Breakdown::Filename { then, no_filename } => vec![then, no_filename],
            Breakdown::All(list) => list.iter().collect(),
        }
    }
}

/// Returns the engine's default: by coarse type, objects within it by class, DOM nodes by name,
/// everything else by type name.
impl Default for Breakdown {
    fn default() -> Breakdown {
        Breakdown::CoarseType(Box::new(CoarseTypes {
            objects: Breakdown::object_class(Breakdown::count()),
            scripts: Breakdown::count(),
            strings: Breakdown::count(),
            other: Breakdown::internal_type(Breakdown::count()),
            dom_node: Breakdown::descriptive_type(Breakdown::count()),
        }))
    }
}

fn check_path(breakdown: &Breakdown, path: &mut Vec<By>) -> Result<(), BreakdownError> {
    let by = breakdown.by();
    if let Some(by) = by {
        if path.contains(&by) {
            return Err(BreakdownError::Nested(json::quoted(by.name())));
        }
        path.push(by);
    }
    for child in breakdown.children() {
        check_path(child, path)?;
    }
    if by.is_some() {
        path.pop();
    }
    Ok(())
}

impl By {
    /// All words, in the order of the documentation.
    pub const ALL: [By; 8] = [
        By::Count,
        By::Bucket,
        By::ObjectClass,
        By::CoarseType,
        By::InternalType,
        By::DescriptiveType,
        By::AllocationStack,
        By::Filename,
    ];

    /// Returns the word as it is in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            By::Count => "count",
            By::Bucket => "bucket",
            By::ObjectClass => "objectClass",
            By::CoarseType => "coarseType",
            By::InternalType => "internalType",
            By::DescriptiveType => "descriptiveType",
            By::AllocationStack => "allocationStack",
            By::Filename => "filename",
        }
    }

    /// Returns the breakdown by this word, with `then` for nodes with a group and without.
    fn with(self, then: Breakdown) -> Breakdown {
        match self {
            By::Count => Breakdown::count(),
            By::Bucket => Breakdown::Bucket,
            By::ObjectClass => Breakdown::object_class(then.clone()).or_else(then),
            By::CoarseType => Breakdown::coarse_type(then),
            By::InternalType => Breakdown::internal_type(then),
            By::DescriptiveType => Breakdown::descriptive_type(then.clone()).or_else(then),
            By::AllocationStack => Breakdown::allocation_stack(then.clone()).or_else(then),
            By::Filename => Breakdown::filename(then.clone()).or_else(then),
        }
    }
}

/// Reads a word as it is in the text form.
impl FromStr for By {
    type Err = BreakdownError;

    fn from_str(text: &str) -> Result<By, BreakdownError> {
        By::ALL.into_iter().find(|by| by.name() == text).ok_or_else(|| BreakdownError::Unrecognized(json::quoted(text)))
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for BreakdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BreakdownError::Json(reason) => write!(f, "the breakdown is not JSON: {reason}"),
            BreakdownError::Unrecognized(by) => {
                write!(f, "unrecognized 'by' value in takeCensus breakdown: {by}")
            }
            BreakdownError::Nested(by) => {
                write!(f, "takeCensus breakdown 'by' value nested within itself: {by}")
            }
            BreakdownError::Null => f.write_str("can't convert null to object"),
            BreakdownError::NoGroups(by) => write!(f, "`{by}` has no groups, so no word can follow it"),
            BreakdownError::Empty => f.write_str("there is no word to group by"),
        }
    }
}

impl std::error::Error for BreakdownError {}
