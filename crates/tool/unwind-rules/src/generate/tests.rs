use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindOffset, UnwindSection,
};
use heapledger_wire::module_table::search;
use object::{Object, ObjectSection, ObjectSymbol};

use super::*;
use crate::FileRules;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The CFA and the place of rbp, as a description has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    register: u16,
    offset: i64,
    saved: Option<i64>,
}

/// Returns the rule that a description has for an address; `None` if it has another form.
fn evaluate<'a, Section: UnwindSection<Bytes<'a>>>(
    description: &FrameDescriptionEntry<Bytes<'a>>,
    frames: &Section,
    bases: &BaseAddresses,
    address: u64,
    context: &mut UnwindContext<usize>,
) -> Option<Found> {
    let row = description.unwind_info_for_address(frames, bases, context, address).unwrap();
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
    let saved = match row.register(Register(6)) {
        Some(RegisterRule::Offset(offset)) => Some(offset),
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => None,
        _ => return None,
    };
    let has_caller = row.register(Register(16)) == Some(RegisterRule::Offset(-8));
    has_caller.then_some(Found { register: register.0, offset, saved })
}

/// The comparison of generated rules with those of `.eh_frame`, at all calls.
#[derive(Debug, Default)]
struct Comparison {
    calls: usize,
    /// The calls for which there is a rule.
    made: usize,
    /// The number of calls whose rule is by another register.
    another_way: usize,
    wrong: Vec<(u64, Found, Found)>,
}

/// Compares the rules that the code of a file gives, without its descriptions, with those of its
/// `.eh_frame` or `.debug_frame`.
fn compare(bytes: &[u8], truth: &str) -> Comparison {
    let file = Elf::parse(bytes).unwrap();
    let rows = rows(&file, &[], &[]);
    let generated = encode::encode(&rows, 0);
    let section = file.section_by_name(truth).unwrap();
    let (data, bases) = (section.data().unwrap(), BaseAddresses::default().set_eh_frame(section.address()));
    let code = Code::read(&file, &[]);
    let mut comparison = Comparison::default();
    if truth == ".eh_frame" {
        comparison.add(&EhFrame::from(EndianSlice::new(data, LittleEndian)), &bases, &code, &rows, &generated);
    } else {
        let mut frames = DebugFrame::from(EndianSlice::new(data, LittleEndian));
        frames.set_address_size(8);
        comparison.add(&frames, &bases, &code, &rows, &generated);
    }
    comparison
}

impl Comparison {
    fn add<'a, Section: UnwindSection<Bytes<'a>>>(
        &mut self,
        frames: &Section,
        bases: &BaseAddresses,
        code: &Code<'_>,
        rows: &[Row],
        generated: &Generated,
    ) where
        Section::Offset: UnwindOffset<usize>,
    {
        let own = EhFrame::from(EndianSlice::new(&generated.frames[..], LittleEndian));
        let own_bases = BaseAddresses::default().set_eh_frame(0);
        let (mut context, mut own_context) = (UnwindContext::new(), UnwindContext::new());
        let mut entries = frames.entries(bases);
        while let Some(entry) = entries.next().unwrap() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let function = partial.parse(Section::cie_from_offset).unwrap();
            let Some((start, bytes)) = code.section(function.initial_address()) else { continue };
            let (from, to) = (function.initial_address() - start, function.end_address() - start);
            let bytes = &bytes[from as usize..(to as usize).min(bytes.len())];
            for instruction in &mut Decoder::with_ip(64, bytes, start + from, DecoderOptions::NONE) {
                if instruction.mnemonic() != Mnemonic::Call {
                    continue;
                }
                let at = instruction.ip();
                let Some(theirs) = evaluate(&function, frames, bases, at, &mut context) else { continue };
                self.calls += 1;
                let row = rows.binary_search_by_key(&at, |row| row.start).ok().map(|index| rows[index]);
                let Some(Row { rule: Some(Rule::Cfa { by_rsp, by_rbp, saved }), .. }) = row else { continue };
                // The written rule is the one that was found.
                let offset = search(&generated.pairs, at).unwrap() as usize;
                let description = own.fde_from_offset(&own_bases, offset.into(), EhFrame::cie_from_offset).unwrap();
                assert!(description.contains(at));
                let ours = evaluate(&description, &own, &own_bases, at, &mut own_context).unwrap();
                let (register, offset) = by_rsp.map_or((6, by_rbp.unwrap_or_default()), |offset| (7, offset));
                assert_eq!(ours, Found { register, offset, saved }, "{at:x}");
                self.made += 1;
                // Both ways to the CFA may be known; if it is another one, nothing can be said.
                let Some(by_theirs) = (if theirs.register == 6 { by_rbp } else { by_rsp }) else {
                    self.another_way += 1;
                    continue;
                };
                if by_theirs != theirs.offset || ours.saved != theirs.saved {
                    self.wrong.push((at, ours, theirs));
                }
            }
        }
    }
}

/// Returns the number of calls in a file's code, and those without a rule.
fn made(bytes: &[u8], others: &[&[u8]]) -> (usize, Vec<u64>) {
    let file = Elf::parse(bytes).unwrap();
    let (rows, code) = (rows(&file, others, &[]), Code::read(&file, &[]));
    let (mut calls, mut missing) = (0, Vec::new());
    for (start, bytes) in code.sections() {
        for instruction in &mut Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
            if instruction.mnemonic() == Mnemonic::Call {
                calls += 1;
                let at = instruction.ip();
                let row = rows.binary_search_by_key(&at, |row| row.start).ok().map(|index| rows[index]);
                if row.is_none_or(|row| row.rule.is_none()) {
                    missing.push(at);
                }
            }
        }
    }
    (calls, missing)
}

/// Prints the shares for a file, if one is chosen: `CHECKED=/usr/bin/perl`, for example.
#[test]
fn of_a_chosen_file() {
    let Some(path) = std::env::var_os("CHECKED") else { return };
    let bytes = std::fs::read(&path).unwrap();
    let began = std::time::Instant::now();
    let Comparison { calls, made, wrong, another_way } = compare(&bytes, ".eh_frame");
    println!(
        "{}: {made} of {calls} made, {} wrong, {another_way} by another register, {:?}",
        path.display(),
        wrong.len(),
        began.elapsed()
    );
    for (at, ours, theirs) in wrong.iter().take(20) {
        println!("{at:x} {ours:?} {theirs:?}");
    }
}

/// Debian's glibc has no symbols but those that it exports. None of its descriptions is used, not
/// even to find functions.
#[test]
fn glibc_is_as_its_descriptions_say() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let Ok(bytes) = std::fs::read(path) else { return skipped(&format!("there is no {path}")) };
    let Comparison { calls, made, wrong, another_way } = compare(&bytes, ".eh_frame");
    println!("{made} of {calls} made, {} wrong, {another_way} by another register", wrong.len());
    assert!(calls > 8000 && made * 100 >= calls * 95, "{made} of {calls}");
    // At most one in a thousand of those that are made differs; on Debian 12 none does.
    assert!(wrong.len() * 1000 <= made, "{wrong:x?}");
}

/// musl has no descriptions.
#[test]
fn musl_has_rules_for_nearly_all_calls() {
    let path = "/lib/ld-musl-x86_64.so.1";
    let Ok(bytes) = std::fs::read(path) else { return skipped(&format!("there is no {path}")) };
    let (calls, missing) = made(&bytes, &[]);
    println!("{} of {calls} made", calls - missing.len());
    assert!(calls > 3000 && missing.len() * 100 < calls, "{} of {calls}: {missing:x?}", missing.len());
}

/// The musl that comes with Rust has `.debug_frame`, which is not loaded: it says whether the rules
/// are right. The program has all of musl in it.
#[test]
fn musl_of_rust_is_as_its_debug_information_says() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(libraries) = musl_of_rust() else { return skipped("there is no x86_64-unknown-linux-musl of rustc") };
    let source = scratch.path().join("p.c");
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    for strips in [false, true] {
        let program = scratch.path().join("p");
        let mut cc = std::process::Command::new("cc");
        cc.args(["-nostdlib", "-static", "-no-pie", "-o"]).arg(&program).arg(libraries.join("crt1.o")).arg(&source);
        cc.args(["-Wl,--whole-archive"]).arg(libraries.join("libc.a")).args(["-Wl,--no-whole-archive", "-lgcc"]);
        match cc.output() {
            Ok(output) if output.status.success() => {}
            _ => return skipped("cc cannot link a program with musl"),
        }
        let whole = std::fs::read(&program).unwrap();
        let mut bytes = whole.clone();
        if strips {
            // No symbol has a name or an address any more.
            let file = Elf::parse(&*whole).unwrap();
            let symbols = file.section_by_name(".symtab").unwrap().file_range().unwrap();
            let range = symbols.0 as usize..(symbols.0 + symbols.1) as usize;
            bytes[range].fill(0);
        }
        let Comparison { calls, made, wrong, another_way } = compare(&bytes, ".debug_frame");
        println!("{made} of {calls} made, {} wrong, {another_way} by another register", wrong.len());
        assert!(calls > 3000 && made * 1000 >= calls * if strips { 960 } else { 995 }, "{made} of {calls}");
        // musl's description of `expl`, which is assembly, does not know of its `sub $0x30,%rsp`.
        let file = Elf::parse(&*whole).unwrap();
        let expl = file.symbols().find(|symbol| symbol.name() == Ok("expl")).unwrap();
        let is_in_expl = |at: u64| at.wrapping_sub(expl.address()) < 0x80;
        assert!(wrong.iter().all(|&(at, ours, _)| is_in_expl(at) && ours.offset == 0x38), "{wrong:x?}");
    }
}

/// A function that ends the program, and whose address is in data alone, as in busybox's table of
/// applets.
#[test]
fn a_function_that_never_returns_has_rules_if_its_address_is_in_data() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, program) = (scratch.path().join("p.c"), scratch.path().join("p"));
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
        static void ends(int count, char **words) {\n\
            char *copy = malloc(count); char *last = words[count - 1]; long sum = 0;\n\
            for (int i = 0; i < count; i++) sum += puts(words[i]) + putchar(copy[i] + last[i]);\n\
            printf(\"%ld %s %s\", sum, copy, last); free(copy); exit(sum & 1);\n\
        }\n\
        struct applet { const char *name; void (*run)(int, char **); };\n\
        struct applet applets[] = { { \"ends\", ends } };\n\
        int main(int count, char **words) { applets[count].run(count, words); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let mut cc = std::process::Command::new("cc");
    match cc.args(["-O2", "-no-pie", "-fno-pie", "-o"]).arg(&program).arg(&source).output() {
        Ok(output) if output.status.success() => {}
        _ => return skipped("cc cannot link a program that is not position-independent"),
    }
    let whole = std::fs::read(&program).unwrap();
    let file = Elf::parse(&*whole).unwrap();
    let ends = file.symbols().find(|symbol| symbol.name() == Ok("ends")).unwrap();
    let mut bytes = whole.clone();
    let symbols = file.section_by_name(".symtab").unwrap().file_range().unwrap();
    bytes[symbols.0 as usize..(symbols.0 + symbols.1) as usize].fill(0);
    let rows = rows(&Elf::parse(&*bytes).unwrap(), &[], &[]);
    let own = rows.iter().filter(|row| row.start.wrapping_sub(ends.address()) < ends.size() && row.rule.is_some());
    assert!(own.count() > 30, "{rows:x?}");
    let Comparison { made, wrong, .. } = compare(&bytes, ".eh_frame");
    assert!(made >= 6 && wrong.is_empty(), "{made} {wrong:x?}");
}

/// Returns the directory with the musl that comes with rustc.
fn musl_of_rust() -> Option<std::path::PathBuf> {
    let mut rustc = std::process::Command::new("rustc");
    let output = rustc.args(["--print", "target-libdir", "--target", "x86_64-unknown-linux-musl"]).output().ok()?;
    let directory = std::path::Path::new(std::str::from_utf8(&output.stdout).ok()?.trim()).join("self-contained");
    directory.join("libc.a").exists().then_some(directory)
}

/// In a program that has `.eh_frame` for its own code, rules are made for musl's code alone.
#[test]
fn only_code_without_descriptions_gets_rules() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, program) = (scratch.path().join("p.rs"), scratch.path().join("p"));
    std::fs::write(&source, "fn main() { println!(\"{:?}\", std::env::args().collect::<Vec<_>>()); }").unwrap();
    let mut rustc = std::process::Command::new("rustc");
    rustc.args(["--edition=2024", "-O", "--target=x86_64-unknown-linux-musl", "-o"]).arg(&program).arg(&source);
    match rustc.output() {
        Ok(output) if output.status.success() => {}
        _ => return skipped("rustc cannot build for x86_64-unknown-linux-musl"),
    }
    let bytes = std::fs::read(&program).unwrap();
    // The table has rules for code without `.eh_frame`, and for no other.
    let rules = crate::FileRules::read(&program).unwrap();
    let generated = rules.generated().unwrap();
    let (start, _) = rules.range();
    let file = Elf::parse(&*bytes).unwrap();
    let of = |name| file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address() - start;
    for name in ["__libc_start_main", "realloc"] {
        let offset = search(&generated.pairs, of(name)).unwrap() as usize;
        let own = EhFrame::from(EndianSlice::new(&generated.frames[..], LittleEndian));
        let bases = BaseAddresses::default().set_eh_frame(0);
        let description = own.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset).unwrap();
        assert!(description.contains(of(name)), "{name}");
    }
    let own = of("main");
    let offset = search(&generated.pairs, own).map_or(0, |offset| offset as usize);
    let frames = EhFrame::from(EndianSlice::new(&generated.frames[..], LittleEndian));
    let bases = BaseAddresses::default().set_eh_frame(0);
    let near = frames.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset);
    assert!(near.is_ok_and(|description| !description.contains(own)), "main has a description in .eh_frame");
}

/// Reports that a test did not run, or fails it if nothing may be skipped.
fn skipped(why: &str) {
    assert!(std::env::var_os("HEAPLEDGER_NO_SKIP").is_none_or(|value| value != "1"), "may not be skipped: {why}");
    std::io::Write::write_all(&mut std::io::stderr(), format!("skipped: {why}\n").as_bytes()).unwrap();
}

/// A file of a browser has more code without unwind information than is followed; its functions
/// keep frame pointers. Debian's, if it is installed. The C library's functions keep none.
#[test]
fn frame_pointers_of_a_browser_and_of_the_c_library() {
    let libc = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let file = Elf::parse(&*libc).unwrap();
    let (all, length) = gaps(&file, &[]);
    let (keeping, functions) = frame_pointers::counts(&Code::of_sections(&file), &all);
    assert!(length > 1 << 20 && functions > 100 && keeping * 2 < functions, "{keeping} of {functions}");
    assert!(!are_frame_pointers_kept(&file, &all));

    let path = Path::new("/usr/lib/chromium/chromium");
    let Ok(rules) = FileRules::read_found(path) else {
        return skipped("there is no Chromium");
    };
    assert!(rules.keeps_frame_pointers());
}
