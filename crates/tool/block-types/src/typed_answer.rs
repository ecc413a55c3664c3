//! Reads what an open module has about the types at an address.

use std::sync::Arc;

use heapledger_symbols::OpenModule;

use crate::body::Body;
use crate::constructors::class_of_symbol;
use crate::entries::Entries;
use crate::frame::{Constructed, Pointee, Received, Written};
use crate::known_entries::{Facts, KnownEntries};
use crate::language::Language;
use crate::machine_code;
use crate::source::Sources;
use crate::type_name::TypeName;

/// All that the tables contain about the types at an address.
#[derive(Default)]
pub(crate) struct TypedAnswer {
    /// From the debug information, innermost first.
    pub(crate) frames: Vec<RawTyped>,
    /// From the symbol table.
    pub(crate) symbol: Option<Vec<u8>>,
    /// All symbols at the address of the physical function.
    pub(crate) aliases: Vec<Vec<u8>>,
    pub(crate) constructed: Arc<[Constructed]>,
    /// The use that the physical function makes of the result of the call.
    pub(crate) received: Option<Received>,
    /// The function of another module that is called there.
    pub(crate) called: Option<Vec<u8>>,
}

/// One function at an address, with the type information of its entry.
#[derive(Default)]
pub(crate) struct RawTyped {
    pub(crate) facts: Option<Arc<Facts>>,
    pub(crate) language: Option<Language>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) written: Vec<Written>,
    pub(crate) returns: Option<Pointee>,
}

impl TypedAnswer {
    /// Reads it. `known` are the entries that were read for other addresses of the module.
    pub(crate) fn read(
        address: u64,
        known: &mut KnownEntries,
        sources: &mut Sources,
        module: &mut OpenModule<'_, '_>,
    ) -> Self {
        let symbol = module.symbol(address);
        let aliases = symbol.iter().flat_map(|symbol| &symbol.aliases).map(|name| name.to_vec()).collect();
        let mut entries = Entries { units: module.units(), known };
        let (frames, body) = frames(address, &mut entries, sources, module);
        let (constructed, received) = call_site(address, &frames, body.as_deref(), &mut entries, module);
        let symbol = symbol.map(|symbol| symbol.name.to_vec());
        let called = called(address, module).map(<[u8]>::to_vec);
        Self { frames, symbol, aliases, constructed: constructed.into(), received, called }
    }
}

/// Returns the functions at an address, and the body of the physical one if that is C or C++.
fn frames<'a>(
    address: u64,
    entries: &mut Entries<'_, 'a>,
    sources: &mut Sources,
    module: &mut OpenModule<'_, 'a>,
) -> (Vec<RawTyped>, Option<Arc<Body>>) {
    let mut last = None;
    let frames = module.each_frame(address, |frame| {
        let (file, line, column) = (frame.file, frame.line, frame.column);
        let language = frame.language.map(Language::of_unit);
        let known = language.unwrap_or(Language::Other);
        let facts = frame.entry.and_then(|(unit, entry)| entries.function(unit, entry, known));
        let (mut written, mut returns) = (Vec::new(), None);
        last = None;
        if let Some((unit, entry)) = frame.entry
            && matches!(known, Language::C | Language::Cxx)
        {
            if let (Some(file), Some(line)) = (&file, line) {
                let texts = sources.text(file, line, column, known == Language::Cxx);
                written = texts.iter().filter_map(|text| entries.written(unit, entry, known, line, text)).collect();
            }
            let pointee = entries.returned(unit, entry);
            returns = pointee.map(|(name, size)| Pointee { type_name: TypeName::new(known, &name), size });
            last = Some(entry);
        }
        RawTyped { facts, language, file, line, column, written, returns }
    });
    let body = last.and_then(|function| entries.body(module.unit_at(address)?, function));
    (frames, body)
}

/// Returns the use that the code after a call at `address` (an address in the call) makes of the
/// result.
fn call_site<'a>(
    address: u64,
    frames: &[RawTyped],
    body: Option<&Body>,
    entries: &mut Entries<'_, 'a>,
    module: &OpenModule<'_, 'a>,
) -> (Vec<Constructed>, Option<Received>) {
    let language = frames.last().map_or(Some(Language::Cxx), |frame| frame.language);
    let Some(language) = language.filter(|language| matches!(language, Language::C | Language::Cxx)) else {
        return (Vec::new(), None);
    };
    let Some(after) = address.checked_add(1) else { return (Vec::new(), None) };
    let code = module.code_at(after);
    let code = &code[..code.len().min(machine_code::WINDOW as usize)];
    let received = body.and_then(|body| body.received(after, code, language));
    let mut constructed = body.map(|body| body.constructed(after)).unwrap_or_default();
    if language == Language::Cxx {
        constructed.extend(constructors_called(after, code, entries, module));
    }
    constructed.sort_by_key(|found| found.distance);
    (constructed, received)
}

fn constructors_called<'a>(
    after: u64,
    code: &[u8],
    entries: &mut Entries<'_, 'a>,
    module: &OpenModule<'_, 'a>,
) -> Vec<Constructed> {
    let mut found = Vec::new();
    for (at, distance) in machine_code::calls(code) {
        let Some(target) = after.checked_add_signed(distance).filter(|&target| target != u64::MAX) else {
            continue;
        };
        let Some(symbol) = module.symbol(target).filter(|symbol| symbol.start == target) else { continue };
        let Some(class) = symbol.aliases.iter().find_map(|name| class_of_symbol(name)) else { continue };
        let class = TypeName::new(Language::Cxx, &class.full());
        let function = module.function_at(target);
        let known = function.and_then(|(unit, entry)| entries.constructed_class(unit, entry));
        let size = known.and_then(|known| known.1);
        let (line, column) = module.location_at(after.saturating_add(u64::from(at)).min(u64::MAX - 1));
        found.push(Constructed { class, size, distance: at, line, column });
    }
    found
}

/// Returns the name of another module's function that a call at `address` (an address in the call)
/// calls through the table of addresses that the dynamic linker fills.
fn called<'a>(address: u64, module: &OpenModule<'_, 'a>) -> Option<&'a [u8]> {
    const LONGEST: u64 = 6;
    let after = address.checked_add(1)?;
    let call = module.code_at(after.checked_sub(LONGEST)?).first_chunk::<{ LONGEST as usize }>()?;
    let slot = machine_code::slot_of_call(call, after, |stub| module.code_at(stub))?;
    module.function_in_slot(slot)
}
