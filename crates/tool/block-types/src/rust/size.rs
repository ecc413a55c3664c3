//! Sizes of types, and of the blocks that contain them.

use super::name::Type;
use crate::sizes::SiteSizes;

/// Bytes of a word on the targets that programs are recorded on.
const WORD: u64 = 8;
/// Bytes of a length and a capacity in front of elements.
pub(super) const HEADER: u64 = 2 * WORD;
/// Bytes that a hash table probes at once; as many follow the last bucket's.
const GROUP: u64 = 16;

/// Returns the size of a type if it is the same in every program; `None` for other types.
pub(super) fn of(of: &Type) -> Option<u64> {
    Some(match of {
        Type::Path { of: None, segments } => match (&*of.path(), &*segments.last()?.arguments) {
            ("u8" | "i8" | "bool", _) => 1,
            ("u16" | "i16" | "f16", _) => 2,
            ("u32" | "i32" | "f32" | "char", _) => 4,
            ("u64" | "i64" | "f64", _) => 8,
            ("u128" | "i128" | "f128", _) => 16,
            ("usize" | "isize", _) => WORD,
            (
                "alloc::string::String"
                | "alloc::vec::Vec"
                | "std::path::PathBuf"
                | "std::ffi::os_str::OsString"
                | "alloc::collections::btree::map::BTreeMap"
                | "alloc::collections::btree::set::BTreeSet"
                | "alloc::collections::linked_list::LinkedList",
                _,
            ) => 3 * WORD,
            ("alloc::collections::vec_deque::VecDeque", _) => 4 * WORD,
            ("alloc::boxed::Box" | "alloc::sync::Arc" | "alloc::rc::Rc" | "core::ptr::non_null::NonNull", [target]) => {
                pointer(target)?
            }
            ("core::option::Option", [inner]) if is_never_null(inner) => self::of(inner)?,
            _ => return None,
        },
        Type::Pointer(_, target) => pointer(target)?,
        Type::Function(..) => WORD,
        Type::Tuple(types) if types.is_empty() => 0,
        // The order of other fields is free, but there are no gaps if all have the same alignment.
        Type::Tuple(types) => {
            let sizes: Option<Vec<u64>> = types.iter().map(self::of).collect();
            let sizes: Vec<u64> = sizes?.into_iter().filter(|&size| size > 0).collect();
            let all_words = sizes.iter().all(|size| size % WORD == 0);
            let all_equal = sizes.windows(2).all(|pair| pair[0] == pair[1]);
            return (all_words || all_equal).then(|| sizes.iter().sum());
        }
        Type::Slice(element, Some(length)) => self::of(element)?.checked_mul(length.parse().ok()?)?,
        _ => return None,
    })
}

/// Returns the size of a pointer to this type.
fn pointer(target: &Type) -> Option<u64> {
    match target {
        Type::Slice(_, None) | Type::Bounds(..) => Some(2 * WORD),
        _ if target.path() == "str" => Some(2 * WORD),
        // A type of the program's own may end in a slice, but this is rare.
        Type::Path { .. }
            if !matches!(&*target.path(), "std::path::Path" | "std::ffi::os_str::OsStr" | "core::ffi::c_str::CStr") =>
        {
            Some(WORD)
        }
        Type::Path { .. } => Some(2 * WORD),
        _ => Some(WORD),
    }
}

fn is_never_null(of: &Type) -> bool {
    matches!(
        &*of.path(),
        "alloc::boxed::Box" | "alloc::sync::Arc" | "alloc::rc::Rc" | "alloc::vec::Vec" | "alloc::string::String"
    ) || matches!(of, Type::Pointer("&" | "&mut ", _))
}

/// True if the sizes fit blocks with two counters and one value of a type, or a slice of them.
/// `None`: undecided.
pub(super) fn counted(size: u64, slice: bool, sizes: SiteSizes) -> Option<bool> {
    const COUNTERS: u64 = 2 * WORD;
    if slice {
        if size > 0 && size.is_multiple_of(WORD) {
            return sizes.are_several(size, COUNTERS);
        }
        // Each block is padded to a whole word.
        let fits = |bytes: u64| {
            let rest = bytes.checked_sub(COUNTERS);
            bytes.is_multiple_of(WORD)
                && rest.is_some_and(|rest| rest < WORD || size == 0 || rest / size * size + WORD > rest)
        };
        let each = sizes.each()?;
        return match fits(each.least) && fits(each.most) {
            false => Some(false),
            // For sizes between these, the padding may be anything less than a word, if elements
            // are smaller than a word.
            true if each.step.is_multiple_of(WORD) && (size < WORD || each.least == each.most) => Some(true),
            true => None,
        };
    }
    // The value behind the counters is aligned, and padded, to one or two words.
    let each = match sizes.each() {
        Some(each) if each.least != each.most => return Some(false),
        Some(each) => each.least,
        None if sizes.blocks == 0 => return None,
        None if !sizes.bytes.is_multiple_of(sizes.blocks) => return Some(false),
        None => sizes.bytes / sizes.blocks,
    };
    let fits = each.checked_sub(COUNTERS).is_some_and(|rest| rest >= size && rest - size < 2 * WORD);
    match sizes.each() {
        None if fits => None,
        _ => Some(fits),
    }
}

/// True if the sizes fit hash tables whose entries have this size: a power of two of them, one byte
/// for each, and one for each of a further group. `None`: undecided.
pub(super) fn table(size: u64, sizes: SiteSizes) -> Option<bool> {
    let of = |buckets: u64| {
        let entries = size.checked_mul(buckets)?.checked_next_multiple_of(GROUP)?;
        entries.checked_add(buckets + GROUP)
    };
    let fits = |bytes: u64| (2..48).map(|power| 1u64 << power).any(|buckets| of(buckets) == Some(bytes));
    let each = sizes.each()?;
    if !fits(each.least) || !fits(each.most) {
        return Some(false);
    }
    // Sizes between these are of the same form, unless their differences contradict it. Entries of
    // whole quarters of a group need no padding, however many there are.
    if each.least == each.most || size.is_multiple_of(4) && each.step.is_multiple_of(4 * (size + 1)) {
        return Some(true);
    }
    if size.is_multiple_of(4) { Some(false) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::EachSize;

    #[test]
    fn known_sizes() {
        let size = |name: &str| of(&Type::parse(name));
        assert_eq!(size("&str"), Some(16));
        assert_eq!(size("alloc::boxed::Box<dyn app::Shape>"), Some(16));
        assert_eq!(size("alloc::boxed::Box<app::Foo>"), Some(8));
        assert_eq!(size("core::option::Option<alloc::string::String>"), Some(24));
        assert_eq!(size("(alloc::string::String, u64, ())"), Some(32));
        assert_eq!(size("(u8, u64)"), None);
        assert_eq!(size("[u16; 5]"), Some(10));
        assert_eq!(size("app::Foo"), None);
    }

    #[test]
    fn counted_and_tables() {
        let sizes = |each: &[u64]| {
            let mut known = EachSize::of(each[0]);
            each[1..].iter().for_each(|&size| known.add(size));
            SiteSizes { blocks: each.len() as u64, bytes: each.iter().sum(), each: Some(known) }
        };
        assert_eq!(counted(24, false, sizes(&[40; 3])), Some(true));
        assert_eq!(counted(24, false, sizes(&[40, 41, 40])), Some(false));
        // The sum fits, but no block does.
        assert_eq!(counted(24, false, sizes(&[8, 72])), Some(false));
        assert_eq!(counted(24, false, SiteSizes { blocks: 2, bytes: 80, each: None }), None);
        assert_eq!(counted(1, true, sizes(&[24])), Some(true));
        assert_eq!(counted(16, true, sizes(&[32; 2])), Some(true));
        assert_eq!(counted(16, true, sizes(&[32, 40])), Some(false));
        // The sizes of a `HashMap<u64, u64>` with 3, 7 and 14 entries.
        assert_eq!(table(16, sizes(&[4 * 17 + 16])), Some(true));
        assert_eq!(table(16, sizes(&[4 * 17 + 16, 8 * 17 + 16, 16 * 17 + 16])), Some(true));
        assert_eq!(table(16, sizes(&[85])), Some(false));
        assert_eq!(table(16, sizes(&[4 * 17 + 16, 4])), Some(false));
    }
}
