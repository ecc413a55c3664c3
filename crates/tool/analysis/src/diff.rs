//! Two profiles side by side: of two runs, or of two moments of one.
//!
//! What stands for the same is found by names, not by addresses or numbers: two runs may have different address spaces,
//! process ids and builds.

use std::collections::HashMap;

use crate::amount::{Amount, Metric};
use crate::names::{FunctionId, Names};
use crate::profile::Profile;
use crate::rank::{Key, Rank, RankBy, rank};

/// A group of sites in two profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What it holds in the first one.
    pub before: Amount,
    /// What it holds in the second one.
    pub after: Amount,
    /// The largest of its groups in the first profile. `None`: it holds nothing there.
    pub rank_before: Option<Rank>,
    /// The largest of its groups in the second profile.
    pub rank_after: Option<Rank>,
}

impl Difference {
    /// By how much it grew.
    pub fn growth(&self, metric: Metric) -> i128 {
        growth(&self.before, &self.after, metric)
    }
}

/// By how much one amount is more than another.
pub fn growth(before: &Amount, after: &Amount, metric: Metric) -> i128 {
    i128::from(after.by(metric)) - i128::from(before.by(metric))
}

/// The groups that differ, in descending order of growth: what grew most comes first, what shrank most last.
///
/// Functions are the same if they have the same short name in modules of the same name and, where source files are
/// known, in files of the same name; directories do not count, nor do versions of libraries. Sites are the same if
/// their useful frames are the same functions one by one, and their contexts and heaps are called the same. Types are the
/// same if their full names are. A function without a name is called by its address in its module, and is the same in the
/// same build of it.
pub fn diff(
    (before, names_before): (&Profile, &mut Names<'_, '_>),
    (after, names_after): (&Profile, &mut Names<'_, '_>),
    by: RankBy,
    metric: Metric,
) -> Vec<Difference> {
    let mut differences: HashMap<String, Difference> = HashMap::new();
    for rank in rank(before, names_before, by, metric) {
        let difference = differences.entry(label(before, names_before, &rank)).or_default();
        difference.before += rank.amount;
        difference.rank_before.get_or_insert(rank);
    }
    for rank in rank(after, names_after, by, metric) {
        let difference = differences.entry(label(after, names_after, &rank)).or_default();
        difference.after += rank.amount;
        difference.rank_after.get_or_insert(rank);
    }
    let mut differences: Vec<(String, Difference)> =
        differences.into_iter().filter(|(_, it)| it.growth(metric) != 0).collect();
    differences.sort_by(|(a_label, a), (b_label, b)| {
        b.growth(metric).cmp(&a.growth(metric)).then_with(|| a_label.cmp(b_label))
    });
    differences.into_iter().map(|(_, difference)| difference).collect()
}

/// What a group is called in any recording.
fn label(profile: &Profile, names: &mut Names<'_, '_>, rank: &Rank) -> String {
    match rank.key {
        Key::Module(module) => library(&names.module_path(module)).to_owned(),
        Key::Line(id) | Key::File(id) if names.function(id).declared => file_name(&names.function(id).short).to_owned(),
        Key::Owner(function) | Key::Line(function) | Key::File(function) | Key::Function(function) => {
            function_label(names, function, rank.frame.location.as_ref().map(|it| &*it.file))
        }
        Key::Site(stack) => {
            let frames = names.useful_frames(&profile.stacks, stack);
            let frames = frames.iter().map(|frame| {
                function_label(names, frame.function, frame.location.as_ref().map(|location| &*location.file))
            });
            let frames = frames.collect::<Vec<_>>().join("\n");
            let (context, heap) = (profile.stacks.context(stack), profile.stacks.heap(stack));
            format!("{frames}\n\n{}\n{}", names.context(&profile.stacks, context), names.heap(heap))
        }
        // What a program calls them is all there is to them.
        Key::Context(_) | Key::Scope(_) | Key::Task(_) | Key::Heap(_) => {
            names.function(rank.frame.function).short.to_string()
        }
        Key::Type(_) => names.function(rank.frame.function).full.to_string(),
    }
}

fn function_label(names: &Names<'_, '_>, function: FunctionId, file: Option<&str>) -> String {
    let name = names.function(function);
    let path = names.module_path(name.module);
    format!("{}\0{}\0{}", name.short, library(&path), file.map_or("", file_name))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The file name of a module; of a library without its version.
fn library(path: &str) -> &str {
    let name = file_name(path);
    match name.find(".so.") {
        Some(at) => &name[..at + 3],
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_libraries_do_not_count() {
        assert_eq!(library("/usr/lib/libfoo.so.1.2"), "libfoo.so");
        assert_eq!(library("/opt/libfoo.so"), "libfoo.so");
        assert_eq!(library("/opt/some.so.rted/program"), "program");
        assert_eq!(library(""), "");
    }
}
