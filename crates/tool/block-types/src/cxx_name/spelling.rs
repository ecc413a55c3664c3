//! Writes names in their one spelling: in full, or without default arguments and inline namespaces.

use std::fmt::{self, Write};

use super::{Path, Segment, Suffix, Type, is_inline_namespace};

impl Type {
    pub(crate) fn full(&self) -> String {
        self.text(false)
    }

    /// Returns the name without default arguments and inline namespaces.
    pub(crate) fn short(&self) -> String {
        self.text(true)
    }

    fn text(&self, short: bool) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = self.write(&mut out, short);
        out
    }

    fn write(&self, out: &mut String, short: bool) -> fmt::Result {
        if self.is_const {
            out.push_str("const ");
        }
        if self.is_volatile {
            out.push_str("volatile ");
        }
        self.path.write(out, short)?;
        for suffix in &self.suffixes {
            match suffix {
                Suffix::Mark(mark) => out.push_str(mark),
                Suffix::Array(extent) => write!(out, "[{extent}]")?,
                Suffix::Member(path) => {
                    out.push(' ');
                    path.write(out, short)?;
                    out.push_str("::*");
                }
                Suffix::Function(inner, parameters) => {
                    write!(out, " {inner}(")?;
                    list(out, parameters, short)?;
                    out.push(')');
                }
            }
        }
        Ok(())
    }
}

impl Path {
    pub(crate) fn full(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out, false);
        out
    }

    pub(crate) fn short(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out, true);
        out
    }

    fn write(&self, out: &mut String, short: bool) -> fmt::Result {
        match self.standard_alias().filter(|_| short) {
            Some((name, rest)) => {
                out.push_str(name);
                write_segments(out, rest, short, false)
            }
            None => write_segments(out, &self.0, short, true),
        }
    }

    /// Returns `std::string` for `std::basic_string<char, …>` at the front, and what follows it.
    fn standard_alias(&self) -> Option<(&'static str, &[Segment])> {
        let at = self.0.iter().position(|segment| segment.arguments.is_some())?;
        if !self.is_in_std() || self.0[1..at].iter().any(|segment| !is_inline_namespace(&segment.name)) {
            return None;
        }
        let segment = &self.0[at];
        let arguments = segment.kept_arguments();
        let [character] = arguments else { return None };
        let character = character.short();
        let name = match (&*segment.name, &*character) {
            ("basic_string", "char") => "std::string",
            ("basic_string", "wchar_t") => "std::wstring",
            ("basic_string", "char8_t") => "std::u8string",
            ("basic_string", "char16_t") => "std::u16string",
            ("basic_string", "char32_t") => "std::u32string",
            ("basic_string_view", "char") => "std::string_view",
            ("basic_ostream", "char") => "std::ostream",
            ("basic_istream", "char") => "std::istream",
            ("basic_ostringstream", "char") => "std::ostringstream",
            ("basic_istringstream", "char") => "std::istringstream",
            ("basic_stringstream", "char") => "std::stringstream",
            ("basic_stringbuf", "char") => "std::stringbuf",
            ("basic_ofstream", "char") => "std::ofstream",
            ("basic_ifstream", "char") => "std::ifstream",
            ("basic_fstream", "char") => "std::fstream",
            ("basic_filebuf", "char") => "std::filebuf",
            _ => return None,
        };
        Some((name, &self.0[at + 1..]))
    }
}

fn write_segments(out: &mut String, segments: &[Segment], short: bool, mut is_first: bool) -> fmt::Result {
    let in_std = segments.first().is_some_and(|first| first.name == "std");
    for segment in segments {
        if short && in_std && is_inline_namespace(&segment.name) {
            continue;
        }
        if !is_first {
            out.push_str("::");
        }
        is_first = false;
        out.push_str(&segment.name);
        if let Some(arguments) = &segment.arguments {
            let arguments = if short { segment.kept_arguments() } else { arguments };
            out.push('<');
            list(out, arguments, short)?;
            out.push('>');
        }
        if let Some(parameters) = &segment.parameters {
            out.push('(');
            list(out, parameters, short)?;
            out.push(')');
        }
    }
    Ok(())
}

fn list(out: &mut String, types: &[Type], short: bool) -> fmt::Result {
    for (at, argument) in types.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        argument.write(out, short)?;
    }
    Ok(())
}

impl Segment {
    /// Returns the arguments without trailing default arguments of the standard library's
    /// templates.
    fn kept_arguments(&self) -> &[Type] {
        let arguments = self.arguments.as_deref().unwrap_or_default();
        let mut kept = arguments;
        while let [first, .., last] = kept {
            let is_default = last.suffixes.is_empty() && last.is_default(first, kept);
            if !is_default {
                break;
            }
            kept = &kept[..kept.len() - 1];
        }
        kept
    }
}

impl Type {
    /// True if this is the template's default argument, given `first`.
    fn is_default(&self, first: &Type, arguments: &[Type]) -> bool {
        let Some(last) = self.path.last() else { return false };
        if last.name.starts_with('(') {
            return last.name.contains("_Lock_policy)");
        }
        if !self.path.is_in_std() {
            return false;
        }
        let own = last.arguments.as_deref().unwrap_or_default();
        match &*last.name {
            "allocator" => true,
            "char_traits" | "less" | "hash" | "equal_to" | "default_delete" => own.first() == Some(first),
            // For a stack, a queue, a priority queue.
            "deque" | "vector" => arguments.len() == 2 && own.first() == Some(first),
            _ => false,
        }
    }
}
