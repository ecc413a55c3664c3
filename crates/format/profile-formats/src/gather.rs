//! Building a profile while reading: places and stacks, each once.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::profile::{Amounts, Frame, Location, Module, Profile, Sample};

/// Names and values.
pub(crate) type Labels = Vec<(Cow<'static, str>, String)>;

/// The addresses of modules: the end of each, and its index, by its start.
#[derive(Debug, Default)]
pub(crate) struct Loaded(BTreeMap<u64, (u64, usize)>);

impl Loaded {
    /// Adds a module, or a part of one. The first one at an address counts.
    pub(crate) fn insert(&mut self, start: u64, end: u64, module: usize) {
        self.0.entry(start).or_insert((end, module));
    }

    /// Returns the module that an address is in.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let (_, &(end, module)) = self.0.range(..=address).next_back()?;
        (address < end).then_some(module)
    }

    /// True if everything in `other` is here, too, at the same addresses.
    #[cfg(feature = "readers")]
    pub(crate) fn has_all_of(&self, other: &Loaded) -> bool {
        other.0.iter().all(|(start, part)| self.0.get(start) == Some(part))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Numbers places and stacks.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    pub(crate) profile: Profile,
    locations: HashMap<Location, usize>,
    samples: HashMap<(Vec<usize>, Labels), usize>,
    loaded: Loaded,
    /// The number of places in stacks that were [walked](Gather::walk).
    walked: usize,
}

/// The most places that all stacks from trees may have together: a short file can have many long
/// stacks in a tree.
const WALKED_MAX: usize = 1 << 25;

impl Gather {
    /// Returns the number of a place.
    pub(crate) fn location(&mut self, location: Location) -> usize {
        let locations = &mut self.profile.locations;
        *self.locations.entry(location).or_insert_with_key(|location| {
            locations.push(location.clone());
            locations.len() - 1
        })
    }

    /// Sets the modules and their addresses.
    pub(crate) fn set_modules(&mut self, modules: Vec<Module>) {
        for (at, module) in modules.iter().enumerate() {
            self.loaded.insert(module.start, module.end, at);
        }
        self.profile.modules = modules;
    }

    /// Returns the number of the call with a return address.
    pub(crate) fn call(&mut self, returns_to: u64) -> usize {
        self.named_call(returns_to, &HashMap::new())
    }

    /// Returns the number of the call with a return address, with the functions known for calls'
    /// own addresses.
    pub(crate) fn named_call(&mut self, returns_to: u64, names: &HashMap<u64, Vec<Frame>>) -> usize {
        let address = returns_to.wrapping_sub(1);
        let module = self.loaded.find(address);
        self.location(Location { module, address, frames: names.get(&address).cloned().unwrap_or_default() })
    }

    /// Returns the places of a stack that is given as a path in a tree, from the innermost
    /// outwards.
    pub(crate) fn walk(&mut self, outwards: impl Iterator<Item = usize>) -> Result<Vec<usize>, &'static str> {
        let room = WALKED_MAX - self.walked;
        let stack: Vec<usize> = outwards.take(room + 1).collect();
        if stack.len() > room {
            return Err("there are more stacks, or longer ones, than there is room for");
        }
        self.walked += stack.len();
        Ok(stack)
    }

    /// Returns the amounts of a stack, to be added to.
    pub(crate) fn amounts(&mut self, locations: Vec<usize>, labels: Labels) -> &mut Amounts {
        let at = self.sample(locations, labels);
        &mut self.profile.samples[at].amounts
    }

    /// Returns the number of a stack.
    pub(crate) fn sample(&mut self, locations: Vec<usize>, labels: Labels) -> usize {
        let samples = &mut self.profile.samples;
        *self.samples.entry((locations, labels)).or_insert_with_key(|(locations, labels)| {
            let (locations, labels) = (locations.clone(), labels.clone());
            samples.push(Sample { locations, labels, amounts: Amounts::default() });
            samples.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_walked_is_bounded() {
        let mut gather = Gather { walked: WALKED_MAX - 10, ..Gather::default() };
        assert_eq!(gather.walk(0..6).unwrap().len(), 6);
        assert!(gather.walk(std::iter::repeat(0)).is_err());
        assert!(gather.walk(0..4).is_ok() && gather.walk(0..1).is_err());
    }
}
