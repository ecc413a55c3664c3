//! The text against that of Mozilla's own script, to the byte.
//!
//! Small logs by default, for which the script's texts are kept in `tests/golden`. With the script
//! itself, many random ones:
//!
//! ```text
//! HEAPLEDGER_DMD_SCRIPT=$(.ci/dmd-script /tmp/dmd-script) cargo test -p heapledger-dmd --test script -- --ignored
//! ```
//!
//! The same with `HEAPLEDGER_DMD_GOLDEN=write` writes the kept texts again.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapledger_dmd::{
    Analysis, Block, Builder, DmdOptions, Log, Mode, Report, Sort, SpooledLog, Spooling, TextOptions, TraceId,
};

/// Pseudo-random numbers, the same each time. The kept texts are of logs made from these.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

const FRAMES: [&str; 16] = [
    "replace_malloc (/build/dmd/DMD.cpp:1110)",
    "operator new(unsigned long) (../../src/new_op.cc:50)",
    "moz_xrealloc (mozalloc.cpp:96)",
    "???[/usr/lib/libxul.so +0x1f3a]",
    "???[/usr/lib/libc.so.6 +0x29d90]",
    "alloc::vec::Vec<T>::push (vec/mod.rs:1836)",
    "mozilla::dmd::StackTrace::Get(mozilla::dmd::Thread*) (DMD.cpp:2)",
    "SmokeDMD (test/SmokeDMD.cpp:1)",
    "TestFull(char const*) (DMD.cpp:165)",
    "Übergröße::größer (ü.cpp:3)",
    "!f (a.c:1)",
    "\\g (b.c:\"2\")",
    "main (main.c:10)",
    "_start[/bin/x +0x1]",
    "quoted \"name\" 'and' (c:/d.c:4)",
    "h (a.c:2)",
];

fn log(random: &mut Random, mode: Mode) -> Log {
    let mut builder = Builder::new(mode);
    let frames: Vec<_> = FRAMES.iter().map(|frame| builder.frame(frame)).collect();
    let how_many = if random.one_in(12) { 1500 } else { 1 + random.below(12) };
    let traces: Vec<TraceId> = (0..how_many)
        .map(|_| {
            let depth = random.below(12) as usize;
            let frames: Vec<_> = (0..depth).map(|_| random.pick(&frames)).collect();
            builder.trace(&frames)
        })
        .collect();
    let names = ["explicit/a", "b", "Vec<u8>"].map(|name| builder.name(name));
    let mut address = 0x7f00_0000_1000;
    let blocks = if random.one_in(10) { 0 } else { random.below(4 * how_many.min(700) + 30) };
    for _ in 0..blocks {
        let report = |random: &mut Random| Report {
            trace: random.pick(&traces),
            reporter: (!random.one_in(3)).then(|| random.pick(&names)),
        };
        let mut reports = [None; 2];
        if mode == Mode::DarkMatter {
            let count = random.below(3) as usize;
            reports[..count].fill_with(|| Some(report(random)));
        }
        let (any, little) = (random.below(5000), random.below(64));
        let requested = random.pick(&[0, 1, 7, 8, 24, 100, 127, 4096, 1 << 20, any, u64::from(u32::MAX) * 5]);
        let slop = random.pick(&[0, 0, 8, little]);
        let block = Block {
            requested,
            slop,
            count: if mode == Mode::Scan { 1 } else { random.pick(&[1, 1, 2, 1000, 1_234_567]) },
            weight: 1.0,
            variance: 0.0,
            alloc: (!random.one_in(5)).then(|| random.pick(&traces)),
            reports,
            type_name: random.one_in(2).then(|| random.pick(&names)),
            context: random.one_in(4).then(|| random.pick(&names)),
        };
        if mode == Mode::Scan {
            let words: Vec<u64> =
                (0..(requested / 8).min(20)).map(|_| random.below(1 << 20) + 0x7f00_0000_0000).collect();
            builder.add_scanned(&block, address, &words);
            address += requested + slop + random.below(3) * 16;
        } else {
            builder.add(&block);
        }
    }
    if random.one_in(2) {
        builder.about().program = "program".into();
        builder.about().pid = 4711;
    }
    let mut log = builder.finish();
    log.variable = random.pick(&[None, Some("1"), Some("--mode=live --stacks=full"), Some("")]).map(str::to_owned);
    log
}

/// Returns options, and the same for the script's command line.
fn options(random: &mut Random) -> (DmdOptions, Vec<String>) {
    let (mut options, mut words) = (DmdOptions::default(), Vec::new());
    if random.one_in(2) {
        options.max_frames = 1 + random.below(24) as usize;
        words.extend(["-f".to_owned(), options.max_frames.to_string()]);
    }
    let sorts =
        [(Sort::Usable, "usable"), (Sort::Requested, "req"), (Sort::Slop, "slop"), (Sort::Blocks, "num-blocks")];
    if random.one_in(2) {
        let (sort, name) = random.pick(&sorts);
        options.sort = sort;
        words.extend(["-s".to_owned(), name.to_owned()]);
    }
    if random.one_in(3) {
        options.ignore_alloc_fns = true;
        words.push("-a".into());
    }
    if random.one_in(6) {
        options.filter_stacks_for_testing = true;
        words.push("--filter-stacks-for-testing".into());
    }
    let filters = ["main", "!main", "\\!f", "\\\\g", "#01: ", "!.cpp", "no such", "    #0", "größ"];
    while random.one_in(3) {
        let filter = random.pick(&filters).to_owned();
        words.push(format!("--filter={filter}"));
        options.filters.push(filter);
    }
    (options, words)
}

struct Case {
    logs: Vec<Log>,
    options: DmdOptions,
    words: Vec<String>,
}

impl Case {
    fn random(seed: u64) -> Case {
        let random = &mut Random(seed);
        for _ in 0..3 {
            random.below(2);
        }
        let mode = random.pick(&[Mode::Live, Mode::DarkMatter, Mode::DarkMatter, Mode::Cumulative, Mode::Scan]);
        let mut logs = vec![log(random, mode)];
        if random.one_in(2) {
            // Often nearly the same one.
            let second = if random.one_in(2) { logs[0].clone() } else { log(random, mode) };
            logs.push(second);
            let last = logs.len() - 1;
            for group in &mut logs[last].groups {
                for size in &mut group.sizes {
                    if mode != Mode::Scan && random.one_in(2) {
                        size.count = random.pick(&[size.count, size.count + 1, 1]);
                        size.weight = size.count as f64;
                    }
                }
            }
        }
        let (options, words) = options(random);
        Case { logs, options, words }
    }

    /// Returns our text for the files, which is the same however they are read, without the line
    /// that echoes the command.
    fn ours(&self, files: &[PathBuf]) -> String {
        let logs: Vec<Log> = files.iter().map(|file| Log::read(File::open(file).unwrap()).unwrap()).collect();
        let analysis = match logs.as_slice() {
            [one] => Analysis::of(one, &self.options),
            [before, after] => Analysis::difference(before, after, &self.options).unwrap(),
            _ => unreachable!(),
        };
        let whole = without_echo(&analysis.text("dmd.py", &TextOptions::default()));
        let frames_max = if self.options.ignore_alloc_fns { usize::MAX } else { self.options.max_frames };
        for memory_max in [0, 1 << 20] {
            let spooling = Spooling { memory_max, open: &|| Ok(Box::new(tempfile::tempfile()?)) };
            let read = |file| SpooledLog::read(File::open(file).unwrap(), frames_max, spooling).unwrap();
            let mut logs: Vec<SpooledLog<'_>> = files.iter().map(read).collect();
            let analysis = match logs.as_mut_slice() {
                [before, after] => Analysis::difference_spooled(before, after, &self.options).unwrap().unwrap(),
                logs => Analysis::of_spooled(&mut logs[0], &self.options).unwrap(),
            };
            let text = without_echo(&analysis.text("dmd.py", &TextOptions::default()));
            assert_eq!(text, whole, "{memory_max}: {files:?}");
        }
        whole
    }

    fn files(&self, directory: &Path) -> Vec<PathBuf> {
        let write = |(at, log): (usize, &Log)| {
            let packed = at == 1;
            let file = directory.join(if packed { "second.json.gz" } else { "first.json" });
            let mut bytes = Vec::new();
            log.write(&mut bytes).unwrap();
            // The number of a frame has no meaning, whatever it is.
            let text = String::from_utf8(bytes).unwrap().replace("\"#00: main", "\"#06: main");
            if packed {
                let mut packer =
                    flate2::write::GzEncoder::new(File::create(&file).unwrap(), flate2::Compression::fast());
                packer.write_all(text.as_bytes()).unwrap();
                packer.finish().unwrap();
            } else {
                std::fs::write(&file, text).unwrap();
            }
            file
        };
        self.logs.iter().enumerate().map(write).collect()
    }

    /// Returns the script's text.
    fn theirs(&self, script: &Path, files: &[PathBuf]) -> String {
        let mut command = Command::new("python3");
        command.arg(script).arg("--no-fix-stacks").args(&self.words).args(files).env("PYTHONIOENCODING", "utf-8");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        without_echo(&String::from_utf8(output.stdout).unwrap())
    }
}

fn without_echo(text: &str) -> String {
    let lines = text.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 1);
    lines.map(|(_, line)| line).collect()
}

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn golden(seed: u64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{seed}.txt"))
}

/// The seeds of small cases of every mode, and of differences.
const GOLDEN: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn the_text_is_what_the_script_has_printed() {
    let directory = directory("script-golden");
    for seed in GOLDEN {
        let case = Case::random(seed);
        let files = case.files(&directory);
        assert_eq!(case.ours(&files), std::fs::read_to_string(golden(seed)).unwrap(), "{seed}: {:?}", case.words);
    }
}

fn script() -> PathBuf {
    let script = std::env::var_os("HEAPLEDGER_DMD_SCRIPT");
    PathBuf::from(script.expect("HEAPLEDGER_DMD_SCRIPT names Mozilla's dmd.py: .ci/dmd-script gets it"))
}

#[test]
#[ignore = "needs Mozilla's script, which is downloaded; .ci/run full"]
fn the_text_is_what_the_script_prints() {
    let script = script();
    let directory = directory("script-random");
    for seed in 1..=400 {
        let case = Case::random(seed);
        let files = case.files(&directory);
        let theirs = case.theirs(&script, &files);
        if GOLDEN.contains(&seed) && std::env::var_os("HEAPLEDGER_DMD_GOLDEN").is_some() {
            std::fs::write(golden(seed), &theirs).unwrap();
        }
        let ours = case.ours(&files);
        if ours != theirs {
            let differs = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
            panic!("{seed}: {:?} {:?}: {differs:?}", case.words, case.logs[0].mode);
        }
    }
}

#[test]
#[ignore = "needs Mozilla's script, which is downloaded; .ci/run full"]
fn contents_are_clamped_as_the_script_does() {
    let script = script();
    let directory = directory("script-clamp");
    let mut compared = 0;
    for seed in 1..=400 {
        let mut case = Case::random(seed);
        case.logs.truncate(1);
        if case.logs[0].mode != Mode::Scan || case.logs[0].scanned.blocks.is_empty() {
            continue;
        }
        let file = case.files(&directory).remove(0);
        let mut ours = Log::read(File::open(&file).unwrap()).unwrap();
        let stats = ours.clamp().unwrap();
        let mut command = Command::new("python3");
        command.arg(&script).args(["--no-fix-stacks", "--clamp-contents", "--print-clamp-stats"]).arg(&file);
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.contains(&stats.to_string()), "{seed}: {stats}\n{stderr}");
        // The script has rewritten the file.
        let theirs = Log::read(File::open(&file).unwrap()).unwrap();
        let contents = |log: &Log| -> Vec<(u64, Vec<u64>)> {
            log.scanned.blocks.iter().map(|it| (it.address, log.scanned.contents(it).to_vec())).collect()
        };
        assert_eq!(contents(&ours), contents(&theirs), "{seed}");
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}
