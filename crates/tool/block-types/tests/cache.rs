//! Types that an earlier run has found.

#[path = "../../symbols/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::PathBuf;

use heapledger_block_types::{SiteSizes, TypeFinder, TypedFrame};
use heapledger_symbols::{BuildId, SymbolizerOptions};
use support::{Scratch, Subject, build_id, extent};

const SOURCE: &str = "
extern void *malloc(unsigned long);
void *volatile sink;
static inline __attribute__((always_inline)) void *inner(unsigned long size) { return malloc(size); }
__attribute__((noinline)) void *outer(unsigned long size) { sink = inner(size + 1); return 0; }
int main(void) { return outer(7) != 0; }
";

/// A stripped program, and its debug information in a directory of such files.
struct Split {
    scratch: Scratch,
    program: PathBuf,
    debug: PathBuf,
    build_id: BuildId,
    /// An address where `inner` is inlined into `outer`.
    inlined: u64,
}

impl Split {
    fn new() -> Option<Split> {
        let scratch = Scratch::new();
        scratch.write("code.c", SOURCE);
        let made = scratch.run("cc", &["-g", "-O2", "-Wl,--build-id=sha1", "-o", "full", "code.c"])
            && scratch.run("objcopy", &["--only-keep-debug", "full", "program.debug"])
            && scratch.run("strip", &["-o", "program", "full"]);
        if !made {
            return None;
        }
        let full = scratch.path("full");
        let subject = Subject::new(&full);
        let (outer, size) = extent(&full, |name| name == "outer");
        let inlined = (outer..outer + size).find(|&offset| subject.frames(offset).len() == 2).unwrap();
        let build_id = BuildId(build_id(&full).into());
        fs::remove_file(full).unwrap();
        let hex = build_id.to_string();
        let (folder, name) = hex.split_at(2);
        let debug = scratch.path(&format!("debug/.build-id/{folder}/{name}.debug"));
        fs::create_dir_all(debug.parent().unwrap()).unwrap();
        fs::rename(scratch.path("program.debug"), &debug).unwrap();
        Some(Split { program: scratch.path("program"), debug, build_id, inlined, scratch })
    }
}

#[test]
fn types_of_earlier_runs() {
    let Some(split) = Split::new() else { return };
    let cache = split.scratch.path("cache/symbols");
    let kept = |of| cache.join(split.build_id.to_string()).with_extension(of);
    let read = || ["types", "sites"].map(|of| fs::read(kept(of)).unwrap());
    let ask = || {
        let options = SymbolizerOptions {
            debug_dirs: vec![split.scratch.path("debug")],
            cache: Some(cache.clone()),
            ..SymbolizerOptions::default()
        };
        let mut subject = Subject::with(&split.program, options);
        subject.build_id = split.build_id.0.to_vec();
        let finder = TypeFinder::new(subject.symbolizer.clone());
        let typed = |offset| {
            let place = (subject.module(), offset);
            let site = finder.site_type(&[place, place], SiteSizes::of_one(offset));
            (finder.typed_frames(place.0, offset), site)
        };
        (split.inlined - 16..split.inlined + 16).map(typed).collect::<Vec<_>>()
    };
    let fresh = ask();
    let inlined = |frames: &[TypedFrame]| frames.len() == 2 && frames[0].plain.as_deref() == Some("inner");
    assert!(fresh.iter().any(|(frames, _)| inlined(frames)), "{fresh:#?}");
    let written = read();
    assert_eq!(ask(), fresh);
    assert_eq!(read(), written, "written again, although there was nothing new");
    for of in ["types", "sites"] {
        for damage in [&b""[..], &written[0][..written[0].len() / 2], &[0xff; 5000]] {
            fs::write(kept(of), damage).unwrap();
            assert_eq!(ask(), fresh);
        }
    }
    // The files may be removed.
    let elsewhere = split.scratch.path("elsewhere");
    fs::rename(&split.program, &elsewhere).unwrap();
    fs::remove_file(&split.debug).unwrap();
    assert_eq!(ask(), fresh);
}
