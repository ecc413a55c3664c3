//! Allocator dumps as memory reports, whose parts must not be counted twice.

use std::collections::BTreeMap;

/// Returns the parts without parts of their own, from dumps with their sizes. The excess of a whole
/// over its parts is such a part too. Names stay unchanged, with `/` between parts. Takes time in
/// proportion to the names' parts.
pub fn leaves<'a>(dumps: impl IntoIterator<Item = (&'a str, Option<u64>)>) -> Vec<(String, u64)> {
    // The sum of the parts right below a name.
    let mut inner: BTreeMap<&str, u64> = BTreeMap::new();
    let mut leaves = Vec::new();
    let mut all: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    let is_own = |name: &str| !name.rsplit('/').next().is_some_and(|part| part.starts_with("__"));
    for (name, size) in dumps.into_iter().filter(|(name, _)| is_own(name)) {
        all.insert(name, size);
        let mut outer = name;
        while let Some((before, _)) = outer.rsplit_once('/') {
            outer = before;
            all.entry(outer).or_default();
        }
    }
    // In reverse order: parts come before the whole.
    let mut names: Vec<&str> = all.keys().copied().collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.matches('/').count()));
    for name in names {
        let parts = inner.get(name).copied();
        let size = all[name].unwrap_or(0).max(parts.unwrap_or(0));
        if let Some((outer, _)) = name.rsplit_once('/') {
            let sum = inner.entry(outer).or_default();
            *sum = sum.saturating_add(size);
        }
        match parts {
            None if size > 0 => leaves.push((name.to_owned(), size)),
            Some(parts) if size > parts => leaves.push((format!("{name}/(other)"), size - parts)),
            _ => {}
        }
    }
    leaves.sort();
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_there_twice() {
        let dumps =
            [("a", Some(10)), ("a/b", Some(3)), ("a/c/d", Some(2)), ("e/f", Some(9)), ("g", None), ("a/__9", Some(1))];
        let leaf = |name: &str, bytes| (name.to_owned(), bytes);
        assert_eq!(leaves(dumps), [leaf("a/(other)", 5), leaf("a/b", 3), leaf("a/c/d", 2), leaf("e/f", 9)]);
    }
}
