//! Finds malloc's functions of known static C libraries by their code.
//!
//! `.ci/signatures` makes the signatures from the libraries of distributions: the first bytes of
//! each function, with all bytes masked that the linker may write. The code of one version of a
//! library is the same in all programs that are linked with it.

use memchr::memmem;

use super::names::MALLOC;
use super::new_entry;
use super::symbols::Function;
use crate::allocator::{Allocator, Entry, Evidence, Family};
use crate::module::Module;

const SIGNATURES: &str = include_str!("signatures.txt");

/// The signatures of one version of a library.
#[derive(Debug)]
struct Library {
    family: Family,
    functions: Vec<Signature>,
}

#[derive(Debug)]
struct Signature {
    name: &'static str,
    /// The bytes of the whole function.
    length: u64,
    /// Its first bytes; `None` for one that the linker may write.
    bytes: Vec<Option<u8>>,
    /// The longest run of bytes that it does not write, by which places are searched.
    anchor: Vec<u8>,
    /// The index of the anchor's first byte.
    anchor_at: usize,
}

/// Returns the allocator of the library of which most functions are found; the first of several.
pub(super) fn find(module: &Module) -> Option<Allocator> {
    let mut best: Option<Allocator> = None;
    for library in libraries() {
        let entries: Vec<Entry> = library.functions.iter().filter_map(|function| function.find(module)).collect();
        if entries.len() > best.as_ref().map_or(0, |best| best.entries.len()) {
            best = Some(Allocator { family: library.family, prefix: String::new(), entries });
        }
    }
    best
}

impl Signature {
    /// Returns the entry if the code occurs exactly once.
    fn find(&self, module: &Module) -> Option<Entry> {
        let mut places = module.segments().flat_map(|(address, code)| {
            let finder = memmem::find_iter(code, &self.anchor);
            let starts = finder.filter_map(|at| at.checked_sub(self.anchor_at));
            let matching: Vec<usize> = starts.filter(|&start| self.is_at(&code[start..])).take(2).collect();
            matching.into_iter().map(move |start| address + start as u64)
        });
        let at = places.next().filter(|_| places.next().is_none())?;
        let &(_, kind) = MALLOC.iter().find(|(name, _)| *name == self.name)?;
        let function = Function { at, size: self.length, evidence: Evidence::Signature, is_exported: false };
        Some(new_entry(self.name.to_owned(), kind, function))
    }

    fn is_at(&self, code: &[u8]) -> bool {
        let is_same = |(wanted, byte): (&Option<u8>, &u8)| wanted.is_none_or(|wanted| wanted == *byte);
        code.len() >= self.bytes.len() && self.bytes.iter().zip(code).all(is_same)
    }
}

/// Returns the signatures of all libraries.
fn libraries() -> Vec<Library> {
    let mut libraries: Vec<Library> = vec![];
    for line in SIGNATURES.lines() {
        if let Some(library) = line.strip_prefix("= ") {
            let family = if library.starts_with("glibc ") { Family::Glibc } else { Family::Musl };
            libraries.push(Library { family, functions: vec![] });
        } else if let (Some(library), Some(signature)) = (libraries.last_mut(), signature(line)) {
            library.functions.push(signature);
        }
    }
    libraries
}

/// Reads a line: the name, the length, and two digits for each byte, or dots.
fn signature(line: &'static str) -> Option<Signature> {
    let mut words = line.split(' ');
    let (name, length, pattern) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let digits = pattern.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
    let bytes: Vec<Option<u8>> = digits.map(|pair| u8::from_str_radix(pair, 16).ok()).collect();
    let mut at = 0;
    let mut runs = vec![];
    for run in bytes.split(|byte| byte.is_none()) {
        runs.push((run.len(), at));
        at += run.len() + 1;
    }
    // The first of the longest.
    let (length_of_run, anchor_at) = runs.into_iter().rev().max_by_key(|(length, _)| *length)?;
    let anchor = bytes[anchor_at..anchor_at + length_of_run].iter().flatten().copied().collect();
    Some(Signature { name, length, bytes, anchor, anchor_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_signature() {
        let lines = SIGNATURES.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '=']));
        let functions: Vec<Signature> = libraries().into_iter().flat_map(|library| library.functions).collect();
        assert_eq!(functions.len(), lines.count());
        for function in &functions {
            assert!(MALLOC.iter().any(|(name, _)| *name == function.name), "{}", function.name);
            assert!(function.anchor.len() >= 6, "{} has an anchor of {} bytes", function.name, function.anchor.len());
            let code: Vec<u8> = function.bytes.iter().map(|byte| byte.unwrap_or(0x77)).collect();
            assert!(function.is_at(&code) && !function.is_at(&code[1..]));
            assert_eq!(&code[function.anchor_at..][..function.anchor.len()], function.anchor);
        }
    }

    #[test]
    fn code_that_occurs_twice_is_not_taken() {
        let all = libraries();
        let function = &all[0].functions[0];
        let code: Vec<u8> = function.bytes.iter().map(|byte| byte.unwrap_or(0x77)).collect();
        let of = |code: &[u8]| function.find(&crate::plan::tests::module(code)).map(|entry| entry.at & 0xfff);
        assert_eq!(of(&[&[0x90; 32][..], &code].concat()), Some(32));
        assert_eq!(of(&[&code[..], &code].concat()), None);
        assert_eq!(of(&code[..code.len() - 1]), None);
    }
}
