//! Frames and types of a whole trace, each kept once.

use std::collections::HashMap;
use std::sync::Arc;

use super::heap::{Heap, UNKNOWN_TYPE};

/// The only frame of a stack without frames, if there has to be one.
pub(super) const NO_STACK: &str = "[no stack]";

/// The next numbers, for all processes of a trace: a number that is a frame in one process is not
/// used in another.
#[derive(Debug)]
pub(super) struct Numbers {
    stack: u64,
    of_type: u64,
    text: u64,
}

impl Default for Numbers {
    /// Readers take 0 for none; the type 0 is the unknown one.
    fn default() -> Numbers {
        Numbers { stack: 1, of_type: 1, text: 1 }
    }
}

/// The stacks and types of one process, with numbers that stay for the whole trace.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: HashMap<Arc<str>, u64>,
    numbers: HashMap<(u64, Arc<str>), u64>,
    types: HashMap<Arc<str>, u64>,
    /// The texts in the order of their numbers.
    pub(super) texts_in_order: Vec<(u64, Arc<str>)>,
    pub(super) stacks: Vec<NamedStack>,
    pub(super) named_types: Vec<NamedType>,
}

/// A stack: its outer frames, and one more.
#[derive(Debug)]
pub(super) struct NamedStack {
    pub(super) number: u64,
    /// 0: there is none.
    pub(super) outer: u64,
    pub(super) frame: Arc<str>,
    /// The number of the frame's text.
    pub(super) text: u64,
}

/// A type.
#[derive(Debug)]
pub(super) struct NamedType {
    pub(super) number: u64,
    pub(super) name: Arc<str>,
    /// The number of its text.
    pub(super) text: u64,
}

/// The numbers in the trace of the stacks and types of a heap, by their numbers in the heap, where
/// 0 is none.
#[derive(Debug)]
pub(super) struct InTrace {
    pub(super) stacks: Vec<u64>,
    pub(super) types: Vec<u64>,
}

impl Names {
    /// Looks up the stacks and types of a heap that are used, and gives numbers to those that are
    /// new.
    pub(super) fn of_heap(&mut self, heap: &Heap, numbers: &mut Numbers, used: &Used) -> InTrace {
        let mut stacks = vec![0; heap.stacks().len() + 1];
        for (at, stack) in heap.stacks().iter().enumerate() {
            if used.stacks[at + 1] {
                stacks[at + 1] = self.stack(stacks[stack.outer as usize], heap.frame(*stack), numbers);
            }
        }
        let mut types = vec![0; heap.types().len() + 1];
        for (at, name) in heap.types().iter().enumerate() {
            if used.types[at + 1] {
                types[at + 1] = self.type_number(name, numbers);
            }
        }
        InTrace { stacks, types }
    }

    fn stack(&mut self, outer: u64, frame: &str, numbers: &mut Numbers) -> u64 {
        let (text, frame) = self.text(frame, numbers);
        let stacks = &mut self.stacks;
        *self.numbers.entry((outer, Arc::clone(&frame))).or_insert_with(|| {
            let number = take(&mut numbers.stack);
            stacks.push(NamedStack { number, outer, frame, text });
            number
        })
    }

    fn type_number(&mut self, name: &str, numbers: &mut Numbers) -> u64 {
        if let Some(&number) = self.types.get(name) {
            return number;
        }
        let (text, name) = self.text(name, numbers);
        let number = take(&mut numbers.of_type);
        self.types.insert(Arc::clone(&name), number);
        self.named_types.push(NamedType { number, name, text });
        number
    }

    /// Returns the number of a text, and the text itself.
    fn text(&mut self, text: &str, numbers: &mut Numbers) -> (u64, Arc<str>) {
        if let Some((text, &number)) = self.texts.get_key_value(text) {
            return (number, Arc::clone(text));
        }
        let (number, text): (u64, Arc<str>) = (take(&mut numbers.text), text.into());
        self.texts.insert(Arc::clone(&text), number);
        self.texts_in_order.push((number, Arc::clone(&text)));
        (number, text)
    }

    /// Returns the stack for blocks without frames.
    pub(super) fn nowhere(&mut self, numbers: &mut Numbers) -> u64 {
        self.stack(0, NO_STACK, numbers)
    }

    /// Returns the text of the type 0, which must be there before it is used.
    pub(super) fn unknown(&mut self, numbers: &mut Numbers) -> u64 {
        self.text(UNKNOWN_TYPE, numbers).0
    }
}

fn take(next: &mut u64) -> u64 {
    let number = *next;
    *next += 1;
    number
}

/// The stacks and types of a heap that are used, by number.
#[derive(Debug)]
pub(super) struct Used {
    stacks: Vec<bool>,
    types: Vec<bool>,
}

impl Used {
    pub(super) fn none_of(heap: &Heap) -> Used {
        Used { stacks: vec![false; heap.stacks().len() + 1], types: vec![false; heap.types().len() + 1] }
    }

    /// Marks a stack, with those that it continues, and a type as used.
    pub(super) fn add(&mut self, heap: &Heap, mut stack: u32, of_type: u32) {
        self.types[of_type as usize] = true;
        while stack != 0 && !self.stacks[stack as usize] {
            self.stacks[stack as usize] = true;
            stack = heap.stacks()[stack as usize - 1].outer;
        }
    }
}
