//! A profile as it is read: places and stacks, each once.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::profile::{Amounts, Frame, Location, Module, Profile, Sample};

/// Names and values.
pub(crate) type Labels = Vec<(Cow<'static, str>, String)>;

/// Where modules are: where each ends, and its index, by the address where it begins.
#[derive(Debug, Default)]
pub(crate) struct Loaded(BTreeMap<u64, (u64, usize)>);

impl Loaded {
    /// Adds a module, or a part of one. Of those at one address the first counts.
    pub(crate) fn insert(&mut self, start: u64, end: u64, module: usize) {
        self.0.entry(start).or_insert((end, module));
    }

    /// The module that an address is in.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let (_, &(end, module)) = self.0.range(..=address).next_back()?;
        (address < end).then_some(module)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Gives numbers to places and stacks.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    pub(crate) profile: Profile,
    locations: HashMap<Location, usize>,
    samples: HashMap<(Vec<usize>, Labels), usize>,
    loaded: Loaded,
    /// How many places stacks have that were [walked](Gather::walk).
    walked: usize,
}

/// How many places all stacks may have together that are told as trees, of which a short file can tell many long ones.
const WALKED_MAX: usize = 1 << 25;

impl Gather {
    /// The number of a place.
    pub(crate) fn location(&mut self, location: Location) -> usize {
        let locations = &mut self.profile.locations;
        *self.locations.entry(location).or_insert_with_key(|location| {
            locations.push(location.clone());
            locations.len() - 1
        })
    }

    /// Says where modules are.
    pub(crate) fn set_modules(&mut self, modules: Vec<Module>) {
        for (at, module) in modules.iter().enumerate() {
            self.loaded.insert(module.start, module.end, at);
        }
        self.profile.modules = modules;
    }

    /// The number of the call that returns to an address.
    pub(crate) fn call(&mut self, returns_to: u64) -> usize {
        self.named_call(returns_to, &HashMap::new())
    }

    /// The number of the call that returns to an address, with the functions that are known of calls' own addresses.
    pub(crate) fn named_call(&mut self, returns_to: u64, names: &HashMap<u64, Vec<Frame>>) -> usize {
        let address = returns_to.wrapping_sub(1);
        let module = self.loaded.find(address);
        self.location(Location { module, address, frames: names.get(&address).cloned().unwrap_or_default() })
    }

    /// The places of a stack that is told as a path in a tree: from the innermost outwards.
    pub(crate) fn walk(&mut self, outwards: impl Iterator<Item = usize>) -> Result<Vec<usize>, &'static str> {
        let room = WALKED_MAX - self.walked;
        let stack: Vec<usize> = outwards.take(room + 1).collect();
        if stack.len() > room {
            return Err("there are more stacks, or longer ones, than there is room for");
        }
        self.walked += stack.len();
        Ok(stack)
    }

    /// The amounts of a stack, to be added to.
    pub(crate) fn amounts(&mut self, locations: Vec<usize>, labels: Labels) -> &mut Amounts {
        let at = self.sample(locations, labels);
        &mut self.profile.samples[at].amounts
    }

    /// The number of a stack.
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
