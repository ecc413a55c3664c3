//! The functions of a sample one by one, for formats whose places have only one function.

use std::borrow::Cow;

use crate::profile::{Frame, Location, Profile, Sample};

/// A function in a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'p> {
    pub(crate) location: &'p Location,
    pub(crate) frame: &'p Frame,
}

static NO_FRAME: Frame =
    Frame { function: String::new(), full_name: String::new(), known: false, file: String::new(), line: 0 };
static NO_LOCATION: Location = Location { module: None, address: 0, frames: Vec::new() };

impl<'p> Call<'p> {
    /// Returns the functions of a sample, the innermost first: at least one, which stands in for an
    /// unknown stack.
    pub(crate) fn of(profile: &'p Profile, sample: &Sample) -> Vec<Call<'p>> {
        let mut calls = Vec::new();
        for location in sample.locations.iter().filter_map(|&at| profile.locations.get(at)) {
            if location.frames.is_empty() {
                calls.push(Call { location, frame: &NO_FRAME });
            }
            calls.extend(location.frames.iter().map(|frame| Call { location, frame }));
        }
        if calls.is_empty() {
            calls.push(Call { location: &NO_LOCATION, frame: &NO_FRAME });
        }
        calls
    }

    /// Returns the name: never empty, and on one line.
    pub(crate) fn name(&self) -> Cow<'p, str> {
        match (&*self.frame.function, self.location.address) {
            ("", 0) => "[no stack]".into(),
            ("", address) => format!("{address:#x}").into(),
            (name, _) => on_one_line(name),
        }
    }
}

/// Returns a text without control characters.
pub(crate) fn on_one_line(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) { text.replace(char::is_control, " ").into() } else { text.into() }
}
