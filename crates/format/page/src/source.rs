//! Where measurements come from.

use heapledger_dmd::Log;
use heapledger_reports::Reports;

/// What the page is of: a running program, or nothing but files.
///
/// Its functions are called one at a time, and may take as long as they need: only the page waits.
pub trait Source: Send + Sync {
    /// What the page is of, such as `redis (pid 12)`.
    fn title(&self) -> String;

    /// What can be asked of it.
    fn abilities(&self) -> Abilities;

    /// All reports, now.
    ///
    /// # Errors
    ///
    /// Why there are none, as a sentence.
    fn measure(&self, wish: Wish) -> Result<Reports, String>;

    /// Which blocks are reported, by whom, and which are not, now: what the dark matter detector shows. By default there is
    /// nothing.
    ///
    /// # Errors
    ///
    /// Why there is nothing, as a sentence.
    fn dark_matter(&self, wish: Wish) -> Result<Log, String> {
        let Wish { anonymous: _ } = wish;
        Err("there is no heap here to be looked at".to_owned())
    }

    /// Has the program give back what memory it can spare.
    ///
    /// # Errors
    ///
    /// Why it did not, as a sentence.
    fn minimise(&self) -> Result<(), String>;

    /// What the allocator says of itself, as text.
    ///
    /// # Errors
    ///
    /// Why there is nothing, as a sentence.
    fn allocator(&self) -> Result<String, String>;

    /// Milliseconds since 1970: what a measurement is dated.
    fn now(&self) -> u64;
}

/// What can be asked of a [`Source`]; the page has no buttons for the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// There is a program to be measured.
    pub measure: bool,
    /// Its heap can be looked at, block by block.
    pub dark_matter: bool,
    /// It can be asked to give back memory.
    pub minimise: bool,
    /// Its allocator has something to say.
    pub allocator: bool,
}

/// How to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Leave out what is private.
    pub anonymous: bool,
}

/// No program: what is shown has been loaded. The title is what is shown of it.
#[derive(Clone, Debug)]
pub struct Files(pub String);

impl Source for Files {
    fn title(&self) -> String {
        self.0.clone()
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    fn measure(&self, _: Wish) -> Result<Reports, String> {
        Err("there is no program here to be measured".to_owned())
    }

    fn minimise(&self) -> Result<(), String> {
        Err("there is no program here whose memory could be minimised".to_owned())
    }

    fn allocator(&self) -> Result<String, String> {
        Err("there is no program here with an allocator".to_owned())
    }

    fn now(&self) -> u64 {
        0
    }
}
