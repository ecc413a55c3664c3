//! Records of version 11, which memray 1.11 to 1.18 write. The lower four bits of the first byte
//! are the kind, the upper ones are flags. Functions are stored with their lines.

use super::{PythonFrame, Reader, kind};
use crate::input::Step;
use crate::memray::allocator::{Effect, numbered_before_12};
use crate::memray::stacks::Code;

const OTHER: u8 = 0;
const CALL: u8 = 1;
const CALL_WITH_NATIVE: u8 = 2;
const FRAME: u8 = 3;
const PUSH: u8 = 4;
const POP: u8 = 9;
const TIME: u8 = 11;

impl Reader<'_, '_> {
    /// Reads a record. Returns true if it is the last one.
    pub(super) fn older_record(&mut self, first: u8) -> Step<bool> {
        let flags = first >> 4;
        match first & 15 {
            OTHER if flags == kind::END => return Ok(true),
            call @ (CALL | CALL_WITH_NATIVE) => self.older_call(flags, call == CALL_WITH_NATIVE)?,
            FRAME => {
                let number = self.input.delta(&mut self.last.frame)?;
                let (function, file) = (self.input.text()?, self.input.text()?);
                let first_line = self.input.delta(&mut self.last.line)? as i32;
                self.stacks.add_code(number, Code { function, file, first_line, table: Vec::new() });
                let frame = PythonFrame { code: number, instruction: 0, is_entry: flags & 1 == 0 };
                self.older_frames.insert(number, frame);
            }
            PUSH => {
                let number = self.input.delta(&mut self.last.frame)?;
                let Some(&frame) = self.older_frames.get(&number) else {
                    return self.input.wrong("a function is entered that has not come yet");
                };
                self.push(frame)?;
            }
            POP => self.pop(flags)?,
            TIME => self.time()?,
            kind::NATIVE_FRAME => self.native_frame()?,
            kind::MAP => self.map(),
            kind::MODULE => self.maps.module(&mut self.input, &mut self.gather)?,
            kind::THREAD_NAME => self.thread_name()?,
            kind::THREAD => self.thread()?,
            unknown => return self.input.wrong(format!("a record of the unknown kind {unknown}")),
        }
        Ok(false)
    }

    fn older_call(&mut self, number: u8, has_native: bool) -> Step<()> {
        let address = self.input.delta(&mut self.last.address)?;
        let Some((effect, heap)) = numbered_before_12(number) else {
            return self.input.wrong(format!("a call of the unknown allocator {number}"));
        };
        let bytes = if effect == Effect::Frees && !has_native { 0 } else { self.input.varint()? };
        let native = if has_native { self.input.delta(&mut self.last.native)? } else { 0 };
        self.take(effect, heap, address, bytes, native)
    }
}
