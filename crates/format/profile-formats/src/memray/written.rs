//! Writes captures for tests, as memray does, in all versions.

use super::header::MAGIC;

/// Functions that allocate and free, with their numbers since version 12 and before.
pub(crate) const MALLOC: (u8, u8) = (6, 1);
pub(crate) const FREE: (u8, u8) = (5, 2);
pub(crate) const MMAP: (u8, u8) = (14, 10);
pub(crate) const MUNMAP: (u8, u8) = (15, 11);
pub(crate) const PYMALLOC: (u8, u8) = (2, 12);

/// A capture that is being written.
pub(crate) struct Written {
    bytes: Vec<u8>,
    version: u32,
    has_native: bool,
    is_aggregated: bool,
    recent: Vec<u64>,
    last: Last,
    frames: u64,
}

#[derive(Default)]
struct Last {
    address: u64,
    returns_to: u64,
    native: u64,
    line: u64,
    frame: u64,
}

impl Written {
    pub(crate) fn new(version: u32, has_native: bool, is_aggregated: bool) -> Written {
        let (bytes, last) = (MAGIC.to_vec(), Last::default());
        let mut file = Written { bytes, version, has_native, is_aggregated, recent: vec![0; 15], last, frames: 0 };
        file.put(&version.to_le_bytes());
        if version >= 12 {
            file.put(&0x030b_07f0_u32.to_le_bytes());
        }
        file.put(&[has_native.into(), is_aggregated.into()]);
        [9, 3, 5, 45].iter().for_each(|&number: &u64| file.u64(number));
        file.text("a.py --b").put(&77_u32.to_le_bytes());
        file.u64(1);
        file.u64(1);
        file.put(&[1, 1]);
        if version >= 12 {
            file.put(&[1]);
        }
        if version >= 13 {
            file.text("/lib").text("/site").text("").text("/path").text("");
        }
        file
    }

    /// Returns the offset of the first record.
    pub(crate) fn records_start(version: u32) -> usize {
        Written::new(version, true, false).bytes.len()
    }

    /// Returns a capture with every call: two threads, the first with native frames, and a mapping
    /// that is partly unmapped.
    pub(crate) fn example(version: u32) -> Vec<u8> {
        let mut file = Written::new(version, true, false);
        file.map(&[("/bin/python", 0x10000), ("/bin/libc.so", 0x20000)]).thread(1);
        file.function(1, "tracker", 5).function(2, "keep", 12).function(3, "work", 30).push(1).push(2);
        file.native_frame(0x10140, 0).native_frame(0x10150, 1).native_frame(0x20030, 2);
        file.call(MALLOC, 0x1000, 100, 2).call(PYMALLOC, 0x2000, 256, 3).call(MMAP, 0x100000, 8192, 2);
        file.thread(2).text_record(10, "worker").push(3).call(MALLOC, 0x3000, 908, 0).pop(1);
        file.time(20);
        if version >= 12 {
            // A Python object comes and goes.
            file.put(&[0x20 | 15 << 1 | 1]).signed(2).signed(0).put(&[0x20]);
            file.recent.insert(0, (file.last.address + 2) << 3);
            file.last.address += 2;
        }
        file.thread(1).call(FREE, 0x3000, 0, 0).call(FREE, 0x9000, 0, 0).call(FREE, 0x1000, 0, 0);
        file.call(MUNMAP, 0x101000, 4096, 0).call(MALLOC, 0x1000, 8, 2).pop(2).time(30);
        file.finish()
    }

    /// Returns an aggregated capture: a stack with native frames, and one without.
    pub(crate) fn aggregated_example(version: u32) -> Vec<u8> {
        let mut file = Written::new(version, true, true);
        for (ms, bytes) in [(15, 100), (25, 4596)] {
            file.put(&[1]);
            [ms, 1 << 20, bytes].iter().for_each(|&number| file.u64(number));
        }
        file.thread(1).text_record(10, "main");
        file.map(&[("/bin/python", 0x10000), ("/bin/libc.so", 0x20000)]).map(&[("/other", 0x20000)]);
        file.function(1, "tracker", 5).function(2, "keep", 12);
        file.native_frame(0x10140, 0).native_frame(0x10150, 1).native_frame(0x20030, 2);
        for (frame, caller) in [(0, 0), (1, 1)] {
            file.put(&[3]);
            if version >= 12 {
                file.varint(frame).varint(caller);
            } else {
                file.u64(frame + 1);
                file.put(&(caller as u32).to_le_bytes());
            }
        }
        if version >= 12 {
            file.put(&[13]).varint(0x200).varint(1);
        }
        file.amounts(MALLOC, 3, [2, 1, 500, 100]).amounts(MMAP, 0, [1, 0, 4096, 0]);
        file.finish()
    }

    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes.push(match (self.is_aggregated, self.version) {
            (true, _) => 15,
            (false, 11) => 16,
            (false, _) => 1,
        });
        bytes
    }

    pub(crate) fn thread(&mut self, thread: u64) -> &mut Written {
        self.put(&[12]);
        self.u64(thread);
        self
    }

    pub(crate) fn time(&mut self, ms: u64) -> &mut Written {
        let kind = self.kind(2, 11);
        self.put(&[kind]).varint(1 << 20).varint(ms)
    }

    /// Writes a map with modules of one segment each.
    pub(crate) fn map(&mut self, modules: &[(&str, u64)]) -> &mut Written {
        self.put(&[6]);
        for &(path, bias) in modules {
            self.put(&[7]).text(path).varint(1);
            self.u64(bias);
            self.put(&[8]);
            self.u64(0);
            self.varint(0x1000);
        }
        self
    }

    /// Writes a function whose instructions are all on one line.
    pub(crate) fn function(&mut self, number: u64, name: &str, line: u64) -> &mut Written {
        let aggregated = self.is_aggregated;
        if self.version < 12 {
            self.put(if aggregated { &[4] } else { &[3] });
            if aggregated {
                self.u64(number);
                return self.text(name).text("a.py").put(&(line as u32).to_le_bytes()).put(&[1]);
            }
            let frame = number.wrapping_sub(std::mem::replace(&mut self.last.frame, number));
            self.signed(frame as i64).text(name).text("a.py");
            let line = line.wrapping_sub(std::mem::replace(&mut self.last.line, line));
            return self.signed(line as i64);
        }
        self.put(&[14]).varint(number).text(name).text("a.py");
        let first = 10_u64.wrapping_sub(std::mem::replace(&mut self.last.line, 10));
        let difference = line as i64 - 10;
        let difference = (difference.unsigned_abs() << 1 | u64::from(difference < 0)) as u8;
        self.signed(first as i64).varint(2).put(&[0x80 | 13 << 3, difference]);
        if aggregated {
            let frame = self.frames;
            self.frames += 1;
            self.put(&[4]).varint(frame).varint(number).signed(0).put(&[1]);
        }
        self
    }

    pub(crate) fn push(&mut self, number: u64) -> &mut Written {
        if self.version < 12 {
            let frame = number.wrapping_sub(std::mem::replace(&mut self.last.frame, number));
            return self.put(&[4]).signed(frame as i64);
        }
        self.put(&[0x41]).varint(number).signed(0)
    }

    pub(crate) fn pop(&mut self, count: u8) -> &mut Written {
        let kind = self.kind(16 | (count - 1), 9 | (count - 1) << 4);
        self.put(&[kind])
    }

    pub(crate) fn native_frame(&mut self, returns_to: u64, caller: u64) -> &mut Written {
        let address = returns_to.wrapping_sub(std::mem::replace(&mut self.last.returns_to, returns_to));
        self.put(&[5]).signed(address as i64);
        self.native(caller)
    }

    pub(crate) fn call(&mut self, function: (u8, u8), address: u64, bytes: u64, native: u64) -> &mut Written {
        let is_free = function == FREE;
        if self.version < 12 {
            let kind = if self.has_native { 2 } else { 1 };
            self.put(&[kind | function.1 << 4]);
            let address = address.wrapping_sub(std::mem::replace(&mut self.last.address, address));
            self.signed(address as i64);
            if self.has_native {
                return self.varint(bytes).native(native);
            }
            return if is_free { self } else { self.varint(bytes) };
        }
        let recent = self.recent.iter().take(15).position(|&recent| recent == address);
        let number = if function.0 < 8 { function.0 } else { 0 };
        self.put(&[0x80 | (recent.unwrap_or(15) as u8) << 3 | number]);
        if recent.is_none() {
            self.recent.insert(0, address);
            let address = (address >> 3).wrapping_sub(std::mem::replace(&mut self.last.address, address >> 3));
            self.signed(address as i64);
        }
        if number == 0 {
            self.put(&[function.0]);
        }
        if !is_free && self.has_native {
            self.native(native);
        }
        if is_free { self } else { self.varint(bytes) }
    }

    pub(crate) fn text_record(&mut self, kind: u8, text: &str) -> &mut Written {
        self.put(&[kind]).text(text)
    }

    /// Writes totals of the first thread's innermost node.
    fn amounts(&mut self, function: (u8, u8), native: u64, amounts: [u64; 4]) -> &mut Written {
        self.put(&[2]);
        self.u64(1);
        let number = self.kind(function.0, function.1);
        self.put(&[number, 0, 0, 0, 0, 0, 0, 0]);
        [native, 2, 1].into_iter().chain(amounts).for_each(|number| self.u64(number));
        self
    }

    fn kind(&self, since_12: u8, before: u8) -> u8 {
        if self.version < 12 { before } else { since_12 }
    }

    fn native(&mut self, native: u64) -> &mut Written {
        let difference = native.wrapping_sub(std::mem::replace(&mut self.last.native, native));
        self.signed(difference as i64)
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Written {
        self.bytes.extend(bytes);
        self
    }

    fn u64(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) -> &mut Written {
        self.put(text.as_bytes()).put(&[0])
    }

    fn varint(&mut self, mut number: u64) -> &mut Written {
        while number >= 0x80 {
            self.put(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.put(&[number as u8])
    }

    fn signed(&mut self, number: i64) -> &mut Written {
        self.varint((number << 1 ^ number >> 63) as u64)
    }
}
