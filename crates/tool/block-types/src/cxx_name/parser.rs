//! Parses types and paths.

use super::{Path, Segment, Suffix, Type};

/// The maximum bytes of a name; longer ones are left as they are.
const LENGTH_MAX: usize = 16 << 10;
/// The maximum nesting of types; deeper ones are left as they are.
const DEPTH_MAX: usize = 48;

/// The tokens that can follow `operator` in the name of a function; the first that fits is taken.
const OPERATORS: [&str; 48] = [
    "()",
    "[]",
    "new[]",
    "delete[]",
    " new[]",
    " delete[]",
    " new",
    " delete",
    "->*",
    "->",
    "<=>",
    "<<=",
    ">>=",
    "<<",
    ">>",
    "<=",
    ">=",
    "==",
    "!=",
    "&&",
    "||",
    "++",
    "--",
    "+=",
    "-=",
    "*=",
    "/=",
    "%=",
    "^=",
    "&=",
    "|=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "&",
    "|",
    "~",
    "!",
    "=",
    "<",
    ">",
    ",",
    "\"\"",
    " co_await",
    "co_await",
];

pub(super) struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Option<Self> {
        (text.len() <= LENGTH_MAX).then_some(Parser { text, at: 0 })
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    pub(super) fn at_end(&mut self) -> bool {
        self.space();
        self.rest().is_empty()
    }

    /// Skips what may follow a function's parameters.
    pub(super) fn end_of_function(&mut self) -> bool {
        while self.word("const")
            || self.word("volatile")
            || self.take("&&")
            || self.take("&")
            || self.take("[abi:cxx11]")
        {}
        self.at_end()
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let is_there = self.rest().starts_with(token);
        if is_there {
            self.at += token.len();
        }
        is_there
    }

    /// Takes an identifier if it is this one.
    fn word(&mut self, word: &str) -> bool {
        self.space();
        let is_there = identifier(self.rest()) == word;
        if is_there {
            self.at += word.len();
        }
        is_there
    }

    /// Parses a type; `None` if there is none.
    pub(super) fn of_type(&mut self, depth: usize) -> Option<Type> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut found = Type::default();
        self.qualifiers(&mut found);
        for kind in ["struct", "class", "union", "enum", "typename"] {
            self.word(kind);
        }
        found.path = match self.builtin(&mut found) {
            Some(name) => Path(vec![Segment { name, arguments: None, parameters: None }]),
            None => self.path(depth)?,
        };
        self.qualifiers(&mut found);
        loop {
            self.space();
            if self.take("&&") {
                found.suffixes.push(Suffix::Mark("&&"));
            } else if self.take("&") {
                found.suffixes.push(Suffix::Mark("&"));
            } else if self.take("*") {
                found.suffixes.push(Suffix::Mark("*"));
                loop {
                    if self.word("const") {
                        found.suffixes.push(Suffix::Mark(" const"));
                    } else if self.word("volatile") {
                        found.suffixes.push(Suffix::Mark(" volatile"));
                    } else if !self.word("__restrict") && !self.word("restrict") {
                        break;
                    }
                }
            } else if self.rest().starts_with('[') && !self.rest().starts_with("[abi:") {
                let end = self.rest().find(']')?;
                let extent = self.rest()[1..end].trim();
                found.suffixes.push(Suffix::Array(number(extent)));
                self.at += end + 1;
            } else if self.rest().starts_with('(') {
                let mut inner = String::new();
                let end = balanced(self.rest())?;
                let group = self.rest()[1..end].trim();
                if group.starts_with(['*', '&']) || group.ends_with("::*") {
                    inner = format!("({})", group.replace(' ', ""));
                    self.at += end + 1;
                    self.space();
                    if self.rest().starts_with('[') {
                        // A pointer to an array.
                        let end = self.rest().find(']')?;
                        inner.push_str(&self.rest()[..=end]);
                        self.at += end + 1;
                        found.suffixes.push(Suffix::Array(format!("] {inner} [")));
                        continue;
                    }
                }
                let parameters = self.parameters(depth)?;
                found.suffixes.push(Suffix::Function(inner, parameters));
                while self.word("const") || self.word("noexcept") {}
            } else {
                let from = self.at;
                // A pointer to a member: `int X::*`.
                let member = if self.at_name() { self.path(depth) } else { None };
                match member {
                    Some(path) if self.take("::*") => found.suffixes.push(Suffix::Member(path)),
                    _ => {
                        self.at = from;
                        return Some(found);
                    }
                }
            }
        }
    }

    fn at_name(&mut self) -> bool {
        self.space();
        !identifier(self.rest()).is_empty()
    }

    fn qualifiers(&mut self, found: &mut Type) {
        loop {
            if self.word("const") {
                found.is_const = true;
            } else if self.word("volatile") {
                found.is_volatile = true;
            } else {
                return;
            }
        }
    }

    /// Parses `unsigned long`, in any order and with or without `int`, and `decltype(nullptr)`.
    fn builtin(&mut self, found: &mut Type) -> Option<String> {
        let (mut signed, mut unsigned, mut longs, mut short) = (false, false, 0, false);
        let (mut base, mut any) = ("", false);
        loop {
            self.space();
            let word = identifier(self.rest());
            match word {
                "unsigned" => unsigned = true,
                "signed" => signed = true,
                "long" => longs += 1,
                "short" => short = true,
                "int" | "char" | "double" if base.is_empty() => base = word,
                "const" if any => found.is_const = true,
                _ => break,
            }
            any = true;
            self.at += word.len();
        }
        if !any {
            return None;
        }
        let sign = if unsigned { "unsigned " } else { "" };
        Some(match (base, longs, short) {
            ("char", ..) => format!("{}char", if signed { "signed " } else { sign }),
            ("double", 0, _) => "double".to_owned(),
            ("double", ..) => "long double".to_owned(),
            (_, 0, true) => format!("{sign}short"),
            (_, 0, false) => format!("{sign}int"),
            (_, 1, _) => format!("{sign}long"),
            _ => format!("{sign}long long"),
        })
    }

    fn path(&mut self, depth: usize) -> Option<Path> {
        self.take("::");
        let mut segments = vec![self.segment(depth)?];
        loop {
            let from = self.at;
            if self.rest().starts_with("::") && !self.rest().starts_with("::*") {
                self.at += 2;
                segments.push(self.segment(depth)?);
                continue;
            }
            // Something in a function: `f(int) const::Local`.
            let is_function = self.rest().starts_with('(')
                && balanced(self.rest()).is_some_and(|end| {
                    let behind = self.rest()[end + 1..].trim_start();
                    let behind = behind.strip_prefix("const").unwrap_or(behind).trim_start();
                    let behind = behind.strip_prefix("[abi:cxx11]").unwrap_or(behind);
                    behind.starts_with("::")
                });
            if is_function || self.is_parameters_of_function() {
                let parameters = self.parameters(depth)?;
                segments.last_mut()?.parameters = Some(parameters);
                if is_function {
                    self.word("const");
                    self.take("[abi:cxx11]");
                    self.space();
                    continue;
                }
            } else {
                self.at = from;
            }
            return Some(Path(segments));
        }
    }

    /// True if the bracket after a path has the parameters of a function of this name, not those of
    /// a function type whose result is the path: only if the text ends with it.
    fn is_parameters_of_function(&self) -> bool {
        let rest = self.rest();
        let before = self.text[..self.at].chars().next_back();
        rest.starts_with('(')
            && before.is_some_and(|before| !before.is_whitespace())
            && balanced(rest).is_some_and(|end| {
                let behind = rest[end + 1..].trim();
                behind.is_empty() || matches!(behind, "const" | "volatile" | "&" | "&&" | "const &" | "const&")
            })
    }

    fn segment(&mut self, depth: usize) -> Option<Segment> {
        self.space();
        let rest = self.rest();
        let plain = |name: &str| Segment { name: name.to_owned(), arguments: None, parameters: None };
        for unnamed in ["(anonymous namespace)", "<unnamed>", "{anonymous}", "_GLOBAL__N_1"] {
            if rest.starts_with(unnamed) {
                self.at += unnamed.len();
                return Some(plain("(anonymous namespace)"));
            }
        }
        let first = rest.chars().next()?;
        if let Some(words) =
            rest.strip_prefix("operator").filter(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        {
            return self.operator(words, depth);
        }
        if matches!(first, '{' | '<') || rest.starts_with("(lambda at ") {
            // A closure: `{lambda(int)#1}`, `<lambda(int)>`, `(lambda at a.cc:3:4)`.
            let end = balanced(rest)?;
            self.at += end + 1;
            let inside = &rest[1..end];
            let name = match first {
                '(' => inside.to_owned(),
                _ => inside.split_whitespace().collect::<Vec<_>>().join(" "),
            };
            return Some(plain(&format!("{{{name}}}")));
        }
        if first == '\'' {
            return self.closure_in_quotes();
        }
        if first == '(' || first == '-' || first.is_ascii_digit() {
            return self.literal(depth).map(|value| plain(&value));
        }
        let tilde = usize::from(first == '~');
        let name = identifier(&rest[tilde..]);
        if name.is_empty() {
            return None;
        }
        let name = &rest[..tilde + name.len()];
        self.at += name.len();
        self.take_tag();
        let mut segment = plain(name);
        if self.rest().starts_with('<') && !self.rest().starts_with("<lambda") && !self.rest().starts_with("<unnamed") {
            segment.arguments = Some(self.arguments(depth)?);
            self.take_tag();
        }
        Some(segment)
    }

    /// Skips `[abi:cxx11]` behind a name.
    fn take_tag(&mut self) {
        if self.rest().starts_with("[abi:")
            && let Some(end) = self.rest().find(']')
        {
            self.at += end + 1;
        }
    }

    /// Parses the `'lambda'(int)` of Clang and LLVM.
    fn closure_in_quotes(&mut self) -> Option<Segment> {
        let rest = self.rest();
        let end = rest[1..].find('\'')? + 1;
        self.at += end + 1;
        let mut name = rest[1..end].to_owned();
        if self.rest().starts_with('(') {
            let end = balanced(self.rest())?;
            name.push_str(&self.rest()[..=end]);
            self.at += end + 1;
        }
        Some(Segment { name: format!("{{{name}}}"), arguments: None, parameters: None })
    }

    /// Parses `operator new`, `operator()`, `operator<< <int>`, `operator unsigned long`.
    fn operator(&mut self, words: &str, depth: usize) -> Option<Segment> {
        self.at += "operator".len();
        let symbol = OPERATORS.iter().find(|symbol| words.starts_with(**symbol));
        let name = match symbol {
            Some(symbol) => {
                self.at += symbol.len();
                format!("operator{symbol}")
            }
            None => {
                let mut to = Type::default();
                self.qualifiers(&mut to);
                to.path = match self.builtin(&mut to) {
                    Some(name) => Path(vec![Segment { name, arguments: None, parameters: None }]),
                    None => {
                        let mut segments = vec![self.segment(depth + 1)?];
                        while self.take("::") {
                            segments.push(self.segment(depth + 1)?);
                        }
                        Path(segments)
                    }
                };
                self.qualifiers(&mut to);
                while self.take("*") {
                    to.suffixes.push(Suffix::Mark("*"));
                }
                while self.take("&") {
                    to.suffixes.push(Suffix::Mark("&"));
                }
                format!("operator {}", to.full())
            }
        };
        let mut segment = Segment { name, arguments: None, parameters: None };
        let from = self.at;
        self.space();
        if self.rest().starts_with('<') {
            segment.arguments = Some(self.arguments(depth)?);
        } else {
            self.at = from;
        }
        Some(segment)
    }

    fn arguments(&mut self, depth: usize) -> Option<Vec<Type>> {
        self.at += 1;
        self.types(">", depth)
    }

    fn parameters(&mut self, depth: usize) -> Option<Vec<Type>> {
        self.at += 1;
        let mut found = self.types(")", depth)?;
        if let [only] = &found[..]
            && only.path.is(&["void"])
            && only.suffixes.is_empty()
        {
            found.clear();
        }
        Some(found)
    }

    fn types(&mut self, end: &str, depth: usize) -> Option<Vec<Type>> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut found = Vec::new();
        loop {
            if self.take(end) {
                return Some(found);
            }
            if self.take("...") || self.take(",") {
                continue;
            }
            found.push(self.of_type(depth + 1)?);
            self.space();
            if !self.rest().starts_with([',', '.']) && !self.rest().starts_with(end) {
                return None;
            }
        }
    }

    /// Parses `4ul`, `-1`, `(Colour)1`, `(char)97`; suffixes, and casts to whole numbers, are left
    /// out.
    fn literal(&mut self, depth: usize) -> Option<String> {
        if self.rest().starts_with('(') {
            let end = balanced(self.rest())?;
            let of = Parser::new(&self.rest()[1..end])?.of_type(depth + 1)?;
            self.at += end + 1;
            let value = self.literal(depth + 1)?;
            return Some(if of.known_size().is_some() { value } else { format!("({}){value}", of.full()) });
        }
        self.space();
        let end = self.rest().find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | '+')));
        let text = &self.rest()[..end.unwrap_or(self.rest().len())];
        self.at += text.len();
        (!text.is_empty()).then(|| number(text))
    }
}

/// Returns a number without the suffix that tells its type.
fn number(text: &str) -> String {
    let digits = text.trim_start_matches('-');
    if digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.contains(['.', 'x']) {
        text.trim_end_matches(['u', 'l', 'U', 'L']).to_owned()
    } else {
        text.to_owned()
    }
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &text[..end] }
}

/// Returns the position of the bracket that closes the one at the start, of any kind.
fn balanced(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = b' ';
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' if before == b'-' => {}
            b'>' | b')' | b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        before = byte;
    }
    None
}
