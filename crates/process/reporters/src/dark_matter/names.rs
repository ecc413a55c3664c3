//! Names of frames, from the program's own debug information.

use heapledger_dmd::{FrameTexts, Log, UnresolvedFrame};
use heapledger_query::{Frame, FunctionNames, Modules};

/// Gives the frames of a log of this program, made in this process, the names of their functions
/// with files and lines, and those that were inlined their own frames. What is not known stays as
/// it is.
///
/// The first call reads the program's debug information, which takes time and memory; neither is
/// counted in the ledger. `heapledger dmd` does the same outside of the program.
pub fn name_frames(log: &mut Log) {
    let modules = Modules::of_this_process();
    let mut functions = FunctionNames::default();
    log.map_frames(|text| {
        let Some(frame) = UnresolvedFrame::parse(text) else { return Vec::new() };
        let Some(module) = modules.iter().find(|module| module.path == frame.path) else { return Vec::new() };
        let address = module.address(frame.offset);
        // Frames in a log are where calls return to.
        let mut symbols = Frame { address: address.wrapping_sub(1) }.symbols();
        // The outermost is the function itself: what was inlined into it has no symbol.
        if let Some(name) = symbols.last_mut().and_then(|symbol| symbol.function.as_mut()) {
            *name = functions.complete(module, address.wrapping_sub(1), name);
        }
        let named = symbols.into_iter().filter_map(|symbol| {
            let function = symbol.function?;
            Some(match (symbol.file, symbol.line) {
                (Some(file), Some(line)) => format!("{function} ({}:{line})", file.display()),
                _ => format!("{function}[{} +0x{:x}]", frame.path, frame.offset),
            })
        });
        named.collect()
    });
    log.strip_wrappers(of_ours, |frame| frame.contains("/rustc/") || frame.contains("/rustlib/src/"));
}

/// True if a frame only passes a request on to the allocator, or a report to the ledger.
fn of_ours(frame: &str) -> bool {
    const FILES: [&str; 6] = [
        "process/allocator/src/",
        "heapledger-allocator-",
        "process/measure/src/",
        "heapledger-measure-",
        "/library/alloc/src/alloc.rs:",
        "/library/alloc/src/raw_vec/",
    ];
    frame.starts_with("heapledger_") || FILES.iter().any(|file| frame.contains(file))
}
