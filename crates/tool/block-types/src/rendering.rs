//! Makes frames from what the debug information and the symbol table have.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use heapledger_symbols::demangle;

use crate::frame::{Lazy, TypedFrame};
use crate::language::Language;
use crate::typed_answer::{RawTyped, TypedAnswer};

/// Makes frames from answers. Keeps all strings that it has given out.
#[derive(Debug, Default)]
pub(crate) struct Rendering {
    strings: HashSet<Arc<str>>,
    demangled: HashMap<Box<[u8]>, Arc<str>>,
    /// Keyed by the name, the plain name and the source file.
    views: HashMap<[usize; 3], Lazy>,
}

impl Rendering {
    /// Returns the frames of an answer; never empty.
    pub(crate) fn frames(&mut self, answer: TypedAnswer) -> Arc<[TypedFrame]> {
        let aliases: Arc<[Arc<str>]> = answer.aliases.iter().map(|name| self.demangled(name)).collect();
        let called = answer.called.as_deref().map(|name| self.string(&String::from_utf8_lossy(name)));
        let mut raw = answer.frames;
        if raw.is_empty() {
            raw.push(RawTyped::default());
        }
        let last = raw.len() - 1;
        let frames = raw.into_iter().enumerate().map(|(at, frame)| {
            let mut frame = self.frame(frame, answer.symbol.as_deref().filter(|_| at == last));
            frame.inlined = at < last;
            frame.aliases = if at == last { aliases.clone() } else { Arc::default() };
            if at == last {
                frame.constructed = answer.constructed.clone();
                frame.received = answer.received.clone();
                frame.called = called.clone();
            }
            frame
        });
        frames.collect()
    }

    /// Makes a frame. `symbol` is the physical function's, if this is that function.
    fn frame(&mut self, frame: RawTyped, symbol: Option<&[u8]>) -> TypedFrame {
        let facts = frame.facts.unwrap_or_default();
        // Line tables have no linkage names, but the symbol table has that of the physical
        // function.
        let linkage = facts.linkage.as_deref().or(symbol).filter(|name| demangle::is_mangled(name));
        let scope = facts.scope.as_deref().map(|scope| self.string(scope));
        let plain = facts.name.as_deref().map(|plain| self.string(plain));
        let name = match (linkage, &plain, &scope) {
            (Some(linkage), ..) => self.demangled(linkage),
            (None, Some(plain), Some(scope)) if !scope.is_empty() => self.string(&format!("{scope}::{plain}")),
            (None, Some(plain), _) => plain.clone(),
            (None, None, _) => self.demangled(symbol.unwrap_or_default()),
        };
        let linkage = linkage.map(|name| self.string(&String::from_utf8_lossy(name)));
        let file = frame.file.map(|file| self.string(&file));
        let address = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.as_ptr().addr());
        let view = [name.as_ptr().addr(), address(&plain), address(&file)];
        let view = self.views.entry(view).or_default().clone();
        TypedFrame {
            name,
            plain,
            scope,
            linkage,
            parameters: facts.parameters.clone(),
            language: frame.language.or_else(|| symbol.map(Language::of_symbol)).unwrap_or(Language::Other),
            file,
            line: frame.line,
            column: frame.column,
            inlined: false,
            aliases: Arc::default(),
            constructed: Arc::default(),
            called: None,
            received: None,
            written: if frame.written.is_empty() { Arc::default() } else { frame.written.into() },
            returns: frame.returns,
            view,
        }
    }

    fn demangled(&mut self, name: &[u8]) -> Arc<str> {
        if let Some(demangled) = self.demangled.get(name) {
            return demangled.clone();
        }
        let demangled = self.string(demangle::function(name).full());
        self.demangled.insert(name.into(), demangled.clone());
        demangled
    }

    fn string(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.strings.insert(text.clone());
        text
    }
}
