//! The places at which blocks were allocated or freed.

use heapledger_query::Stack;

const FRAMES: usize = 32;
const CONTEXT: usize = 256;
const HEAP: usize = 64;

/// `heapledger_where`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Where {
    frames: [u64; FRAMES],
    frames_count: u32,
    reserved: u32,
    context: [u8; CONTEXT],
    heap: [u8; HEAP],
}

impl Where {
    pub(crate) const NONE: Where =
        Where { frames: [0; FRAMES], frames_count: 0, reserved: 0, context: [0; CONTEXT], heap: [0; HEAP] };
}

/// Where something was allocated, in C's terms. Allocates nothing.
pub(crate) fn location(stack: Stack) -> Where {
    let mut at = Where::NONE;
    for (slot, frame) in at.frames.iter_mut().zip(stack.frames()) {
        *slot = frame.address;
        at.frames_count += 1;
    }
    // Scopes come innermost first, and are shown outermost first.
    let depth = stack.context().count();
    let mut context = Text { bytes: &mut at.context, length: 0 };
    for index in (0..depth).rev() {
        if let Some(scope) = stack.context().nth(index) {
            let separator = if index + 1 < depth { " > " } else { "" };
            context.push(separator);
            let _ = std::fmt::write(&mut context, format_args!("{scope}"));
        }
    }
    Text { bytes: &mut at.heap, length: 0 }.push(stack.heap().unwrap_or(""));
    at
}

/// Text with a NUL behind it in an array; cut off where it is too long.
struct Text<'bytes> {
    bytes: &'bytes mut [u8],
    length: usize,
}

impl Text<'_> {
    fn push(&mut self, text: &str) {
        let room = self.bytes.len().saturating_sub(self.length + 1);
        let cut = (0..=text.len().min(room)).rev().find(|&cut| text.is_char_boundary(cut)).unwrap_or(0);
        let text = text.get(..cut).unwrap_or("");
        if let Some(room) = self.bytes.get_mut(self.length..self.length + text.len()) {
            room.copy_from_slice(text.as_bytes());
            self.length += text.len();
        }
    }
}

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text);
        Ok(())
    }
}
