//! Conclusions about whole stacks, in a file by the build id of the innermost module: asking the
//! same question again needs neither debug information nor rules.
//!
//! A conclusion is found by a hash of the places of the stack and of the sizes of the blocks. It is
//! valid as long as all modules that were examined for it are made from the same files.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use heapledger_symbols::ModuleRef;
use heapledger_symbols::cache::{CacheEntry, RULES};

use super::records::{Kept, Reader, Records, Writer, kept};
use crate::site_type::{Confidence, Evidence, SiteType, SizeCheck};
use crate::sizes::SiteSizes;

/// The extension of the file.
const EXTENSION: &str = "sites";
/// The maximum bytes of a file. The conclusions of earlier runs that were not asked for in this one
/// are dropped first.
const FILE_MAX: u64 = 16 << 20;
/// The maximum number of conclusions in a file.
const SITES_MAX: usize = 1 << 17;

/// The conclusions about stacks.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// The conclusions of earlier runs, and those of them that were asked for.
    kept: Option<Records>,
    types: HashMap<u32, SiteType>,
    asked: HashSet<u64>,
    new: HashMap<u64, Concluded>,
}

/// A conclusion about a stack.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Concluded {
    pub(crate) site: SiteType,
    /// The number of places that were examined.
    pub(crate) places: u32,
    /// A hash of the files that their modules were made from.
    pub(crate) made_from: u64,
}

/// Reads the conclusions about stacks; each of them states the files that it was made from.
pub(crate) fn read(cache: &CacheEntry) -> Option<Sites> {
    decode(&cache.read(EXTENSION, FILE_MAX)?)
}

/// Writes the conclusions about stacks. `lacking` are the source files that were missing.
pub(crate) fn write(cache: &CacheEntry, lacking: &[Arc<str>], sites: &mut Sites) {
    if let Some(bytes) = sites.encode(RULES.as_bytes(), lacking) {
        cache.write(EXTENSION, &bytes);
    }
}

/// Returns the key of a stack.
pub(crate) fn key(stack: &[(ModuleRef<'_>, u64)], sizes: SiteSizes) -> u64 {
    let mut hasher = DefaultHasher::new();
    (RULES, sizes).hash(&mut hasher);
    let mut last = None;
    for &(module, offset) in stack {
        // Most places are in the same module as the one before.
        if last.replace(module) != Some(module) {
            module.hash(&mut hasher);
        }
        offset.hash(&mut hasher);
    }
    hasher.finish()
}

impl Sites {
    pub(crate) fn find(&mut self, key: u64) -> Option<Concluded> {
        if let Some(found) = self.new.get(&key) {
            return Some(found.clone());
        }
        let found = self.read(key)?;
        self.asked.insert(key);
        Some(found)
    }

    fn read(&mut self, key: u64) -> Option<Concluded> {
        let records = self.kept.as_mut()?;
        let found = records.find(key)?;
        let Site { site, places, made_from } = Site::read(&mut records.read(found)?)?;
        let site = match self.types.get(&site) {
            Some(known) => known.clone(),
            None => {
                let read = SiteType::read(&mut records.read(site)?)?;
                self.types.entry(site).or_insert(read).clone()
            }
        };
        Some(Concluded { site, places, made_from })
    }

    pub(crate) fn add(&mut self, key: u64, concluded: Concluded) {
        self.new.insert(key, concluded);
    }

    /// True if there are conclusions that no earlier run had.
    pub(crate) fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// Encodes the file. `lacking` are the source files that were missing.
    fn encode(&mut self, fingerprint: &[u8], lacking: &[Arc<str>]) -> Option<Vec<u8>> {
        let mut file = Writer::default();
        let before = self.kept.as_mut().and_then(Records::lacking).unwrap_or_default();
        let new = std::mem::take(&mut self.new);
        let mut count = 0;
        let mut add = |key: u64, concluded: Concluded| {
            if count == SITES_MAX || file.size() > FILE_MAX / 2 {
                return;
            }
            count += 1;
            let Concluded { site, places, made_from } = concluded;
            let site = file.shared(|to| site.write(to));
            let record = file.record(|to| Site { site, places, made_from }.write(to));
            file.key(key, record);
        };
        let mut keys = self.kept.as_ref().map(Records::keys).unwrap_or_default();
        keys.retain(|key| !new.contains_key(key));
        new.into_iter().for_each(|(key, concluded)| add(key, concluded));
        keys.sort_by_key(|key| (!self.asked.contains(key), *key));
        for key in keys {
            if let Some(concluded) = self.read(key) {
                add(key, concluded);
            }
        }
        file.finish(fingerprint, lacking.iter().chain(&before), FILE_MAX)
    }
}

fn decode(bytes: &[u8]) -> Option<Sites> {
    Some(Sites { kept: Some(Records::new(bytes, None, FILE_MAX)?), ..Sites::default() })
}

/// Decodes everything in a file, and writes it again.
pub(super) fn exercise(bytes: &[u8]) {
    let Some(mut sites) = decode(bytes) else { return };
    for key in sites.kept.iter().flat_map(Records::keys).collect::<Vec<_>>() {
        if let Some(found) = sites.find(key) {
            sites.add(key, found);
        }
    }
    let _ = sites.encode(b"", &[]);
}

/// A conclusion; `site` is a record that many conclusions share.
struct Site {
    site: u32,
    places: u32,
    made_from: u64,
}

kept! {
    Site { site, places, made_from }
    SiteType { block, element, container, confidence, evidence, candidates, size, size_check, module }
}

impl Kept for Confidence {
    fn write(&self, to: &mut Writer) {
        (*self as u32).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let number = u32::read(from)?;
        let all = [Self::Exact, Self::SizeConsistent, Self::Ambiguous, Self::Probable, Self::Unknown];
        all.into_iter().find(|&known| known as u32 == number)
    }
}

impl Kept for Evidence {
    fn write(&self, to: &mut Writer) {
        let (number, name) = match self {
            Self::None => (0u32, None),
            Self::Inlined(name) => (1, Some(name)),
            Self::Function(name) => (2, Some(name)),
            Self::TemplateParameter(name) => (3, Some(name)),
            Self::Constructor => (4, None),
            Self::SourceText => (5, None),
            Self::Variable(name) => (6, Some(name)),
            Self::SymbolName(name) => (7, Some(name)),
            Self::CFunction(name) => (8, Some(name)),
        };
        number.write(to);
        if let Some(name) = name {
            name.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match u32::read(from)? {
            0 => Self::None,
            1 => Self::Inlined(Kept::read(from)?),
            2 => Self::Function(Kept::read(from)?),
            3 => Self::TemplateParameter(Kept::read(from)?),
            4 => Self::Constructor,
            5 => Self::SourceText,
            6 => Self::Variable(Kept::read(from)?),
            7 => Self::SymbolName(Kept::read(from)?),
            8 => Self::CFunction(Kept::read(from)?),
            _ => return None,
        })
    }
}

impl Kept for SizeCheck {
    fn write(&self, to: &mut Writer) {
        match self {
            Self::Consistent => 0u32.write(to),
            Self::NotPossible => 1u32.write(to),
            Self::Inconsistent(why) => {
                2u32.write(to);
                Arc::<str>::from(&**why).write(to);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match u32::read(from)? {
            0 => Self::Consistent,
            1 => Self::NotPossible,
            2 => Self::Inconsistent(Arc::<str>::read(from)?.as_ref().into()),
            _ => return None,
        })
    }
}

impl Kept for usize {
    fn write(&self, to: &mut Writer) {
        (*self as u64).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        u64::read(from)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use heapledger_symbols::cache::{sealed, unsealed};

    use super::*;
    use crate::language::Language;
    use crate::testing::for_each_damaged;
    use crate::type_name::TypeName;

    fn site(evidence: Evidence, size_check: SizeCheck) -> SiteType {
        let name = TypeName::new(Language::Rust, "app::Foo");
        SiteType {
            block: Some(name.buffer()),
            element: Some(name.clone()),
            container: Some("Vec<Foo>::push".into()),
            confidence: Confidence::Ambiguous,
            evidence,
            candidates: vec![name],
            size: Some(u64::MAX),
            size_check,
            module: Some(1),
        }
    }

    #[test]
    fn what_was_concluded_is_read_and_nothing_else() {
        let named = [
            Evidence::Inlined,
            Evidence::Function,
            Evidence::TemplateParameter,
            Evidence::Variable,
            Evidence::SymbolName,
            Evidence::CFunction,
        ];
        let named = named.into_iter().map(|of| of("name".into()));
        let mut all: Vec<_> = named.chain([Evidence::Constructor, Evidence::SourceText, Evidence::None]).collect();
        all.push(Evidence::None);
        let checks = [SizeCheck::Consistent, SizeCheck::NotPossible, SizeCheck::Inconsistent("5 bytes".into())];
        let checks = checks.iter().cycle();
        let mut sites = Sites::default();
        let concluded: Vec<_> = all
            .into_iter()
            .zip(checks)
            .map(|(evidence, check)| site(evidence, check.clone()))
            .chain([SiteType::unknown()])
            .zip(0..)
            .map(|(site, places)| Concluded { site, places, made_from: u64::MAX - u64::from(places) })
            .collect();
        for (key, concluded) in (0..).zip(&concluded) {
            sites.add(key, concluded.clone());
        }
        let bytes = sites.encode(RULES.as_bytes(), &["/nowhere/a.cc".into()]).unwrap();
        let mut sites = decode(&bytes).unwrap();
        for (key, concluded) in (0..).zip(&concluded) {
            assert_eq!(sites.find(key).as_ref(), Some(concluded));
        }
        assert_eq!(sites.find(u64::MAX), None);
        assert!(!sites.has_new());
        // Its conclusions are written again, with the new ones.
        sites.add(99, concluded[0].clone());
        let mut again = decode(&sites.encode(RULES.as_bytes(), &[]).unwrap()).unwrap();
        assert_eq!((again.find(99).as_ref(), again.find(3).as_ref()), (Some(&concluded[0]), Some(&concluded[3])));
        assert_eq!(again.kept.unwrap().lacking().unwrap(), ["/nowhere/a.cc".into()]);
        // A source file that was missing exists now.
        assert!(decode(&sites.encode(RULES.as_bytes(), &[file!().into(), "/proc/self/exe".into()]).unwrap()).is_none());
        for_each_damaged(unsealed(&bytes, FILE_MAX).unwrap(), |bad| exercise(&sealed(bad)));
    }
}
