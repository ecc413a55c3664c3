//! Prints the changes of mappings in a recording, one a line, and what is mapped in the end.
//!
//! `cargo run -p heapledger-recording --example mappings -- FILE`.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::collections::BTreeMap;
use std::error::Error;

use heapledger_recording::{AddressSpace, MappingChange, NodeCache, Recording};

/// The number of innermost frames that are printed of a stack.
const FRAMES_MAX: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: mappings FILE")?;
    let file = std::fs::read(path)?;
    let recording = Recording::open(&file)?;
    for image in recording.images() {
        println!("image {} of process {}", image.image.0, image.pid);
        let tree = recording.stack_tree(image.image, &mut NodeCache::default());
        let mut space = AddressSpace::default();
        let mut kinds = BTreeMap::new();
        for event in recording.mapping_events(image.image) {
            let event = event?;
            space.apply(&event);
            let what = match event.change {
                MappingChange::Mapped { kind, protection, flags, file, .. } => {
                    let path = recording.text(file).map(|text| String::from_utf8_lossy(&text.bytes).into_owned());
                    let path = path.unwrap_or_default();
                    kinds.insert(event.serial, kind);
                    format!("mapped {} {:03b} flags {} {path}", kind.name(), protection.bits(), flags.bits())
                }
                MappingChange::Unmapped => "unmapped".into(),
                MappingChange::Moved { to } => format!("moved to {to:x}"),
                MappingChange::Protected { protection } => format!("protected {:03b}", protection.bits()),
                MappingChange::Advised { advice } => format!("advised {advice}"),
                other => format!("{other:?}"),
            };
            let (ms, call) = (event.time.0 as f64 / 1e6, event.call.name());
            let (serial, start, bytes, stack) = (event.serial.0, event.start, event.bytes.0, event.stack.0);
            println!("{ms:>10.3} ms {call:<8} #{serial} {start:x}+{bytes:x} {what} stack {stack}");
            for node in tree.frames(event.stack).take(FRAMES_MAX) {
                let module = recording.module(node.module).map(|module| String::from_utf8_lossy(&module.path));
                println!("{:>16}{}+{:x}", "", module.unwrap_or_default(), node.offset);
            }
        }
        println!("{} bytes are mapped in the end", space.bytes().0);
        for piece in space.pieces() {
            let kind = kinds.get(&piece.serial).map_or("?", |kind| kind.name());
            let (start, end) = (piece.start, piece.start + piece.bytes.0);
            println!("  {start:x}-{end:x} {:03b} #{} {kind}", piece.protection.bits(), piece.serial.0);
        }
    }
    Ok(())
}
