//! Live blocks, grouped by stack and type.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::untracked;
use crate::profile::Amount;

/// The name for an unknown type.
pub const UNKNOWN_TYPE: &str = "[unknown]";
/// The most frames of a stack.
const DEPTH_MAX: usize = 1024;

/// The live blocks of an allocator, grouped by stack and type. Texts are kept once.
///
/// ```
/// use heapledger_profile_formats::{Amount, chrome::Heap};
///
/// let mut heap = Heap::default();
/// heap.add(["main", "parse"], Some("Node"), Amount { blocks: 2, bytes: 96 });
/// heap.add(["main"], None, Amount { blocks: 1, bytes: 10 });
/// assert_eq!(heap.total(), Amount { blocks: 3, bytes: 106 });
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Heap {
    /// Distinct frames.
    frames: Vec<String>,
    /// Distinct stacks, each after the stack that it continues.
    stacks: Vec<Stack>,
    /// Distinct types.
    types: Vec<String>,
    /// Distinct pairs of a stack and a type.
    cells: Vec<Cell>,
    #[serde(skip)]
    index: Index,
}

/// A stack: another stack, and one frame further in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Stack {
    /// 0: there is no other frame. Else the index of the other stack, plus 1.
    pub(super) outer: u32,
    pub(super) frame: u32,
}

/// The live blocks of one stack and one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cell {
    /// 0: no frame is known. Else the index of the stack, plus 1.
    pub(super) stack: u32,
    /// 0: not known. Else the index of the type, plus 1.
    pub(super) of_type: u32,
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

/// The indices of texts, stacks and cells that are there already.
#[derive(Clone, Debug, Default)]
struct Index {
    frames: HashMap<String, u32>,
    stacks: HashMap<Stack, u32>,
    types: HashMap<String, u32>,
    cells: HashMap<(u32, u32), usize>,
}

impl Heap {
    /// Adds blocks with this stack, whose outermost frame comes first, and with this type. Frames
    /// beyond the first 1,024 are left out.
    pub fn add<F: AsRef<str>>(&mut self, stack: impl IntoIterator<Item = F>, type_name: Option<&str>, amount: Amount) {
        // The frames come from the program's own code.
        let stack = stack.into_iter().take(DEPTH_MAX).fold(0, |outer, frame| {
            let frame = frame.as_ref();
            untracked::scope(|| self.stack(outer, frame))
        });
        untracked::scope(|| self.add_cell(stack, type_name, amount));
    }

    fn add_cell(&mut self, stack: u32, type_name: Option<&str>, amount: Amount) {
        let of_type = type_name.filter(|name| *name != UNKNOWN_TYPE).map_or(0, |name| self.type_number(name));
        let cells = &mut self.cells;
        let at = *self.index.cells.entry((stack, of_type)).or_insert_with(|| {
            cells.push(Cell { stack, of_type, blocks: 0, bytes: 0 });
            cells.len() - 1
        });
        let cell = &mut cells[at];
        cell.blocks = cell.blocks.saturating_add(amount.blocks);
        cell.bytes = cell.bytes.saturating_add(amount.bytes);
    }

    /// Returns the sum over all stacks and types.
    pub fn total(&self) -> Amount {
        self.cells.iter().fold(Amount::default(), |sum, cell| Amount {
            blocks: sum.blocks.saturating_add(cell.blocks),
            bytes: sum.bytes.saturating_add(cell.bytes),
        })
    }

    /// True if nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub(super) fn frame(&self, stack: Stack) -> &str {
        self.frames.get(stack.frame as usize).map_or("", String::as_str)
    }

    pub(super) fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    pub(super) fn types(&self) -> &[String] {
        &self.types
    }

    pub(super) fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// True if data from another process is a valid heap: every number leads to something, and no
    /// stack is too deep.
    pub(super) fn is_sound(&self) -> bool {
        let mut depths = vec![0_usize; self.stacks.len() + 1];
        let stacks = self.stacks.iter().enumerate().all(|(at, stack)| {
            let is_known = stack.outer as usize <= at && (stack.frame as usize) < self.frames.len();
            if is_known {
                depths[at + 1] = depths[stack.outer as usize] + 1;
            }
            is_known && depths[at + 1] <= DEPTH_MAX
        });
        let cells = || {
            self.cells
                .iter()
                .all(|cell| cell.stack as usize <= self.stacks.len() && cell.of_type as usize <= self.types.len())
        };
        stacks && cells()
    }

    fn stack(&mut self, outer: u32, frame: &str) -> u32 {
        let frame = number(&mut self.frames, &mut self.index.frames, frame) - 1;
        let (stack, stacks) = (Stack { outer, frame }, &mut self.stacks);
        *self.index.stacks.entry(stack).or_insert_with(|| {
            stacks.push(stack);
            stacks.len() as u32
        })
    }

    fn type_number(&mut self, name: &str) -> u32 {
        number(&mut self.types, &mut self.index.types, name)
    }
}

/// Returns the number of a text, from 1.
fn number(texts: &mut Vec<String>, index: &mut HashMap<String, u32>, text: &str) -> u32 {
    if let Some(&number) = index.get(text) {
        return number;
    }
    texts.push(text.to_owned());
    index.insert(text.to_owned(), texts.len() as u32);
    texts.len() as u32
}
