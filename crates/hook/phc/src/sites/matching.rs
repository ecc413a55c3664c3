//! The symbols that a name stands for.
//!
//! In the manglings of C++ (Itanium C++ ABI, 5.1) and Rust, an identifier is its length in decimal
//! digits and its characters, and those of a path follow each other.

/// True if a symbol is that of a function with this name, or of one within a namespace, class or
/// module with it. Parts of a name are separated by `::`.
pub(super) fn is_named(symbol: &[u8], name: &[u8]) -> bool {
    if !(symbol.starts_with(b"_Z") || symbol.starts_with(b"_R")) {
        // Compilers append `.constprop.0` and the like to the names of clones.
        return symbol.strip_prefix(name).is_some_and(|rest| matches!(rest.first(), None | Some(b'.' | b'@')));
    }
    (1..symbol.len()).any(|at| {
        let (before, rest) = symbol.split_at(at);
        before.last().is_some_and(|byte| !byte.is_ascii_digit()) && has_parts(rest, name)
    })
}

/// True if the identifiers at the beginning of a mangled symbol are the parts of a name.
fn has_parts(mut mangled: &[u8], mut name: &[u8]) -> bool {
    loop {
        let end = name.windows(2).position(|pair| pair == b"::").unwrap_or(name.len());
        let (part, rest) = name.split_at(end);
        let Some(behind) = identifier(mangled).filter(|(found, _)| *found == part).map(|(_, behind)| behind) else {
            return false;
        };
        match rest.get(2..) {
            None => return true,
            Some(next) => (mangled, name) = (behind, next),
        }
    }
}

/// Splits the identifier at the beginning of a mangled symbol off.
fn identifier(mangled: &[u8]) -> Option<(&[u8], &[u8])> {
    let digits = mangled.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 4 {
        return None;
    }
    let (number, rest) = mangled.split_at(digits);
    let length = number.iter().fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    // In Rust's mangling there is an underscore before a name that begins with a digit or one.
    let rest =
        rest.strip_prefix(b"_").filter(|rest| rest.len() >= length && rest.first() == Some(&b'_')).unwrap_or(rest);
    (length <= rest.len()).then(|| rest.split_at(length))
}
