//! Writing a log.

use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::frames::UnresolvedFrame;
use crate::log::{Defect, FrameId, Group, Log, Mode, NameId, Report, Size, TraceId};

impl Log {
    /// Writes a file of version 5, plain. Programs that read files of this version skip our
    /// additions.
    ///
    /// # Errors
    ///
    /// The errors of the stream.
    pub fn write(&self, output: impl Write) -> io::Result<()> {
        let writer = Writer { log: self, output: BufWriter::new(output), keys: Keys::new(self), owed: 0.0 };
        writer.write()
    }

    /// Returns the file, gzipped: a `.json.gz`.
    pub fn to_gzip(&self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to memory cannot fail.
        let _ = self.write(&mut encoder);
        encoder.finish().unwrap_or_default()
    }
}

struct Writer<'a, W> {
    log: &'a Log,
    output: W,
    keys: Keys,
    /// The remainder of rounding so far, in blocks.
    owed: f64,
}

impl<W: Write> Writer<'_, W> {
    fn write(mut self) -> io::Result<()> {
        let log = self.log;
        let variable = log.variable.as_ref().map_or("null".into(), |variable| quoted(variable));
        let mode = log.mode.name();
        write!(self.output, "{{\n \"version\": 5,\n \"invocation\": {{\n  \"dmdEnvVar\": {variable},")?;
        write!(self.output, "\n  \"mode\": \"{mode}\"\n }},\n \"blockList\": [")?;
        let mut separator = "\n  ";
        if log.mode == Mode::Scan {
            for block in &log.scanned.blocks {
                write!(self.output, "{separator}{{\"addr\": \"{:x}\"", block.address)?;
                if block.requested >= 8 {
                    self.output.write_all(b", \"contents\": [")?;
                    for (at, word) in log.scanned.contents(block).iter().enumerate() {
                        write!(self.output, "{}\"{word:x}\"", if at > 0 { ", " } else { "" })?;
                    }
                    self.output.write_all(b"]")?;
                }
                let Group { sizes, .. } = &log.groups[block.group as usize];
                let of_its_size = |size: &&Size| (size.requested, size.slop) == (block.requested, block.slop);
                let size = sizes.iter().find(of_its_size).copied();
                // One block of those of this size.
                let size = size.map(|size| Size {
                    count: 1,
                    weight: size.weight / size.count as f64,
                    variance: size.variance / size.count as f64,
                    ..size
                });
                let (requested, slop) = (block.requested, block.slop);
                let alone = Size { requested, slop, count: 1, rest: 0, weight: 1.0, variance: 0.0 };
                self.output.write_all(b", ")?;
                self.block(&log.groups[block.group as usize], &size.unwrap_or(alone))?;
                separator = ",\n  ";
            }
        } else {
            for group in &log.groups {
                for size in &group.sizes {
                    write!(self.output, "{separator}{{")?;
                    self.block(group, size)?;
                    separator = ",\n  ";
                }
            }
        }
        self.about()?;
        self.output.flush()
    }

    /// Writes a block's members, but the first ones of scanned blocks, and its end.
    fn block(&mut self, group: &Group, size: &Size) -> io::Result<()> {
        write!(self.output, "\"req\": {}", size.requested)?;
        if size.slop > 0 {
            write!(self.output, ", \"slop\": {}", size.slop)?;
        }
        if let Some(alloc) = group.alloc {
            let key = self.keys.trace(alloc);
            write!(self.output, ", \"alloc\": \"{key}\"")?;
        }
        let reports: Vec<Report> = group.reports.iter().flatten().copied().collect();
        if !reports.is_empty() {
            let keys: Vec<String> = reports.iter().map(|it| quoted(&self.keys.trace(it.trace))).collect();
            write!(self.output, ", \"reps\": [{}]", keys.join(", "))?;
        }
        let is_sample = size.weight != size.count as f64;
        let mut number = size.count;
        if is_sample {
            // Whole numbers for readers without weights: the rounding error of each is made up for
            // by the next ones.
            self.owed += size.weight;
            number = self.owed.round().max(0.0) as u64;
            self.owed -= number as f64;
        }
        if number != 1 {
            write!(self.output, ", \"num\": {number}")?;
        }
        if let Some(name) = group.type_name {
            write!(self.output, ", \"type\": \"{}\"", self.keys.name(name))?;
        }
        if let Some(name) = group.context {
            write!(self.output, ", \"context\": \"{}\"", self.keys.name(name))?;
        }
        if reports.iter().any(|it| it.reporter.is_some()) {
            let key = |it: &Report| it.reporter.map_or("null".into(), |name| quoted(&self.keys.name(name)));
            let keys: Vec<String> = reports.iter().map(key).collect();
            write!(self.output, ", \"by\": [{}]", keys.join(", "))?;
        }
        if is_sample {
            write!(self.output, ", \"weight\": {}", size.weight)?;
        }
        if size.variance != 0.0 {
            write!(self.output, ", \"variance\": {}", size.variance)?;
        }
        if number != size.count {
            write!(self.output, ", \"sampled\": {}", size.count)?;
        }
        self.output.write_all(b"}")
    }

    /// Writes everything after the blocks.
    fn about(&mut self) -> io::Result<()> {
        let log = self.log;
        let about = &log.about;
        self.output.write_all(b"\n ],\n")?;
        // Keys are given out on first use: the defects must come before the tables are complete.
        let defects: Vec<String> = about.defects.iter().map(|defect| self.defect(defect)).collect();

        self.output.write_all(b" \"traceTable\": {")?;
        let mut separator = "\n  ";
        for at in 0..self.keys.traces_named.len() {
            let trace = self.keys.traces_named[at];
            let key = self.keys.trace(trace);
            let frames = log.trace(trace).iter();
            let frames: Vec<String> = frames.map(|frame| quoted(&self.keys.frame(*frame))).collect();
            write!(self.output, "{separator}\"{key}\": [{}]", frames.join(", "))?;
            separator = ",\n  ";
        }
        self.output.write_all(b"\n },\n \"frameTable\": {")?;
        let mut separator = "\n  ";
        for at in 0..self.keys.frames_named.len() {
            let frame = self.keys.frames_named[at];
            let key = self.keys.frame(frame);
            write!(self.output, "{separator}\"{key}\": {}", quoted(&format!("#00: {}", log.frame(frame))))?;
            separator = ",\n  ";
        }
        self.output.write_all(b"\n }")?;
        let modules = self.modules();
        if !modules.is_empty() {
            write!(self.output, ",\n \"moduleTable\": {{\n  {}\n }}", modules.join(",\n  "))?;
        }
        if !self.keys.names_named.is_empty() {
            self.output.write_all(b",\n \"nameTable\": {")?;
            let mut separator = "\n  ";
            for at in 0..self.keys.names_named.len() {
                let name = self.keys.names_named[at];
                let key = self.keys.name(name);
                write!(self.output, "{separator}\"{key}\": {}", quoted(log.name(name)))?;
                separator = ",\n  ";
            }
            self.output.write_all(b"\n }")?;
        }
        if !about.is_nothing() {
            write!(self.output, ",\n \"heapledger\": {{\n  \"program\": {}", quoted(&about.program))?;
            write!(self.output, ",\n  \"pid\": {},\n  \"pauseNs\": {}", about.pid, about.pause_ns)?;
            if let Some(sampling) = about.sampling {
                write!(self.output, ",\n  \"sampling\": {{\"probability\": {}}}", sampling.probability)?;
            }
            if let Some(dump) = about.dump {
                let members = dump.members().map(|(name, bytes)| format!("\"{name}\": {bytes}"));
                write!(self.output, ",\n  \"dump\": {{{}}}", members.collect::<Vec<_>>().join(", "))?;
            }
            let modules = about.modules.iter().map(|module| {
                let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{{\"path\": {}, \"buildId\": \"{build_id}\"}}", quoted(&module.path))
            });
            self.list("modules", &modules.collect::<Vec<_>>())?;
            self.list("defects", &defects)?;
            write!(self.output, ",\n  \"defectsCount\": {}\n }}", about.defects_count)?;
        }
        self.output.write_all(b"\n}\n")
    }

    /// Returns the modules of frames whose texts no longer name them.
    fn modules(&mut self) -> Vec<String> {
        let mut members = Vec::new();
        for at in 0..self.keys.frames_named.len() {
            let frame = self.keys.frames_named[at];
            let module = self.log.libraries.get(frame.0 as usize).copied().flatten();
            if let Some(module) = module.filter(|_| UnresolvedFrame::parse(self.log.frame(frame)).is_none()) {
                members.push(format!("\"{}\": \"{}\"", self.keys.frame(frame), self.keys.name(module)));
            }
        }
        members
    }

    fn list(&mut self, name: &str, items: &[String]) -> io::Result<()> {
        write!(self.output, ",\n  \"{name}\": [")?;
        for (at, item) in items.iter().enumerate() {
            write!(self.output, "{}\n   {item}", if at > 0 { "," } else { "" })?;
        }
        self.output.write_all(if items.is_empty() { b"]" } else { b"\n  ]" })
    }

    fn defect(&mut self, defect: &Defect) -> String {
        let mut text = format!("{{\"kind\": \"{}\", \"addr\": \"{:x}\"", defect.kind.name(), defect.address);
        if let Some(name) = defect.reporter {
            text += &format!(", \"by\": \"{}\"", self.keys.name(name));
        }
        for (member, trace) in [("rep", defect.trace), ("alloc", defect.alloc)] {
            if let Some(trace) = trace {
                text += &format!(", \"{member}\": \"{}\"", self.keys.trace(trace));
            }
        }
        let Defect { measured, usable, count, .. } = defect;
        text + &format!(", \"measured\": {measured}, \"usable\": {usable}, \"num\": {count}}}")
    }
}

/// Returns a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The keys, given to each stack, frame and name on first use.
struct Keys {
    next: u32,
    traces: Vec<Option<u32>>,
    frames: Vec<Option<u32>>,
    names: Vec<Option<u32>>,
    traces_named: Vec<TraceId>,
    frames_named: Vec<FrameId>,
    names_named: Vec<NameId>,
}

impl Keys {
    fn new(log: &Log) -> Keys {
        let [traces, frames, names] =
            [log.traces.len(), log.frames.len(), log.names.len()].map(|count| vec![None; count]);
        let (traces_named, frames_named, names_named) = <(Vec<_>, Vec<_>, Vec<_>)>::default();
        Keys { next: 0, traces, frames, names, traces_named, frames_named, names_named }
    }

    fn trace(&mut self, trace: TraceId) -> String {
        let number = self.traces[trace.0 as usize].unwrap_or_else(|| {
            self.traces_named.push(trace);
            let number = self.give();
            self.traces[trace.0 as usize] = Some(number);
            number
        });
        base32(number)
    }

    fn frame(&mut self, frame: FrameId) -> String {
        let number = self.frames[frame.0 as usize].unwrap_or_else(|| {
            self.frames_named.push(frame);
            let number = self.give();
            self.frames[frame.0 as usize] = Some(number);
            number
        });
        base32(number)
    }

    fn name(&mut self, name: NameId) -> String {
        let number = self.names[name.0 as usize].unwrap_or_else(|| {
            self.names_named.push(name);
            let number = self.give();
            self.names[name.0 as usize] = Some(number);
            number
        });
        base32(number)
    }

    fn give(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }
}

/// Returns the digits of a key.
fn base32(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"[number as usize % 32]);
        number /= 32;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::log::Block;

    #[test]
    fn keys_are_in_base_32() {
        assert_eq!([0, 25, 26, 31, 32, 1023, 1024].map(base32), ["A", "Z", "a", "f", "BA", "ff", "BAA"]);
    }

    #[test]
    fn a_log_is_written_in_the_order_of_the_format() {
        let mut builder = Builder::new(Mode::DarkMatter);
        let [inner, outer] = ["???[/a \"b\" +0x10]", "main (a.c:1)"].map(|text| builder.frame(text));
        let (alloc, trace) = (builder.trace(&[inner, outer]), builder.trace(&[outer]));
        let (reporter, type_name) = (Some(builder.name("explicit/a")), Some(builder.name("T")));
        let block = Block {
            requested: 10,
            slop: 6,
            count: 2,
            weight: 1.0,
            variance: 0.0,
            alloc: Some(alloc),
            reports: [Some(Report { trace, reporter }), None],
            type_name,
            context: None,
        };
        builder.add(&block);
        builder.add(&Block { slop: 0, count: 1, weight: 3.4, variance: 1.5, ..block });
        let none = [None, None];
        builder.add(&Block { slop: 0, count: 1, alloc: None, reports: none, type_name: None, ..block });
        let mut text = Vec::new();
        builder.finish().write(&mut text).unwrap();
        let expected = r##"{
 "version": 5,
 "invocation": {
  "dmdEnvVar": null,
  "mode": "dark-matter"
 },
 "blockList": [
  {"req": 10, "slop": 6, "alloc": "A", "reps": ["B"], "num": 2, "type": "C", "by": ["D"]},
  {"req": 10, "alloc": "A", "reps": ["B"], "num": 3, "type": "C", "by": ["D"], "weight": 3.4, "variance": 1.5, "sampled": 1},
  {"req": 10}
 ],
 "traceTable": {
  "A": ["E", "F"],
  "B": ["F"]
 },
 "frameTable": {
  "E": "#00: ???[/a \"b\" +0x10]",
  "F": "#00: main (a.c:1)"
 },
 "nameTable": {
  "C": "T",
  "D": "explicit/a"
 }
}
"##;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
