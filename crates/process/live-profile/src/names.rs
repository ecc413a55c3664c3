//! Names of frames.

use heapledger_profile_formats::Frame;

/// The names that frames of a profile have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameNames {
    /// Function, file and line, as far as the program's own debug information has them. The first
    /// profile waits until the debug information has been read, in the calling thread; names are
    /// remembered after that. Without the feature `symbols` there are no names.
    #[default]
    Known,
    /// Addresses only, with modules and build ids, from which names can be found with the files.
    None,
}

/// The functions at an address, innermost first, and whether they only pass a request on to the
/// allocator.
pub(crate) struct NamedFrames {
    pub(crate) frames: Vec<Frame>,
    pub(crate) is_allocator: bool,
}

impl FrameNames {
    #[cfg_attr(not(feature = "symbols"), expect(unused_variables, reason = "there are no names"))]
    pub(crate) fn of(self, address: u64) -> NamedFrames {
        #[cfg(feature = "symbols")]
        if self == FrameNames::Known {
            return known::of(address);
        }
        NamedFrames { frames: Vec::new(), is_allocator: false }
    }
}

#[cfg(feature = "symbols")]
mod known {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, PoisonError};

    use heapledger_profile_formats::Frame;
    use heapledger_query::{Frame as InspectFrame, Symbol};

    use super::NamedFrames;

    /// The number of addresses whose names are remembered, of about 300 bytes each.
    const NAMES_CACHE_MAX: usize = 1 << 15;

    static NAMES_CACHE: Mutex<Option<HashMap<u64, Arc<[Symbol]>>>> = Mutex::new(None);

    pub(super) fn of(address: u64) -> NamedFrames {
        let symbols = symbols(address);
        // Functions that are inlined into an allocator's own function belong to the allocator, too.
        let own = symbols.iter().take_while(|symbol| symbol.is_allocator()).count();
        let is_allocator = own > 0 && own == symbols.len();
        let kept = if is_allocator { &symbols[..] } else { &symbols[own..] };
        NamedFrames { frames: kept.iter().filter_map(frame).collect(), is_allocator }
    }

    fn symbols(address: u64) -> Arc<[Symbol]> {
        let mut remembered = NAMES_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = remembered.get_or_insert_default();
        if let Some(symbols) = remembered.get(&address) {
            return symbols.clone();
        }
        if remembered.len() >= NAMES_CACHE_MAX {
            remembered.clear();
        }
        let symbols: Arc<[Symbol]> = InspectFrame { address }.symbols().into();
        remembered.insert(address, symbols.clone());
        symbols
    }

    fn frame(symbol: &Symbol) -> Option<Frame> {
        let full_name = symbol.function.clone()?;
        let file = symbol.file.as_ref().map_or_else(String::new, |file| file.to_string_lossy().into_owned());
        Some(Frame { function: short(&full_name), full_name, known: true, file, line: symbol.line.unwrap_or(0) })
    }

    /// Returns a function's name without type arguments, and `<T as Trait>::f` as `T::f`: viewers
    /// would cut it at the first bracket. A name that cannot be parsed stays whole.
    fn short(full: &str) -> String {
        // These brackets are not type arguments.
        if full.contains("operator") || full.contains("->") {
            return full.to_owned();
        }
        let inner = full.strip_prefix('<');
        let (own, rest) = match inner.and_then(|inner| Some(inner.split_at(outside(inner, ">")?))) {
            Some((inner, rest)) => {
                (inner.get(..outside(inner, " as ").unwrap_or(inner.len())).unwrap_or(inner), &rest[1..])
            }
            None => ("", full),
        };
        let (mut name, mut depth) = (if own.is_empty() { String::new() } else { short(own) }, 0_usize);
        for character in rest.chars() {
            match character {
                '<' => depth += 1,
                '>' => depth = depth.saturating_sub(1),
                _ if depth == 0 => name.push(character),
                _ => {}
            }
        }
        let name = name.replace("::::", "::");
        let name = name.trim_end_matches("::");
        if name.is_empty() { full.to_owned() } else { name.to_owned() }
    }

    /// Returns the position of a text outside all brackets.
    fn outside(text: &str, wanted: &str) -> Option<usize> {
        let mut depth = 0_usize;
        text.bytes().enumerate().position(|(at, byte)| {
            if depth == 0 && text.as_bytes()[at..].starts_with(wanted.as_bytes()) {
                return true;
            }
            match byte {
                b'<' => depth += 1,
                b'>' => depth = depth.saturating_sub(1),
                _ => {}
            }
            false
        })
    }

    #[cfg(test)]
    mod tests {
        use super::short;

        #[test]
        fn names_without_types() {
            for (full, expected) in [
                ("shop::cart::add", "shop::cart::add"),
                ("alloc::vec::Vec<T,A>::push", "alloc::vec::Vec::push"),
                ("<shop::Cart<u8> as core::iter::Iterator>::next", "shop::Cart::next"),
                ("<<A as B>::C as D>::e", "A::C::e"),
                ("core::iter::Iterator::map::<shop::add::{{closure}}>", "core::iter::Iterator::map"),
                ("alloc::slice::<impl [T]>::to_vec::{{closure}}", "alloc::slice::to_vec::{{closure}}"),
                ("fold<usize, (), a::{closure_env#0}>", "fold"),
                ("<fn(u8) -> u8 as F>::call", "<fn(u8) -> u8 as F>::call"),
                ("std::operator<<", "std::operator<<"),
                ("<>", "<>"),
                ("<", "<"),
                ("", ""),
            ] {
                assert_eq!(short(full), expected, "{full}");
            }
        }
    }
}
