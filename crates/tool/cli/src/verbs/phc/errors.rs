//! Errors on the heap, with names instead of addresses.

use heapledger_phc_report::{PhcBlock, PhcCall, PhcReport};
use heapledger_report_format::escape;
use serde::Serialize;

use crate::format::counted;
use crate::mapped_names::{BlockType, Frame, Maps, Names};

/// The number of frames shown of a stack.
const FRAMES_MAX: usize = 16;

/// An error on the heap.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapError {
    /// `use-after-free`, `overflow`, `underflow`, `double-free`, `realloc-after-free`,
    /// `invalid-free`, `wild-free`, `invalid-usable-size`, `wild-access`, `unknown` or
    /// `overwritten`.
    error: String,
    /// `read`, `write`, `execute`, or `call` of a malloc function.
    access: String,
    /// The address that was accessed, or passed to the function.
    address: String,
    /// The kind of the address, as in Mozilla's crash reports: `FreedPage` and others.
    kind: String,
    process: u32,
    program: String,
    /// The offsets of the first and the last byte that were found changed, from the beginning of
    /// the block.
    #[serde(skip_serializing_if = "Option::is_none")]
    overwritten: Option<[i64; 2]>,
    block: Option<HeapBlockJson>,
    /// The stacks: of the error, of the free, and of the allocation.
    stacks: Vec<HeapStackJson>,
}

/// The block that an error is about.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapBlockJson {
    address: String,
    bytes_requested: u64,
    bytes_usable: u64,
    /// The distance of the error's address from the beginning of the block.
    offset: i64,
    /// True if the block had been freed.
    freed: bool,
    /// The type, if it is known from the code that allocated the block.
    #[serde(flatten)]
    block_type: Option<BlockType>,
}

/// A stack.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapStackJson {
    /// `error`, `freed` or `allocated`.
    role: &'static str,
    /// The kernel's id of the thread.
    thread: u32,
    /// The scopes that the program had declared, outermost first: `request{17} > parse`.
    #[serde(skip_serializing_if = "String::is_empty")]
    context: String,
    frames: Vec<Frame>,
}

/// Returns a report with the names of functions.
pub(crate) fn named(report: &PhcReport<'_>, names: &mut Names) -> HeapError {
    let maps = Maps::parse(&report.maps);
    let mut stack = |role, call: &PhcCall| HeapStackJson {
        role,
        thread: call.thread,
        context: call.context.clone(),
        frames: call.stack.iter().flat_map(|&address| names.frames(&maps, address)).collect(),
    };
    let mut stacks = vec![stack("error", &report.at)];
    if let Some(block) = &report.block {
        stacks.extend(block.freed.iter().map(|call| stack("freed", call)));
        stacks.push(stack("allocated", &block.allocated));
    }
    let mut block = |block: &PhcBlock| HeapBlockJson {
        address: format!("{:#x}", block.base),
        bytes_requested: block.bytes_requested,
        bytes_usable: block.bytes_usable,
        offset: report.address.wrapping_sub(block.base).cast_signed(),
        freed: block.freed.is_some(),
        block_type: names.block_type(&maps, &block.allocated.stack, block.bytes_requested),
    };
    HeapError {
        error: report.error.to_owned(),
        access: report.access.to_owned(),
        address: format!("{:#x}", report.address),
        kind: report.kind.to_owned(),
        process: report.process,
        program: report.program.to_owned(),
        overwritten: report.overwritten,
        block: report.block.as_ref().map(&mut block),
        stacks,
    }
}

impl HeapError {
    /// Returns the error in one line.
    fn title(&self) -> String {
        let block = match &self.block {
            Some(block) => format!("a block of {}", counted(block.bytes_requested, "byte", "bytes")),
            None => "no block".to_owned(),
        };
        let place = self.block.as_ref().map_or_else(String::new, |block| place(block.offset, block.bytes_requested));
        let access = match self.access.as_str() {
            "read" => "read",
            "write" => "write",
            "execute" => "jump to",
            _ => "access",
        };
        match (self.error.as_str(), self.overwritten) {
            ("use-after-free", _) => format!("use after free: {access} {place} of {block}"),
            ("overflow", _) => format!("overflow: {access} {place} of {block}"),
            ("underflow", _) => format!("underflow: {access} {place} of {block}"),
            ("double-free", _) => format!("double free of {block}"),
            ("realloc-after-free", _) => format!("reallocation of {block} that was freed"),
            ("invalid-free", _) => format!("free of no block: {place} of {block}"),
            ("wild-free", _) => format!("free of no block: {}", self.address),
            ("invalid-usable-size", _) => format!("malloc_usable_size of no block: {}", self.address),
            ("overwritten", Some([first, last])) if first == last => {
                format!("write outside of {block}: byte {first}, counted from its beginning")
            }
            ("overwritten", Some([first, last])) => {
                format!("write outside of {block}: bytes {first} to {last}, counted from its beginning")
            }
            ("unknown", _) => format!("{access} at {}, about which nothing is known", self.address),
            (error, _) => format!("{error}: {access} at {}", self.address),
        }
    }

    /// Returns the lines of text that show the error.
    pub(crate) fn lines(&self) -> Vec<String> {
        let title = format!("{} (process {}, {})", self.title(), self.process, self.program);
        let mut lines = vec![escape(&title).into_owned()];
        if let Some(BlockType { short, confidence, .. }) =
            self.block.as_ref().and_then(|block| block.block_type.as_ref())
        {
            lines.push(format!("    type of the block: {} ({confidence})", escape(short)));
        }
        for stack in &self.stacks {
            let role = match (stack.role, self.error.as_str()) {
                ("error", "overwritten") => "noticed when it was freed or reallocated,",
                ("error", "double-free") => "freed again",
                ("error", _) if self.access == "call" => "called",
                ("error", _) => "accessed",
                ("freed", _) => "freed",
                (_, _) => "allocated",
            };
            let context = match stack.context.as_str() {
                "" => String::new(),
                context => format!(", in {}", escape(context)),
            };
            lines.push(format!("    {role} in thread {}{context} at", stack.thread));
            let frames = stack.frames.iter().take(FRAMES_MAX);
            lines.extend(frames.map(|frame| format!("        {}", frame.line())));
            match stack.frames.len().saturating_sub(FRAMES_MAX) {
                0 if stack.frames.is_empty() => lines.push("        (no stack)".to_owned()),
                0 => {}
                more => lines.push(format!("        and {}", counted(more as u64, "more frame", "more frames"))),
            }
        }
        lines
    }
}

/// Returns where an offset lies, beside a block of this size.
fn place(offset: i64, size: u64) -> String {
    let bytes = |number| counted(number, "byte", "bytes");
    match u64::try_from(offset) {
        Err(_) => format!("{} before the beginning", bytes(offset.unsigned_abs())),
        Ok(at) if at >= size => format!("{} behind the end", bytes(at - size)),
        Ok(at) => format!("at byte {at}"),
    }
}
