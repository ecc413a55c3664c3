//! The use that a function makes of a block right after the call that returned it: it constructs
//! objects, and stores the address in a variable.

use std::sync::Arc;

use crate::frame::{Constructed, Received};
use crate::language::Language;
use crate::machine_code::{WINDOW, stored_at};
use crate::spelled::Spelled;
use crate::type_name::TypeName;

/// Bytes after the return address within which the range of the variable that holds the result must
/// begin: some moves, and a test.
const MOVES: u64 = 24;

/// A function with code of its own: the functions inlined into it, and its variables.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) constructors: Vec<Constructor>,
    pub(crate) variables: Vec<Variable>,
    /// The offset from the frame pointer of the address that variables' locations are relative to.
    pub(crate) frame_base: Option<i64>,
}

/// A constructor that was inlined.
#[derive(Debug)]
pub(crate) struct Constructor {
    /// The address of its code.
    pub(crate) start: u64,
    pub(crate) class: Arc<Spelled>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

/// A pointer in one of the places where it is kept.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    pub(crate) place: Place,
    pub(crate) pointee: Spelled,
}

/// The place of a variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this offset from the frame base.
    Frame(i64),
    /// In a register from this address on.
    Register(u64),
}

impl Body {
    /// Returns the classes that are constructed after `address`, nearest first.
    pub(crate) fn constructed(&self, address: u64) -> Vec<Constructed> {
        let found =
            self.constructors.iter().filter(|found| (address..address.saturating_add(WINDOW)).contains(&found.start));
        found
            .map(|found| Constructed {
                class: TypeName::new(Language::Cxx, &found.class.0),
                size: found.class.1,
                distance: (found.start - address) as u32,
                line: found.line,
                column: found.column,
            })
            .collect()
    }

    /// Returns the variable that the code after `address` stores the result in.
    pub(crate) fn received(&self, address: u64, code: &[u8], language: Language) -> Option<Received> {
        let stored = stored_at(code).zip(self.frame_base).and_then(|(stored, base)| stored.checked_sub(base));
        let in_frame = |variable: &&Variable| stored.is_some_and(|stored| variable.place == Place::Frame(stored));
        let in_register = |variable: &Variable| match variable.place {
            Place::Register(from) => from.checked_sub(address).filter(|&distance| distance < MOVES),
            Place::Frame(_) => None,
        };
        let nearest = || {
            let near = self.variables.iter().filter_map(|variable| Some((in_register(variable)?, variable)));
            near.min_by_key(|(distance, _)| *distance).map(|(_, variable)| variable)
        };
        let found = self.variables.iter().find(in_frame).or_else(nearest)?;
        Some(Received {
            variable: found.name.clone(),
            type_name: TypeName::new(language, &found.pointee.0),
            size: found.pointee.1,
        })
    }
}
