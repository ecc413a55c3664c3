//! Collapsed stacks: a line `outer;…;inner FIGURE` for each, which flame graph tools, Speedscope,
//! Perfetto and the Firefox Profiler read.

use std::collections::BTreeMap;
use std::io::{self, Write};

mod read;

use crate::calls::{Call, on_one_line};
use crate::holds::Holds;
use crate::profile::{Known, Profile};

pub use read::{detects, read};

/// One figure of each stack.
pub const HOLDS: Holds = Holds {
    amounts: Known { allocated: true, temporaries: true, live: true, ..Known::NONE },
    one_figure: true,
    blocks: true,
    names: true,
    ..Holds::STACKS
};

/// Stacks as lines, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(BTreeMap<String, u64>);

impl Lines {
    /// Returns the lines of a profile, for stacks whose [shown](Profile::shown) figure is not 0.
    pub fn of(profile: &Profile) -> Lines {
        let mut lines = Lines::default();
        for sample in &profile.samples {
            let calls = Call::of(profile, sample);
            lines.add(calls.iter().rev().map(Call::name), profile.shown.of(&sample.amounts));
        }
        lines
    }

    /// Adds a stack, the outermost function first. A stack with a figure of 0 is left out.
    pub fn add(&mut self, functions: impl IntoIterator<Item = impl AsRef<str>>, figure: u64) {
        if figure == 0 {
            return;
        }
        let mut line = String::new();
        for function in functions {
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(&Lines::name(function.as_ref()));
        }
        let sum = self.0.entry(line).or_insert(0);
        *sum = sum.saturating_add(figure);
    }

    /// Returns a function's name for a line, without semicolons and line feeds, which separate
    /// functions and stacks.
    pub fn name(function: &str) -> String {
        on_one_line(function).replace(';', ":")
    }

    /// Returns each stack, `outer;…;inner`, and its figure.
    pub fn stacks(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(stack, figure)| (&**stack, *figure))
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lines, in their own order.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(stack, figure)| format!("{stack} {figure}"))
    }

    /// Writes the lines.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0.iter().try_for_each(|(stack, figure)| writeln!(out, "{stack} {figure}"))
    }
}

/// Writes the file. Takes memory in proportion to the profile.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    Lines::of(profile).write(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Figure;
    use crate::testing::{example, written};

    #[test]
    fn one_figure_of_each_stack() {
        let mut profile = example();
        let text = |profile: &Profile| String::from_utf8(written(write, profile)).unwrap();
        assert_eq!(text(&profile), "[no stack] 7\nmain;inlined : parse  it;0x1fff 3\nmain;outer;inner 96\n");
        profile.shown = Figure::Allocations;
        assert_eq!(text(&profile), "[no stack] 1\nmain;inlined : parse  it;0x1fff 3\nmain;outer;inner 12\n");
    }
}
