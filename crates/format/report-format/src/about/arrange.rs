//! Summing up, merging, sorting and hiding the nodes of a tree.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use icu_collator::options::CollatorOptions;
use icu_collator::{Collator, CollatorBorrowed};

use super::drafts::{Draft, Drafts};
use super::{AboutOptions, Node, Note, number};

/// Less than this percentage of the root is insignificant.
const SIGNIFICANT_PERCENT: f64 = 1.0;

/// Turns reports into a tree.
pub(super) struct Arranger<'o> {
    options: &'o AboutOptions,
    is_difference: bool,
    /// Compares names as people expect, and as `localeCompare` does: with the root collation of
    /// CLDR.
    collator: Option<CollatorBorrowed<'static>>,
}

impl<'o> Arranger<'o> {
    pub(super) fn new(options: &'o AboutOptions, is_difference: bool) -> Arranger<'o> {
        let collator = Collator::try_new(Default::default(), CollatorOptions::default()).ok();
        Arranger { options, is_difference, collator }
    }

    fn compare_names(&self, a: &str, b: &str) -> Ordering {
        self.collator.as_ref().map_or_else(|| a.cmp(b), |collator| collator.compare(a, b))
    }

    /// Computes every node's amount, and merges nodes with the only node below them. Adds the paths
    /// of reports whose amounts are lost by that, as in Firefox, to `left_out`.
    pub(super) fn sum_up(&self, drafts: &mut Drafts<'_>, root: usize, left_out: &mut Vec<String>) {
        self.sum_up_below(drafts, root, true, left_out);
    }

    fn sum_up_below(&self, drafts: &mut Drafts<'_>, at: usize, is_root: bool, left_out: &mut Vec<String>) -> i64 {
        let left_out_before = left_out.len();
        let children = std::mem::take(&mut drafts.nodes[at].children);
        let mut below: i64 = 0;
        for &child in &children {
            below = below.saturating_add(self.sum_up_below(drafts, child, false, left_out));
        }
        for path in &mut left_out[left_out_before..] {
            *path = format!("{}/{path}", drafts.nodes[at].name);
        }
        let own = drafts.nodes[at].amount.filter(|&own| own != 0);
        match (children.as_slice(), own) {
            ([], _) => {}
            (&[only], own) if !is_root => {
                left_out.extend(own.map(|_| drafts.nodes[at].name.to_string()));
                let child = &mut drafts.nodes[only];
                let (name, children) = (std::mem::take(&mut child.name), std::mem::take(&mut child.children));
                let (description, merged) = (child.description.take(), child.merged);
                let node = &mut drafts.nodes[at];
                node.name = format!("{}/{name}", node.name).into();
                node.children = children;
                node.amount = Some(below);
                node.description = description;
                if merged > 0 {
                    node.merged = merged;
                }
            }
            (_, own) => {
                let unit = drafts.nodes[at].unit;
                let fake = own.map(|own| {
                    let mut fake = Draft::new("(fake child)", unit);
                    fake.amount = Some(own);
                    fake.presence = Some(Note::Fake);
                    drafts.push(fake)
                });
                let node = &mut drafts.nodes[at];
                if fake.is_some() {
                    node.presence = None;
                }
                node.children = children;
                node.children.extend(fake);
                node.amount = Some(below.saturating_add(own.unwrap_or(0)));
                node.description = Some("The sum of all entries below this one.".into());
            }
        }
        drafts.nodes[at].amount.unwrap_or(0)
    }

    /// Sorts the nodes of a tree, and hides the insignificant ones.
    pub(super) fn sort(&self, drafts: &mut Drafts<'_>, root: usize) {
        let total = drafts.nodes[root].amount.unwrap_or(0);
        let mut extents = Vec::new();
        if self.is_difference {
            extents.resize(drafts.nodes.len(), 0);
            extent(drafts, root, &mut extents);
        }
        self.sort_below(drafts, root, total, &mut extents);
    }

    fn sort_below(&self, drafts: &mut Drafts<'_>, at: usize, total: i64, extents: &mut Vec<i64>) {
        let mut children = std::mem::take(&mut drafts.nodes[at].children);
        self.sort_siblings(drafts, &mut children, extents);
        let is_insignificant = |child: usize| !self.is_significant(drafts, child, total, extents);
        let hides_all = children.first().is_some_and(|&first| is_insignificant(first));
        // A single insignificant node is as good as the line that would replace it.
        let before_last = children.len().saturating_sub(1);
        let tiny_from = children[..before_last].iter().position(|&child| is_insignificant(child));

        for &child in &children {
            self.sort_below(drafts, child, total, extents);
        }
        if hides_all {
            drafts.nodes[at].hides_children = true;
        } else if let Some(tiny_from) = tiny_from {
            let tiny = children.split_off(tiny_from);
            let mut node = Draft::new(format!("({} tiny)", tiny.len()), drafts.nodes[at].unit);
            node.amount = Some(
                tiny.iter().fold(0, |sum: i64, &child| sum.saturating_add(drafts.nodes[child].amount.unwrap_or(0))),
            );
            node.description =
                Some(format!("{} entries that are less than {SIGNIFICANT_PERCENT} % of the tree.", tiny.len()).into());
            node.children = tiny;
            node.hides_children = true;
            let node = drafts.push(node);
            if self.is_difference {
                extents.resize(drafts.nodes.len(), 0);
                let below = drafts.nodes[node].children.iter().map(|&child| extents[child]).max();
                extents[node] = magnitude(drafts.nodes[node].amount).max(below.unwrap_or(0));
            }
            children.push(node);
            self.sort_siblings(drafts, &mut children, extents);
        }
        drafts.nodes[at].children = children;
    }

    fn sort_siblings(&self, drafts: &Drafts<'_>, children: &mut [usize], extents: &[i64]) {
        let key = |child: usize| Reverse(self.weight(drafts, child, extents));
        children.sort_by(|&a, &b| {
            let names = || self.compare_names(&drafts.nodes[a].name, &drafts.nodes[b].name);
            key(a).cmp(&key(b)).then_with(names)
        });
    }

    /// Returns the amount by which a node is sorted and judged.
    fn weight(&self, drafts: &Drafts<'_>, at: usize, extents: &[i64]) -> i64 {
        if self.is_difference { extents[at] } else { drafts.nodes[at].amount.unwrap_or(0) }
    }

    fn is_significant(&self, drafts: &Drafts<'_>, at: usize, total: i64, extents: &[i64]) -> bool {
        let total = if self.is_difference { (total as f64).abs() } else { total as f64 };
        let percent = 100.0 * self.weight(drafts, at, extents) as f64 / total;
        // If the root is 0, nothing is insignificant.
        self.options.verbose || percent.is_nan() || percent >= SIGNIFICANT_PERCENT
    }

    /// Returns the finished tree, or the finished node that is not a tree.
    pub(super) fn node(&self, drafts: &Drafts<'_>, root: usize, is_tree: bool) -> Node {
        let whole = drafts.nodes[root].amount.unwrap_or(0);
        let path = drafts.nodes[root].name.to_string();
        self.node_below(drafts, root, is_tree.then_some(whole), path, &mut 0)
    }

    fn node_below(
        &self,
        drafts: &Drafts<'_>,
        at: usize,
        whole: Option<i64>,
        path: String,
        invalid: &mut usize,
    ) -> Node {
        let draft = &drafts.nodes[at];
        let amount = draft.amount.unwrap_or(0);
        let is_invalid = !self.is_difference && !(0..=whole.unwrap_or(amount)).contains(&amount);
        *invalid += usize::from(is_invalid);
        let mut notes = Vec::new();
        notes.extend(is_invalid.then_some(Note::Invalid));
        notes.extend((draft.merged > 0).then_some(Note::Merged(draft.merged)));
        notes.extend(draft.presence);

        let invalid_before = *invalid;
        let mut children = Vec::with_capacity(draft.children.len());
        for &child in &draft.children {
            let path = format!("{path}/{}", drafts.nodes[child].name);
            children.push(self.node_below(drafts, child, whole, path, invalid));
        }
        Node {
            name: draft.name.replace('\\', "/").into(),
            path: path.into(),
            unit: draft.unit,
            amount,
            value: number::amount(amount, draft.unit, self.options.verbose),
            percent: whole.map(|whole| number::fraction(amount, whole)),
            description: draft.description.clone().unwrap_or_else(|| Arc::from("")),
            notes,
            // An invalid node is always visible.
            is_collapsed: draft.hides_children && *invalid == invalid_before,
            is_invalid,
            children,
        }
    }
}

/// Compares trees of one process by name.
pub(super) fn by_name(arranger: &Arranger<'_>, a: &Node, b: &Node) -> Ordering {
    // The root's own name, which is never merged with others.
    arranger.compare_names(&a.path, &b.path)
}

/// Computes the largest change, in either direction, of each node of a difference or of a node
/// below it.
fn extent(drafts: &Drafts<'_>, at: usize, extents: &mut [i64]) -> i64 {
    let node = &drafts.nodes[at];
    let below = node.children.iter().map(|&child| extent(drafts, child, extents)).max();
    extents[at] = magnitude(node.amount).max(below.unwrap_or(0));
    extents[at]
}

fn magnitude(amount: Option<i64>) -> i64 {
    amount.unwrap_or(0).saturating_abs()
}
