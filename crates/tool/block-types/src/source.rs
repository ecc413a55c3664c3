//! Reads the type of a block from the source line that allocates it: `new Point(1, 2)`,
//! `malloc(n * sizeof *points)`.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The maximum bytes of a source file; longer ones are not read.
const FILE_MAX: u64 = 16 << 20;
/// The maximum bytes kept of all files.
const KEPT_MAX: usize = 256 << 20;
/// The maximum number of lines before that of the call on which the expression may begin.
const LINES_BEFORE: usize = 8;
/// The maximum number of characters of the expression that are examined.
const TEXT_MAX: usize = 2048;

/// Source files that have been read.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: HashMap<Arc<str>, Option<Arc<Source>>>,
    kept: usize,
}

#[derive(Debug)]
struct Source {
    text: String,
    /// The offsets of lines.
    lines: Vec<usize>,
}

/// The source text at an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// `new X`, `new X[n]`.
    New { of: String, is_array: bool },
    /// `sizeof(X)` and `sizeof x`, among the arguments of a call.
    SizeOf { of: String, is_array: bool, is_more: bool },
    /// `x = …`, `T *x = …`: the variable that receives the result.
    Into(String),
}

impl Sources {
    /// Returns the texts at a source location, the most certain first; empty if the source is
    /// missing or has none.
    pub(crate) fn text(&mut self, file: &str, line: u32, column: Option<u32>, is_cxx: bool) -> Vec<Text> {
        let Some(source) = self.source(file) else { return Vec::new() };
        source
            .around(line as usize, column.unwrap_or(0) as usize)
            .map(|(text, at)| read(&text, at, is_cxx))
            .unwrap_or_default()
    }

    fn source(&mut self, file: &str) -> Option<Arc<Source>> {
        if let Some(known) = self.files.get(file) {
            return known.clone();
        }
        let read = if self.kept < KEPT_MAX { Source::open(Path::new(file)).map(Arc::new) } else { None };
        self.kept += read.as_ref().map_or(0, |source| source.text.len());
        self.files.insert(file.into(), read.clone());
        read
    }
}

impl Source {
    fn open(path: &Path) -> Option<Source> {
        // Only regular files: others may block or never end.
        let data = fs::metadata(path).ok().filter(|data| data.is_file() && data.len() <= FILE_MAX)?;
        let mut bytes = Vec::with_capacity(data.len() as usize);
        fs::File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Some(Source { text, lines })
    }

    /// Returns the text around a source location, some lines before and behind it, without
    /// comments, and the location's offset in it.
    fn around(&self, line: usize, column: usize) -> Option<(String, usize)> {
        let at = *self.lines.get(line.checked_sub(1)?)?;
        let line_end = self.lines.get(line).copied().unwrap_or(self.text.len());
        let end = self.lines.get(line + LINES_BEFORE).copied().unwrap_or(self.text.len());
        let start =
            self.lines[line.saturating_sub(1 + LINES_BEFORE)].max(floor(&self.text, at.saturating_sub(TEXT_MAX)));
        let place = if column == 0 { at } else { floor(&self.text, (at + column - 1).min(line_end)) };
        let end = floor(&self.text, end.min(line_end + TEXT_MAX));
        let before = blank(&self.text[start..place]);
        let all = before.clone() + &blank(&self.text[place..end]);
        Some((all, before.len()))
    }
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Replaces comments and quoted text by spaces; the length stays the same.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            let mut end = 1;
            let bytes = rest.as_bytes();
            while end < bytes.len() && bytes[end] != b'"' && bytes[end] != b'\n' {
                end += 1 + usize::from(bytes[end] == b'\\');
            }
            (end + 1).min(rest.len())
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let end = floor(rest, end).max(first.len_utf8());
        out.extend(rest[..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        rest = &rest[end..];
    }
    out
}

/// Returns what the text tells about the call at `at`, the most certain first.
fn read(text: &str, at: usize, is_cxx: bool) -> Vec<Text> {
    let mut found = Vec::new();
    if is_cxx {
        found.extend(new_at(text, at).and_then(|new| of_new(&text[new + 3..])));
    }
    if found.is_empty() {
        let (start, end) = statement(text, at);
        let own = &text[start..end];
        found.extend(of_sizeof(own, at.saturating_sub(start)));
        found.extend(into(own, at.saturating_sub(start)));
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the positions of a word.
fn words<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !text[..at].ends_with(is_word)
            && !text[at + word.len()..].starts_with(is_word)
            && !text[..at].ends_with("operator ")
    })
}

/// Returns the position of the `new` that a call at `at` belongs to. Compilers give the position of
/// the `new`, of the bracket that ends the expression, or of something before.
fn new_at(text: &str, at: usize) -> Option<usize> {
    let places: Vec<usize> = words(text, "new").collect();
    if places.contains(&at) {
        return Some(at);
    }
    let line_start = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    if text[at..].starts_with([')', '}', ']']) {
        // The last `new` whose expression ends here.
        let ends_here = |&&new: &&usize| {
            let Some(open) = text[new..at].find(['(', '{', '[']) else { return false };
            // `new (place) X(…)` has two pairs.
            let mut open = new + open;
            loop {
                let Some(close) = closing(&text[open..]) else { return false };
                let close = open + close;
                if close == at {
                    return true;
                }
                if close > at {
                    return false;
                }
                match text[close..at].find(['(', '{', '[']) {
                    Some(next) => open = close + next,
                    None => return false,
                }
            }
        };
        if let Some(&new) = places.iter().filter(|&&new| new < at).rev().take(4).find(ends_here) {
            return Some(new);
        }
    }
    let on_line: Vec<usize> = places.into_iter().filter(|new| (line_start..line_end).contains(new)).collect();
    match on_line[..] {
        [only] => Some(only),
        _ => {
            // If there are several, the one whose type contains the position, or that precedes it.
            let before = on_line.iter().rev().find(|&&new| new <= at).copied();
            let in_type = before.filter(|&new| !text[new..at].contains(['(', ';', '{']));
            let (own, rest): (Vec<usize>, Vec<usize>) =
                on_line.iter().partition(|&&new| text[at..].starts_with('(') && new > at);
            in_type.or(if own.len() == 1 && rest.is_empty() { own.first().copied() } else { None })
        }
    }
}

/// Parses `X` behind `new`, and whether there are several.
fn of_new(text: &str) -> Option<Text> {
    let mut rest = text.trim_start();
    // Skips placement, such as `(std::nothrow)`.
    while rest.starts_with('(') {
        let close = closing(rest)?;
        let behind = rest[close + 1..].trim_start();
        if !behind.starts_with(|c: char| is_word(c) || c == ':' || c == '(') {
            rest = rest[1..close].trim();
            break;
        }
        rest = behind;
    }
    let end = match rest.strip_prefix("decltype") {
        Some(operand) if operand.starts_with('(') => "decltype".len() + closing(operand)? + 1,
        _ => type_end(rest),
    };
    let of = rest[..end].split_whitespace().collect::<Vec<_>>().join(" ");
    let is_array = rest[end..].trim_start().starts_with('[');
    (!of.is_empty() && !of.starts_with("auto")).then_some(Text::New { of, is_array })
}

/// Returns the end of a type in an expression: `const std::pair<int, X> *` before `(1)`.
fn type_end(text: &str) -> usize {
    let mut at = 0;
    let mut named = false;
    loop {
        let rest = &text[at..];
        let skip = rest.len() - rest.trim_start().len();
        let rest = &rest[skip..];
        let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if word > 0 {
            const MORE: [&str; 14] = [
                "const", "volatile", "unsigned", "signed", "long", "short", "int", "char", "double", "struct", "class",
                "enum", "union", "typename",
            ];
            let is_more = MORE.contains(&&rest[..word]);
            let was_scope = text[..at].trim_end().ends_with("::") || at == 0;
            if named && !is_more && !was_scope {
                return at;
            }
            named = named
                || !is_more
                || !matches!(&rest[..word], "const" | "volatile" | "struct" | "class" | "enum" | "union" | "typename");
            at += skip + word;
        } else if rest.starts_with("::") {
            at += skip + 2;
            named = false;
        } else if rest.starts_with('<') && named {
            let Some(close) = closing_angle(rest) else { return at };
            at += skip + close + 1;
        } else if rest.starts_with(['*', '&']) && named {
            at += skip + 1;
        } else {
            return at;
        }
    }
}

/// Returns the position of the `>` that closes the `<` at the start.
fn closing_angle(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices().take(TEXT_MAX) {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            ';' | '{' => return None,
            _ => {}
        }
    }
    None
}

/// Returns the position of the bracket that closes the round, curly or square one at the start.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices().take(TEXT_MAX) {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the bounds of the statement at a position.
fn statement(text: &str, at: usize) -> (usize, usize) {
    let start = text[..at].rfind([';', '{', '}']).map_or(0, |start| start + 1);
    let end = text[at..].find([';', '{', '}']).map_or(text.len(), |end| at + end);
    // The position is at the very end of the statement before.
    if text[start..end].trim().is_empty() {
        let start = end.min(text.len());
        let next = text[start..].trim_start_matches([';', '{', '}', ' ', '\n', '\t']);
        let start = text.len() - next.len();
        let end = next.find([';', '{', '}']).map_or(text.len(), |end| start + end);
        return (start.min(at).max(start), end.max(start));
    }
    (start, end)
}

/// Returns the operand of the `sizeof` that a call at `at` has, or the only one.
fn of_sizeof(statement: &str, at: usize) -> Option<Text> {
    let at = at.min(statement.len());
    let behind = words(&statement[floor(statement, at)..], "sizeof").map(|found| found + at).next();
    let sizeof = behind.or_else(|| words(statement, "sizeof").last())?;
    let rest = statement[sizeof + "sizeof".len()..].trim_start();
    let (of, behind) = if rest.starts_with('(') && operand_ends_at_bracket(rest) {
        let close = closing(rest)?;
        (rest[1..close].trim(), &rest[close + 1..])
    } else {
        let end = expression_end(rest);
        (rest[..end].trim(), &rest[end..])
    };
    if of.is_empty() {
        return None;
    }
    let before = statement[..sizeof].trim_end();
    let behind = behind.trim_start();
    // `calloc(n, sizeof x)` makes an array, `calloc(1, …)` does not.
    let counted = before.rfind("calloc").and_then(|call| {
        let arguments = before[call..].split_once('(')?.1;
        let count = arguments.split_once(',')?.0.trim();
        Some(count != "1")
    });
    let is_array = before.ends_with('*') || behind.starts_with('*') || counted.unwrap_or(false);
    let is_more = before.ends_with('+') || behind.starts_with('+');
    Some(Text::SizeOf { of: of.split_whitespace().collect::<Vec<_>>().join(" "), is_array, is_more })
}

/// True if the operand of `sizeof` is the text in the bracket, and not an expression that begins
/// with it: `(*p)->x`.
fn operand_ends_at_bracket(text: &str) -> bool {
    closing(text).is_some_and(|close| {
        let behind = text[close + 1..].trim_start();
        !behind.starts_with("->") && !behind.starts_with('.') && !behind.starts_with('[')
    })
}

/// Returns the end of an expression such as `*table->points[0]`.
fn expression_end(text: &str) -> usize {
    let mut at = text.len() - text.trim_start_matches(['*', ' ', '&']).len();
    loop {
        let rest = &text[at..];
        let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if word > 0 {
            at += word;
        } else if rest.starts_with("->") {
            at += 2;
        } else if rest.starts_with('.') {
            at += 1;
        } else if rest.starts_with(['[', '(']) {
            match closing(rest) {
                Some(close) => at += close + 1,
                None => return at,
            }
        } else {
            return at;
        }
    }
}

/// Returns the variable that a call's result is stored in: the expression before the last `=` in
/// front of it.
fn into(statement: &str, at: usize) -> Option<Text> {
    let at = floor(statement, at);
    // Compilers give the position of the call, which is behind the `=`, or of the `=` itself, or of
    // the statement.
    let is_assignment = |&found: &usize| {
        let before = statement[..found].chars().next_back();
        let behind = statement[found + 1..].chars().next();
        !matches!(before, Some('=' | '!' | '<' | '>' | '+' | '-' | '*' | '/' | '|' | '&' | '^' | '%'))
            && behind != Some('=')
    };
    let all: Vec<usize> = statement.match_indices('=').map(|(found, _)| found).filter(is_assignment).collect();
    let found = all.iter().rev().find(|&&found| found <= at).or(all.first())?;
    let before = statement[..*found].trim_end();
    let mut start = before.len();
    loop {
        let head = &before[..start];
        let Some(last) = head.chars().next_back() else { break };
        if is_word(last) || last == '.' {
            start -= last.len_utf8();
        } else if head.ends_with("->") {
            start -= 2;
        } else if last == ']' {
            let mut depth = 0usize;
            let open = head.char_indices().rev().find(|(_, c)| {
                match c {
                    ']' => depth += 1,
                    '[' => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            start = open?.0;
        } else {
            break;
        }
    }
    let mut of = before[start..].to_owned();
    // `*x = malloc(…)`, as distinct from `T *x = …`.
    let head = before[..start].trim_end();
    if head.ends_with('*') && head.trim_end_matches(['*', ' ']).is_empty() {
        of.insert(0, '*');
    }
    (!of.is_empty()).then_some(Text::Into(of))
}

#[cfg(test)]
mod tests {
    use heapledger_core::sample::Random;

    use super::*;
    use crate::testing::damaged_text;

    fn new(of: &str, is_array: bool) -> Option<Text> {
        Some(Text::New { of: of.to_owned(), is_array })
    }

    #[track_caller]
    fn at(text: &str, is_cxx: bool) -> Vec<Text> {
        let at = text.find('@').unwrap();
        read(&blank(&text.replacen('@', "", 1)), at, is_cxx)
    }

    #[test]
    fn the_type_of_new() {
        assert_eq!(at("keep(@new Point(1, 2));", true).first().cloned(), new("Point", false));
        assert_eq!(at("keep(new Point(1, 2@));", true).first().cloned(), new("Point", false));
        assert_eq!(at("keep@(new int[7]);", true).first().cloned(), new("int", true));
        assert_eq!(at("new a::B<int, C<3>>{f(new D(1@)), 2};", true).first().cloned(), new("D", false));
        assert_eq!(at("new a::B<int, C<3>>{f(new D(1)), 2@};", true).first().cloned(), new("a::B<int, C<3>>", false));
        assert_eq!(at("x = @new (std::nothrow) const char *[n];", true).first().cloned(), new("const char *", true));
        assert_eq!(at("x = @new (place) X;", true).first().cloned(), new("X", false));
        assert_eq!(at("x = @new unsigned long long(3);", true).first().cloned(), new("unsigned long long", false));
        assert_eq!(at("x = @new decltype(y.z)(3);", true).first().cloned(), new("decltype(y.z)", false));
        assert_eq!(at("x = new\n   P(3,4@);", true).first().cloned(), new("P", false));
        assert_eq!(at("y = new A(1); x = f(new B(2@));", true).first().cloned(), new("B", false));
        assert_eq!(at("@x = new auto(3);", true), [Text::Into("x".to_owned())]);
    }

    #[test]
    fn the_operand_of_sizeof_and_what_it_is_put_into() {
        let sizeof = |of: &str, is_array, is_more| Text::SizeOf { of: of.to_owned(), is_array, is_more };
        let into = |of: &str| Text::Into(of.to_owned());
        assert_eq!(
            at("struct node *n = @malloc(sizeof(struct node));", false),
            [sizeof("struct node", false, false), into("n")]
        );
        assert_eq!(at("{ n = @malloc(sizeof *n); }", false), [sizeof("*n", false, false), into("n")]);
        assert_eq!(at("p = @malloc(length(5) * sizeof *p); q = 3;", false), [sizeof("*p", true, false), into("p")]);
        assert_eq!(at("t->b = @calloc(n, sizeof *t->b);", false), [sizeof("*t->b", true, false), into("t->b")]);
        assert_eq!(
            at("t.b[3] = @calloc(1, sizeof(t->b[0]));", false),
            [sizeof("t->b[0]", false, false), into("t.b[3]")]
        );
        assert_eq!(at("m = @xmalloc(sizeof *m + length(9));", false), [sizeof("*m", false, true), into("m")]);
        assert_eq!(at("if ((m = @malloc(9)) == NULL) return;", false), [into("m")]);
        assert_eq!(at("return @malloc(9);", false), []);
        assert_eq!(at("*out = @malloc(9);", false), [into("*out")]);
    }

    #[test]
    fn nothing_breaks_it() {
        let sample = "T<a, b> *p[3] = new (x) A::B<C>(f(\"q\\\"\"), '/*') ; /* é */ *p->q.r[1] = calloc(n, sizeof (*p)->x[2]) // e\n";
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let (text, at) = damaged_text(sample, 5, &mut random);
            let blanked = blank(&text);
            read(&blanked, floor(&blanked, at), random.below(2) == 0);
        }
    }
}
