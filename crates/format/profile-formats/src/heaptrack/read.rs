//! Reading heaptrack's files: the stream of its recorder, which has addresses and modules, and the
//! output of `heaptrack_interpret`, which has names.

use std::io::BufRead;

use interpreted::Interpreted;
use raw::Raw;

use crate::gather::Gather;
use crate::profile::{Event, Known, Profile};
use crate::read_error::ReadError;

mod interpreted;
mod raw;

/// The longest line, in bytes.
const LINE_MAX: u64 = 4 << 20;
/// The newest version of the file that is read.
const VERSION_MAX: u64 = 3;

/// True if a text begins as a file of heaptrack, of either kind.
pub fn detects(bytes: &[u8]) -> bool {
    let mut words = bytes[..bytes.len().min(64)].split(|&byte| byte == b' ' || byte == b'\n');
    let is_number =
        |word: Option<&[u8]>| word.is_some_and(|word| !word.is_empty() && word.iter().all(u8::is_ascii_hexdigit));
    words.next() == Some(b"v") && is_number(words.next()) && is_number(words.next())
}

/// Reads a text: gives each allocation and free to `take`, in order, and returns the profile of
/// their stacks. Memory is needed for stacks and for live blocks.
///
/// An interpreted file identifies a block by its size and stack only: addresses are made up, and a
/// free is taken for that of the block that was allocated last. A raw file has addresses, of blocks
/// and in stacks; its modules have a [bias](crate::Module::bias).
///
/// # Errors
///
/// Fails if the stream fails, or is not such a text.
pub fn read(input: &mut dyn BufRead, take: &mut dyn FnMut(Event)) -> Result<Profile, ReadError> {
    let mut reader = Reader::default();
    let (mut offset, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let length = std::io::Read::take(&mut *input, LINE_MAX).read_until(b'\n', &mut line);
        let length = length.map_err(|error| ReadError::new(offset, format!("it cannot be read: {error}")))?;
        if length == 0 {
            break;
        }
        if length as u64 == LINE_MAX {
            return Err(ReadError::new(offset, format!("a line of more than {LINE_MAX} bytes")));
        }
        reader.line(line.trim_ascii_end(), take).map_err(|reason| ReadError::new(offset, reason))?;
        offset += length as u64;
    }
    if reader.version == 0 {
        return Err(ReadError::new(offset, "it has no version"));
    }
    let mut profile = reader.common.gather.profile;
    profile.known = Known { allocated: true, temporaries: true, live: true, peak: true, end: true, ..Known::default() };
    profile.duration_ns = reader.common.time_ns;
    Ok(profile)
}

#[derive(Default)]
struct Reader {
    version: u64,
    tables: Tables,
    common: Common,
}

/// The state for both kinds of files.
#[derive(Default)]
struct Common {
    gather: Gather,
    stacks: Stacks,
    time_ns: u64,
}

/// The state for one kind of file.
enum Tables {
    Interpreted(Interpreted),
    Raw(Raw),
}

impl Default for Tables {
    fn default() -> Tables {
        Tables::Interpreted(Interpreted::default())
    }
}

type Result1<T> = std::result::Result<T, &'static str>;

impl Reader {
    fn line(&mut self, line: &[u8], take: &mut dyn FnMut(Event)) -> Result1<()> {
        let Some((&kind, rest)) = line.split_first() else { return Ok(()) };
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        if self.version == 0 && !matches!(kind, b'v' | b'#') {
            return Err("it does not begin with its version");
        }
        let mut words = Words { rest, have_lengths: self.version >= 3 };
        match kind {
            b'v' => {
                let (_tool, version) = (words.next()?, words.optional()?.unwrap_or(1));
                if version > VERSION_MAX {
                    return Err("it is of a newer version than 3");
                }
                self.version = version.max(1);
            }
            b'X' => self.common.gather.profile.command = String::from_utf8_lossy(rest).into_owned(),
            b'c' => self.common.time_ns = words.next()?.saturating_mul(1_000_000).max(self.common.time_ns),
            // Only the recorder names the program.
            b'x' => self.tables = Tables::Raw(Raw::new(words.text()?)),
            _ => match &mut self.tables {
                Tables::Interpreted(tables) => tables.line(kind, &mut words, &mut self.common, take)?,
                Tables::Raw(tables) => tables.line(kind, &mut words, &mut self.common, take)?,
            },
        }
        Ok(())
    }
}

/// Stacks as the file has them: a location, and the stack that it is called from.
#[derive(Default)]
struct Stacks(Vec<Stack>);

struct Stack {
    /// The index of one of the profile's locations.
    place: usize,
    /// The number of the caller's stack, from 1; 0: none.
    caller: u64,
    sample: Option<usize>,
}

impl Stacks {
    /// Adds a stack. A caller always comes before.
    fn push(&mut self, place: usize, caller: u64) -> Result1<()> {
        if caller > self.0.len() as u64 {
            return Err("a stack of what has not come yet");
        }
        self.0.push(Stack { place, caller, sample: None });
        Ok(())
    }

    /// Returns the sample of a stack.
    fn sample(&mut self, gather: &mut Gather, number: u64) -> Result1<usize> {
        let index = |number: u64| number.checked_sub(1).and_then(|at| usize::try_from(at).ok());
        let Some(leaf) = index(number) else { return Ok(gather.sample(Vec::new(), Vec::new())) };
        if let Some(known) = self.0.get(leaf).ok_or("a stack that has not come yet")?.sample {
            return Ok(known);
        }
        let outwards = std::iter::successors(self.0.get(leaf), |stack| self.0.get(index(stack.caller)?));
        let stack = gather.walk(outwards.map(|stack| stack.place))?;
        let sample = gather.sample(stack, Vec::new());
        self.0[leaf].sample = Some(sample);
        Ok(sample)
    }
}

/// Hexadecimal numbers and texts, separated by spaces.
struct Words<'a> {
    rest: &'a [u8],
    /// Since version 3 texts have their lengths in front.
    have_lengths: bool,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result1<u64> {
        self.optional()?.ok_or("a number is missing")
    }

    fn optional(&mut self) -> Result1<Option<u64>> {
        let word = self.word();
        if word.is_empty() {
            return Ok(None);
        }
        if word.len() > 16 {
            return Err("a number of more than 64 bits");
        }
        let mut value = 0;
        for &byte in word {
            let digit = char::from(byte).to_digit(16).ok_or("not a hexadecimal number")?;
            value = value << 4 | u64::from(digit);
        }
        Ok(Some(value))
    }

    /// Reads a text, which may have spaces in it if it has a length.
    fn text(&mut self) -> Result1<String> {
        let text = if self.have_lengths {
            let length = usize::try_from(self.next()?).unwrap_or(usize::MAX);
            let rest = self.rest.strip_prefix(b" ").unwrap_or(self.rest);
            let (text, rest) = rest.split_at_checked(length).ok_or("a text that is longer than its line")?;
            self.rest = rest;
            text
        } else {
            self.word()
        };
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn word(&mut self) -> &'a [u8] {
        let rest = self.rest.trim_ascii_start();
        let length = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (word, rest) = rest.split_at(length);
        self.rest = rest;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::EventKind;

    const FILE: &str = "v 10400 3\nX ./a b\ns 4 /a.so\ns 1 f\ns 4 main\ns 3 a.c\ns 1 g\ni 10 1 2 4 5 5 4 9\ni 20 1 3 4 7\ni 30 1\n\
        t 2 0\nt 1 1\nt 3 0\na 40 2\na 8 3\n+ 0\nc 5\n+ 0\n- 0\n+ 1\nc a\nR 4\n";

    #[test]
    fn events_and_stacks() {
        assert!(detects(FILE.as_bytes()) && !detects(b"version") && !detects(b"v x 3"));
        let mut events = Vec::new();
        let profile = read(&mut FILE.as_bytes(), &mut |event| events.push(event)).unwrap();
        let kinds: Vec<_> = events.iter().map(|event| (event.time_ns, event.address, event.kind)).collect();
        assert_eq!(
            kinds,
            [
                (0, 16, EventKind::Allocated { bytes: 64, sample: 0 }),
                (5_000_000, 32, EventKind::Allocated { bytes: 64, sample: 0 }),
                (5_000_000, 32, EventKind::Freed { bytes: 64, sample: 0 }),
                (5_000_000, 48, EventKind::Allocated { bytes: 8, sample: 1 }),
            ]
        );
        let names = |sample: usize| {
            let places = profile.samples[sample].locations.iter().flat_map(|&at| &profile.locations[at].frames);
            places.map(|frame| format!("{}:{}", frame.function, frame.line)).collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["f:5", "g:9", "main:7"]);
        assert_eq!(names(1), ["0x30 in /a.so:0"]);
        assert_eq!((profile.command.as_str(), profile.duration_ns), ("./a b", 10_000_000));
    }

    #[test]
    fn a_block_may_be_freed_under_another_number() {
        let text = "v 1 3\ns 1 a\ni 1 1\nt 1 0\na 8 1\na 8 1\n+ 0\n+ 0\n- 1\n- 0\n";
        let mut live = Vec::new();
        let mut take = |event: Event| match event.kind {
            EventKind::Allocated { .. } => live.push(event.address),
            EventKind::Freed { .. } => assert_eq!(live.pop(), Some(event.address)),
        };
        read(&mut text.as_bytes(), &mut take).unwrap();
        assert!(live.is_empty());
    }

    const RAW: &str = "v 10400 3\nx 6 /bin/a\nX a\nI 1000 5\nm 1 -\nm 1 x 10000 0 800 1000 500\nm 7 /l b.so 20000 0 100\n\
        t 11204 0\nt 20011 1\nt 99 0\n+ 40 2 7f00\n+ 8 3 7f80\nc 5\n- 7f00\n- 123\nm 1 -\nm 7 /l b.so 10000 0 2000\nt 11204 0\n+ 1 4 7f00\n";

    #[test]
    fn raw_streams_have_modules_and_addresses() {
        let mut events = Vec::new();
        let profile = read(&mut RAW.as_bytes(), &mut |event| events.push(event)).unwrap();
        let kinds: Vec<_> = events.iter().map(|event| (event.time_ns, event.address, event.kind)).collect();
        assert_eq!(
            kinds,
            [
                (0, 0x7f00, EventKind::Allocated { bytes: 64, sample: 0 }),
                (0, 0x7f80, EventKind::Allocated { bytes: 8, sample: 1 }),
                // A block that is not live is not freed.
                (5_000_000, 0x7f00, EventKind::Freed { bytes: 64, sample: 0 }),
                (5_000_000, 0x7f00, EventKind::Allocated { bytes: 1, sample: 2 }),
            ]
        );
        let places = |sample: usize| {
            let places = profile.samples[sample].locations.iter().map(|&at| &profile.locations[at]);
            places
                .map(|place| {
                    let module = place.module.map(|at| &profile.modules[at]);
                    let own = place.address - module.and_then(|module| module.bias).unwrap_or(0);
                    (module.map_or("", |module| module.path.as_str()), own)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(places(0), [("/l b.so", 0x10), ("/bin/a", 0x1203)]);
        assert_eq!(places(1), [("", 0x98)]);
        // The same address after the modules have changed.
        assert_eq!(places(2), [("/l b.so", 0x1203)]);
        assert_eq!((profile.command.as_str(), profile.modules[0].start), ("a", 0x10000));
    }

    #[test]
    fn damage_is_told() {
        for (text, offset) in [
            ("v 1 3\nx 9 a", 6),
            ("v 1 3\nx 1 a\nt 1 1", 12),
            ("v 1 3\nx 1 a\n+ 1 1 1", 12),
            ("v 1 3\nx 1 a\nm 1 x", 12),
            ("v 1 3\nx 1 a\nm 1 x 0 5", 12),
            ("X a", 0),
            ("v 1 4", 0),
            ("v 1 3\n+ 0", 6),
            ("v 1 3\nt 1 0", 6),
            ("v 1 3\ni 1 9", 6),
            ("v 1 3\ns 1 a\ni 1 1\nt 1 0\na 1 1\n- 0", 30),
            ("", 0),
        ] {
            let told = read(&mut text.as_bytes(), &mut |_| {}).unwrap_err();
            assert_eq!(told.offset, offset, "{text}: {told}");
        }
    }
}
