//! Suggestions for misspelled names.

/// The most names that are shown.
const NEAREST_MAX: usize = 3;

/// Returns the names most like a text, the nearest first: names that begin with it, and names
/// within a third of its letters by Damerau–Levenshtein distance.
pub(crate) fn nearest<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let wanted = text.to_lowercase();
    let distance = |name: &str| {
        let name = name.to_lowercase();
        let distance = strsim::damerau_levenshtein(&wanted, &name);
        let letters = wanted.chars().count().max(name.chars().count());
        let is_beginning = wanted.chars().count() >= 2 && name.starts_with(&wanted);
        (is_beginning || distance * 3 <= letters).then_some(distance)
    };
    let mut near: Vec<(usize, &str)> =
        names.into_iter().filter_map(|name| distance(name).map(|distance| (distance, name))).collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(NEAREST_MAX);
    near.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_comes_first() {
        let names = ["stop", "top", "types", "diff", "top", "temporary"];
        assert_eq!(nearest("tpo", names), ["top"]);
        assert_eq!(nearest("sTop", names), ["stop", "top"]);
        assert_eq!(nearest("temp", names), ["temporary"]);
        assert!(nearest("xyz", names).is_empty() && nearest("", names).is_empty() && nearest("t", names).is_empty());
    }
}
