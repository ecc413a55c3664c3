//! Choosing the groups of a heap that are worth a line.

use std::collections::BTreeMap;

use super::heap::{Cell, Heap};
use crate::profile::Amount;

/// The rule for parts of a heap that are left out as too small. They still count in the totals of
/// the parts around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Goes from the largest part on, and leaves out those of a group that add less than 0.8 % to
    /// what has been kept of it. Chrome did so in 2016. It leaves very many lines for deep stacks,
    /// because each part has a largest part of its own.
    Share,
    /// Leaves out parts with fewer bytes. Chrome did so in 2017, with [`Cut::default`].
    Bytes(u64),
}

impl Default for Cut {
    /// 1,024 bytes.
    fn default() -> Cut {
        Cut::Bytes(1024)
    }
}

/// A line of a heap: the blocks whose stacks begin with this stack, and whose type is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the stack in its heap, from 1; 0: all stacks.
    pub stack: u32,
    /// The number of the type in its heap, from 1; 0: blocks of unknown type. `None`: all types.
    pub of_type: Option<u32>,
    /// The sum of these blocks.
    pub amount: Amount,
}

/// Blocks whose stacks begin with the same frames; of one type, or of all.
struct Bucket<'h> {
    stack: u32,
    of_type: Option<u32>,
    cells: Vec<&'h Cell>,
    amount: Amount,
}

impl<'h> Bucket<'h> {
    fn new(stack: u32, of_type: Option<u32>) -> Bucket<'h> {
        Bucket { stack, of_type, cells: Vec::new(), amount: Amount::default() }
    }

    fn add(&mut self, cell: &'h Cell) {
        self.cells.push(cell);
        self.amount.blocks = self.amount.blocks.saturating_add(cell.blocks);
        self.amount.bytes = self.amount.bytes.saturating_add(cell.bytes);
    }
}

impl Heap {
    /// Returns the lines that a cut leaves, in the order of their stacks, then types. The first is
    /// the whole heap. All lines that a line is a part of are there too. The excess of a line over
    /// its parts is what was left out, and what ends there.
    pub fn entries(&self, cut: Cut) -> Vec<Entry> {
        let tree = Tree::of(self);
        let mut entries = BTreeMap::new();
        let mut whole = Bucket::new(0, None);
        self.cells().iter().for_each(|cell| whole.add(cell));
        entries.insert((0, None), whole.amount);
        let mut waiting = vec![whole];
        while let Some(bucket) = waiting.pop() {
            let by_frame = bucket.by(|cell| Some((tree.towards(bucket.stack, cell.stack)?, bucket.of_type)));
            let by_type = match bucket.of_type {
                None => bucket.by(|cell| Some((bucket.stack, Some(cell.of_type)))),
                Some(_) => Vec::new(),
            };
            for parts in [by_frame, by_type] {
                for part in significant(parts, cut) {
                    // It may have been reached by the other way.
                    if entries.insert((part.stack, part.of_type), part.amount).is_none() {
                        waiting.push(part);
                    }
                }
            }
        }
        entries.into_iter().map(|((stack, of_type), amount)| Entry { stack, of_type, amount }).collect()
    }
}

impl<'h> Bucket<'h> {
    /// Returns its parts, by the group of each cell.
    fn by(&self, key: impl Fn(&Cell) -> Option<(u32, Option<u32>)>) -> Vec<Bucket<'h>> {
        let mut parts: BTreeMap<(u32, Option<u32>), Bucket<'h>> = BTreeMap::new();
        for cell in &self.cells {
            if let Some((stack, of_type)) = key(cell) {
                parts.entry((stack, of_type)).or_insert_with(|| Bucket::new(stack, of_type)).add(cell);
            }
        }
        parts.into_values().collect()
    }
}

/// The stacks of a heap from the outermost frame inwards, by their numbers; 0 is the empty stack
/// with which they all begin.
struct Tree {
    /// The index of each stack in preorder: a stack comes before those that continue it, and these
    /// right behind it.
    places: Vec<u32>,
    /// The stacks that continue a stack by one frame, in preorder, in one list for all stacks.
    inner: Vec<u32>,
    /// The index in that list at which those of each stack begin.
    begins: Vec<usize>,
}

impl Tree {
    fn of(heap: &Heap) -> Tree {
        let stacks = heap.stacks();
        let outer = |number: usize| stacks[number - 1].outer as usize;
        // Each comes after the one that it continues; so, going backwards, all that continue a
        // stack have been counted before it.
        let mut sizes = vec![1_u32; stacks.len() + 1];
        let mut begins = vec![0; stacks.len() + 2];
        for number in (1..=stacks.len()).rev() {
            sizes[outer(number)] += sizes[number];
            begins[outer(number) + 1] += 1;
        }
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        let (mut next_places, mut next_inner) = (vec![1; stacks.len() + 1], begins.clone());
        let (mut places, mut inner) = (vec![0; stacks.len() + 1], vec![0; stacks.len()]);
        for number in 1..=stacks.len() {
            let place = next_places[outer(number)];
            places[number] = place;
            next_places[outer(number)] += sizes[number];
            next_places[number] = place + 1;
            inner[next_inner[outer(number)]] = number as u32;
            next_inner[outer(number)] += 1;
        }
        Tree { places, inner, begins }
    }

    /// Among the stacks that continue `from` by one frame, returns the one with which `to` begins.
    /// `None`: they are the same.
    fn towards(&self, from: u32, to: u32) -> Option<u32> {
        if from == to {
            return None;
        }
        let inner = &self.inner[self.begins[from as usize]..self.begins[from as usize + 1]];
        let place = self.places[to as usize];
        let after = inner.partition_point(|&number| self.places[number as usize] <= place);
        inner.get(after.checked_sub(1)?).copied()
    }
}

/// Returns the largest parts, up to the first that is too small.
fn significant(mut parts: Vec<Bucket<'_>>, cut: Cut) -> impl Iterator<Item = Bucket<'_>> {
    parts.sort_by_key(|part| std::cmp::Reverse(part.amount.bytes));
    let mut sum = 0_u128;
    parts.into_iter().take_while(move |part| {
        let bytes = u128::from(part.amount.bytes);
        sum += bytes;
        match cut {
            // In whole numbers: it is 0 below one part in 125.
            Cut::Share => bytes > 0 && bytes * 125 / sum > 0,
            Cut::Bytes(least) => part.amount.bytes >= least,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: u64) -> Amount {
        Amount { blocks: 1, bytes }
    }

    /// Returns the lines by the innermost frame, or nothing, and the type.
    fn lines(heap: &Heap, cut: Cut) -> Vec<(String, Option<String>, u64)> {
        let stack = |number: u32| match number {
            0 => String::new(),
            _ => heap.frame(heap.stacks()[number as usize - 1]).to_owned(),
        };
        let of_type = |number: u32| match number {
            0 => "[unknown]".to_owned(),
            _ => heap.types()[number as usize - 1].clone(),
        };
        let line = |entry: &Entry| (stack(entry.stack), entry.of_type.map(of_type), entry.amount.bytes);
        heap.entries(cut).iter().map(line).collect()
    }

    /// The figures of Chrome's own tests.
    #[test]
    fn by_stack_and_by_type() {
        let mut heap = Heap::default();
        heap.add(["Browser", "Widget"], Some("int"), bytes(10));
        heap.add(["Browser", "Widget"], Some("bool"), bytes(18));
        heap.add(["Renderer", "Init"], Some("bool"), bytes(30));
        heap.add(["Renderer", "Init"], Some("string"), bytes(19));
        let lines = lines(&heap, Cut::Share);
        let has = |stack: &str, of_type: Option<&str>, bytes: u64| {
            let line = (stack.to_owned(), of_type.map(str::to_owned), bytes);
            assert!(lines.contains(&line), "{line:?}: {lines:#?}");
        };
        assert_eq!(lines[0], (String::new(), None, 77));
        for (of_type, all) in [("int", 10), ("bool", 48), ("string", 19)] {
            has("", Some(of_type), all);
        }
        for (stack, all, parts) in [
            ("Browser", 28, [("int", 10), ("bool", 18)]),
            ("Widget", 28, [("int", 10), ("bool", 18)]),
            ("Renderer", 49, [("bool", 30), ("string", 19)]),
            ("Init", 49, [("bool", 30), ("string", 19)]),
        ] {
            has(stack, None, all);
            parts.iter().for_each(|&(of_type, bytes)| has(stack, Some(of_type), bytes));
        }
        assert_eq!(lines.len(), 1 + 3 + 4 * 3);
    }

    #[test]
    fn what_is_small_is_left_out_and_in_the_total() {
        let mut heap = Heap::default();
        heap.add(["large"], None, bytes(1 << 20));
        heap.add(["small"], None, bytes(512));
        for cut in [Cut::Share, Cut::Bytes(1024)] {
            let lines = lines(&heap, cut);
            assert_eq!(lines[0].2, (1 << 20) + 512);
            assert!(
                lines.iter().any(|line| line.0 == "large") && lines.iter().all(|line| line.0 != "small"),
                "{cut:?}"
            );
        }
        assert!(lines(&heap, Cut::Bytes(512)).iter().any(|line| line.0 == "small"));
    }

    /// One part in 125 is kept, less is not.
    #[test]
    fn the_share_is_a_whole_number() {
        let kept = |large: u64, small: u64| {
            let mut heap = Heap::default();
            heap.add(["large"], None, bytes(large));
            heap.add(["small"], None, bytes(small));
            lines(&heap, Cut::Share).iter().any(|line| line.0 == "small")
        };
        assert!(kept(124, 1) && !kept(125, 1) && !kept(7, 0));
        assert!(kept(u64::MAX, u64::MAX));
    }

    #[test]
    fn nothing_is_a_heap() {
        assert_eq!(lines(&Heap::default(), Cut::Share), [(String::new(), None, 0)]);
    }

    /// A stack that ends where others go on counts only in the total of that frame.
    #[test]
    fn what_ends_here_is_no_part() {
        let mut heap = Heap::default();
        heap.add(["main"], None, bytes(5));
        heap.add(["main", "inner"], None, bytes(7));
        let all: Vec<_> = lines(&heap, Cut::Bytes(0)).into_iter().filter(|line| line.1.is_none()).collect();
        let line = |frame: &str, bytes| (frame.to_owned(), None, bytes);
        assert_eq!(all, [line("", 12), line("main", 12), line("inner", 7)]);
    }
}
