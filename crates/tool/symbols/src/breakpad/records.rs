//! The records of symbol files: one line each, of words.

/// A record. Names are the unchanged bytes.
#[derive(Debug)]
pub(super) enum Record<'a> {
    Module {
        debug_id: &'a str,
    },
    /// A source file.
    File {
        id: u64,
        name: &'a [u8],
    },
    /// The name of functions that were inlined.
    Origin {
        id: u64,
        name: &'a [u8],
    },
    Function {
        address: u64,
        size: u64,
        name: &'a [u8],
    },
    /// An exported name.
    Export {
        address: u64,
        name: &'a [u8],
    },
    /// Code of a source line.
    Line(Line),
    /// A function that was inlined into the function before it.
    Inline(InlineRecord<'a>),
    /// A rule by which stacks are unwound.
    Stack,
    /// No symbol: another identifier of the module, or an empty line.
    Other,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) line: u64,
    pub(super) file: u64,
}

/// A range of addresses of an inlined function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inline {
    /// The number of functions between it and the physical one.
    pub(super) depth: u64,
    pub(super) call_line: u64,
    pub(super) call_file: u64,
    pub(super) origin: u64,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// An inlined function's first range, and the words of the others.
#[derive(Debug)]
pub(super) struct InlineRecord<'a> {
    first: Inline,
    others: Words<'a>,
}

impl InlineRecord<'_> {
    pub(super) fn ranges(mut self) -> impl Iterator<Item = Inline> {
        let first = self.first;
        let others = std::iter::from_fn(move || {
            let address = self.others.hexadecimal("address").ok()?;
            Some(Inline { address, size: self.others.hexadecimal("size").ok()?, ..first })
        });
        std::iter::once(first).chain(others)
    }
}

type Result<T> = std::result::Result<T, String>;

impl<'a> Record<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Result<Record<'a>> {
        let mut words = Words(line);
        let Some(kind) = words.next() else { return Ok(Record::Other) };
        Ok(match kind {
            b"MODULE" => {
                let [_, _] = [words.word("operating system")?, words.word("processor")?];
                let id = words.word("identifier")?;
                let debug_id = str::from_utf8(id).ok().filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
                Record::Module { debug_id: debug_id.ok_or_else(|| bad("identifier", id, "a hexadecimal number"))? }
            }
            b"FILE" => Record::File { id: words.decimal("number of the file")?, name: words.rest() },
            b"INLINE_ORIGIN" => Record::Origin { id: words.decimal("number of the function")?, name: words.rest() },
            b"FUNC" => {
                words.skip(b"m");
                let (address, size) = (words.hexadecimal("address")?, words.hexadecimal("size")?);
                words.hexadecimal("size of the parameters")?;
                Record::Function { address, size, name: words.rest() }
            }
            b"PUBLIC" => {
                words.skip(b"m");
                let address = words.hexadecimal("address")?;
                words.hexadecimal("size of the parameters")?;
                Record::Export { address, name: words.rest() }
            }
            b"INLINE" => {
                let depth = words.decimal("depth")?;
                let (call_line, call_file) = (words.decimal("line of the call")?, words.decimal("file of the call")?);
                let origin = words.decimal("number of the function")?;
                let (address, size) = (words.hexadecimal("address")?, words.hexadecimal("size")?);
                let others = words;
                while !words.rest().is_empty() {
                    words.hexadecimal("address")?;
                    words.hexadecimal("size")?;
                }
                let first = Inline { depth, call_line, call_file, origin, address, size };
                Record::Inline(InlineRecord { first, others })
            }
            b"STACK" => Record::Stack,
            b"INFO" => Record::Other,
            word if word.iter().all(u8::is_ascii_hexdigit) => {
                let mut words = Words(line);
                let (address, size) = (words.hexadecimal("address")?, words.hexadecimal("size")?);
                let (line, file) = (words.line()?, words.decimal("number of the file")?);
                words.end()?;
                Record::Line(Line { address, size, line, file })
            }
            word => return Err(format!("there is no record `{}`", shown(word))),
        })
    }
}

/// The remaining words of a line.
#[derive(Debug, Clone, Copy)]
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.0.trim_ascii_start();
        let (word, rest) = line.split_at(line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len()));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    fn word(&mut self, what: &str) -> Result<&'a [u8]> {
        self.next().ok_or_else(|| format!("the {what} is missing"))
    }

    fn skip(&mut self, word: &[u8]) {
        let mut after = *self;
        if after.next() == Some(word) {
            *self = after;
        }
    }

    /// Takes a line number. Microsoft's tools write negative ones for code without a line.
    fn line(&mut self) -> Result<u64> {
        let before = *self;
        match self.word("line")? {
            [b'-', digits @ ..] if number(digits, 10).is_some() => Ok(0),
            _ => {
                *self = before;
                self.decimal("line")
            }
        }
    }

    fn hexadecimal(&mut self, what: &str) -> Result<u64> {
        let word = self.word(what)?;
        number(word, 16).ok_or_else(|| bad(what, word, "a hexadecimal number of 64 bits"))
    }

    fn decimal(&mut self, what: &str) -> Result<u64> {
        let word = self.word(what)?;
        number(word, 10).ok_or_else(|| bad(what, word, "a decimal number of 64 bits"))
    }

    fn rest(&self) -> &'a [u8] {
        self.0.trim_ascii()
    }

    fn end(&self) -> Result<()> {
        if self.rest().is_empty() { Ok(()) } else { Err(format!("there is more behind it: `{}`", shown(self.rest()))) }
    }
}

/// Returns the number that the text consists of: digits only, without a sign.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = str::from_utf8(digits).ok().filter(|text| !text.starts_with(['+', '-']))?;
    u64::from_str_radix(text, radix).ok()
}

fn bad(what: &str, word: &[u8], wanted: &str) -> String {
    format!("the {what} `{}` is not {wanted}", shown(word))
}

/// Returns the beginning of a word, for a message.
fn shown(word: &[u8]) -> String {
    let start = &word[..word.len().min(40)];
    let more = if start.len() < word.len() { "…" } else { "" };
    format!("{}{more}", start.escape_ascii())
}
