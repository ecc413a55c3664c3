//! Compares two profiles: of two runs, or of two moments of one.
//!
//! Counterparts are found by names, not by addresses or numbers, because two runs may have
//! different address spaces, process ids and builds.

use std::collections::HashMap;

use crate::amount::{Amount, Metric};
use crate::functions::FunctionId;
use crate::names::Names;
use crate::profile::Profile;
use crate::rank::{Key, Rank, RankBy, rank};

/// A group of sites in two profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The amount that it holds in the first profile.
    pub before: Amount,
    /// The amount that it holds in the second profile.
    pub after: Amount,
    /// The largest of its ranks in the first profile; `None` if it holds nothing there.
    pub rank_before: Option<Rank>,
    /// The largest of its ranks in the second profile; `None` if it holds nothing there.
    pub rank_after: Option<Rank>,
}

impl Difference {
    /// Returns the amount by which it grew.
    pub fn growth(&self, metric: Metric) -> i128 {
        growth(&self.before, &self.after, metric)
    }
}

/// Returns the amount by which `after` exceeds `before`.
pub fn growth(before: &Amount, after: &Amount, metric: Metric) -> i128 {
    i128::from(after.by(metric)) - i128::from(before.by(metric))
}

/// Returns the groups that differ, in descending order of growth: the one that grew most comes
/// first, the one that shrank most last.
///
/// Functions are the same if they have the same short name, in modules of the same name and in
/// source files of the same name, as far as both profiles know these: another tool's file may have
/// names alone. Directories and versions of libraries do not count. Sites are the same if their
/// useful frames are the same functions one by one, and their contexts and heaps have the same
/// names. Types are the same if their full names are. A function without a name has its address in
/// its module as its name, so it is the same only in the same build of the module.
pub fn diff(
    (before, names_before): (&Profile, &mut Names<'_, '_>),
    (after, names_after): (&Profile, &mut Names<'_, '_>),
    by: RankBy,
    metric: Metric,
) -> Vec<Difference> {
    let labelled = |profile: &Profile, names: &mut Names<'_, '_>| -> Vec<(Label, Rank)> {
        let ranks = rank(profile, names, by, metric);
        ranks.into_iter().map(|rank| (label(profile, names, &rank), rank)).collect()
    };
    let (before, after) = (labelled(before, names_before), labelled(after, names_after));
    let mut unknown = HashMap::new();
    before.iter().chain(&after).for_each(|(label, _)| label.add_unknown(&mut unknown));
    let mut differences: HashMap<String, Difference> = HashMap::new();
    for (label, rank) in before {
        let difference = differences.entry(label.text(&unknown)).or_default();
        difference.before += rank.amount;
        difference.rank_before.get_or_insert(rank);
    }
    for (label, rank) in after {
        let difference = differences.entry(label.text(&unknown)).or_default();
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

/// The name of a group, comparable between recordings.
#[derive(Debug, Default)]
struct Label {
    functions: Vec<FunctionLabel>,
    /// The part of the name that is not functions: all of it for a group that is not made of
    /// functions.
    text: String,
}

/// A function, with all that is known about it. An empty text means unknown.
#[derive(Debug)]
struct FunctionLabel {
    name: String,
    module: String,
    file: String,
}

/// The properties that are not known for all functions of one name.
#[derive(Clone, Copy, Debug, Default)]
struct Unknown {
    module: bool,
    file: bool,
}

impl Label {
    /// Marks the properties that are unknown for its functions.
    fn add_unknown(&self, unknown: &mut HashMap<String, Unknown>) {
        for function in &self.functions {
            let (module, file) = (function.module.is_empty(), function.file.is_empty());
            if module || file {
                let unknown = unknown.entry(function.name.clone()).or_default();
                *unknown = Unknown { module: unknown.module | module, file: unknown.file | file };
            }
        }
    }

    /// Returns the text that equal groups have in common.
    fn text(&self, unknown: &HashMap<String, Unknown>) -> String {
        let mut text = String::new();
        for FunctionLabel { name, module, file } in &self.functions {
            let unknown = unknown.get(name).copied().unwrap_or_default();
            let [module, file] = [(module, unknown.module), (file, unknown.file)]
                .map(|(known, is_unknown)| if is_unknown { "" } else { known });
            text.extend([name, "\0", module, "\0", file, "\n"]);
        }
        text + "\n" + &self.text
    }
}

fn label(profile: &Profile, names: &mut Names<'_, '_>, rank: &Rank) -> Label {
    let named = |text: &str| Label { text: text.to_owned(), ..Label::default() };
    match rank.key {
        Key::Module(module) => named(library(&names.module_path(module))),
        Key::Line(id) | Key::File(id) if names.function(id).is_label => named(file_name(&names.function(id).short)),
        Key::Owner(function) | Key::Line(function) | Key::File(function) | Key::Function(function) => {
            let function = function_label(names, function, rank.frame.location.as_ref().map(|it| &*it.file));
            Label { functions: vec![function], ..Label::default() }
        }
        Key::Site(stack) => {
            let frames = names.useful_frames(&profile.stacks, stack);
            let functions = frames.iter().map(|frame| {
                function_label(names, frame.function, frame.location.as_ref().map(|location| &*location.file))
            });
            let functions = functions.collect();
            let (context, heap) = (profile.stacks.context(stack), profile.stacks.heap(stack));
            Label { functions, text: format!("{}\n{}", names.context(&profile.stacks, context), names.heap(heap)) }
        }
        // These groups have no more than the name that the program gave them.
        Key::Context(_) | Key::Scope(_) | Key::Task(_) | Key::Heap(_) => {
            named(&names.function(rank.frame.function).short)
        }
        Key::Type(_) => named(&names.function(rank.frame.function).full),
        Key::Part(_) => named(&names.function(rank.frame.function).short),
    }
}

fn function_label(names: &Names<'_, '_>, function: FunctionId, file: Option<&str>) -> FunctionLabel {
    let name = names.function(function);
    let path = names.module_path(name.module);
    // A module in brackets is not a file: it is the kernel's, or a placeholder for the modules that
    // another tool's file does not have.
    let module = if path.starts_with('[') { "" } else { library(&path) };
    FunctionLabel {
        name: name.short.to_string(),
        module: module.to_owned(),
        file: file.map_or("", file_name).to_owned(),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the file name of a module, without the version of a library.
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
    fn functions_are_told_apart_by_what_is_known_of_all() {
        let label = |name: &str, module: &str, file: &str| {
            let [name, module, file] = [name, module, file].map(str::to_owned);
            Label { functions: vec![FunctionLabel { name, module, file }], ..Label::default() }
        };
        let same = |labels: &[Label]| {
            let mut unknown = HashMap::new();
            labels.iter().for_each(|label| label.add_unknown(&mut unknown));
            labels.iter().all(|label| label.text(&unknown) == labels[0].text(&unknown))
        };
        assert!(same(&[label("f", "a", "f.c"), label("f", "a", "f.c")]));
        assert!(!same(&[label("f", "a", "f.c"), label("f", "b", "f.c")]));
        assert!(!same(&[label("f", "a", "f.c"), label("f", "a", "g.c")]));
        assert!(same(&[label("f", "a", "f.c"), label("f", "", "f.c")]));
        assert!(same(&[label("f", "a", "f.c"), label("f", "", "")]));
        assert!(!same(&[label("f", "", "f.c"), label("f", "", "g.c")]));
        assert!(!same(&[label("f", "", ""), label("g", "", "")]));
    }

    #[test]
    fn versions_of_libraries_do_not_count() {
        assert_eq!(library("/usr/lib/libfoo.so.1.2"), "libfoo.so");
        assert_eq!(library("/opt/libfoo.so"), "libfoo.so");
        assert_eq!(library("/opt/some.so.rted/program"), "program");
        assert_eq!(library(""), "");
    }
}
