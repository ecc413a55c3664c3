//! `lookup FILE OFFSET…`: prints the frames at these offsets (hex, as `nm` prints them), and the
//! state of the file.

use std::env;

use heapledger_symbols::{ModuleRef, Symbolizer, SymbolizerOptions};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some((path, offsets)) = arguments.split_first() else { return eprintln!("usage: lookup FILE OFFSET…") };
    let symbolizer = Symbolizer::new(SymbolizerOptions::default());
    let module = ModuleRef { path: path.as_bytes(), build_id: b"" };
    for offset in offsets {
        let Ok(offset) = u64::from_str_radix(offset.trim_start_matches("0x"), 16) else {
            return eprintln!("not a hexadecimal offset: {offset}");
        };
        println!("{offset:#x}");
        for frame in symbolizer.frames(module, offset).iter() {
            let (file, line) = (frame.file.as_deref().unwrap_or("?"), frame.line.unwrap_or(0));
            let inlined = if frame.inlined { " (inlined)" } else { "" };
            println!("  {} [{}] at {file}:{line}{inlined}, {:?}", frame.function, frame.function.short(), frame.source);
        }
    }
    println!("{:#?}", symbolizer.module_state(module));
    println!("{}", symbolizer.hint(module).unwrap_or_default());
}
