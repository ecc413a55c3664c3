//! Reads a log as `heapledger log munge` or `log stats` does, without the rest of the command:
//! `benches/logs` counts its instructions. usage: `read_log munge|stats FILE`

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::{env, process};

use heapledger_alloc_log::{LineParser, Munge, Requests, SizeClass, for_each_line};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [verb, file] = &arguments[..] else {
        eprintln!("usage: read_log munge|stats FILE");
        process::exit(2);
    };
    let reader = BufReader::with_capacity(256 << 10, File::open(file)?);
    if verb == "munge" { munge(reader) } else { stats(reader) }
}

fn munge(reader: BufReader<File>) -> io::Result<()> {
    let (mut munge, mut text, mut ignored) = (Munge::default(), Vec::new(), 0_u64);
    let mut written = Ok(());
    for_each_line(reader, |line| {
        match munge.line(line) {
            Ok(line) => {
                line.write_to(&mut text);
                text.push(b'\n');
            }
            Err(_) => ignored += 1,
        }
        if text.len() >= 250 << 10 {
            written = io::stdout().write_all(&text);
            text.clear();
        }
        written.is_ok()
    })?;
    written?;
    io::stdout().write_all(&text)?;
    eprintln!("{ignored} lines ignored");
    Ok(())
}

fn stats(reader: BufReader<File>) -> io::Result<()> {
    let (mut parser, mut requests) = (LineParser::default(), Requests::default());
    for_each_line(reader, |line| {
        if let Ok(line) = parser.parse(line) {
            requests.add(&line);
        }
        true
    })?;
    for class in [SizeClass::Small, SizeClass::Large, SizeClass::Huge] {
        println!("{}: {}", class.name(), requests.count(class));
    }
    Ok(())
}
