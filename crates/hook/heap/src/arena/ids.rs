//! The ids of arenas, as programs have them.

/// The id of an arena: a random number, so that the id of an arena that was disposed of is not that
/// of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ArenaId(u64);

impl ArenaId {
    /// Returns an id for the number that [`ArenaId::to_raw`] returned. Functions abort the program
    /// if no arena has it.
    pub const fn from_raw(id: u64) -> ArenaId {
        ArenaId(id)
    }

    /// Returns the id as a number, which is not 0.
    pub const fn to_raw(self) -> u64 {
        self.0
    }
}
