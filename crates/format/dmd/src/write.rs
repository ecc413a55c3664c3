//! Writing a log: version 5 of Mozilla's format, with keys of our own that its script passes over.

use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::{DefectKind, Group, Log, NameId, Size, TraceId};

impl Log {
    /// Writes the log as a file, not compressed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        let variable = self.variable.as_ref().map_or(Value::Null, |text| text.as_str().into());
        write!(out, "{{\n \"version\": 5,\n \"invocation\": {{\n  \"dmdEnvVar\": {variable},\n")?;
        write!(out, "  \"mode\": \"{}\"\n }},\n \"blockList\": [", self.mode.name())?;
        let (mut comma, mut carry) = ("", 0.0);
        for group in &self.groups {
            for size in &group.sizes {
                write!(out, "{comma}\n  {{{}}}", self.block(group, size, &mut carry))?;
                comma = ",";
            }
        }
        write!(out, "\n ],\n \"traceTable\": {{")?;
        let frame = |at: u32| self.traces.len() as u32 + at;
        table(&mut out, 0, &self.traces, |trace| {
            let keys: Vec<String> = trace.iter().map(|id| quoted(frame(id.0))).collect();
            format!("[{}]", keys.join(", "))
        })?;
        write!(out, "\n }},\n \"frameTable\": {{")?;
        // Readers put the frame's place in its stack for the number.
        table(&mut out, frame(0), &self.frames, |text| Value::from(format!("#00: {text}")).to_string())?;
        write!(out, "\n }},\n \"nameTable\": {{")?;
        table(&mut out, self.name(NameId(0)), &self.names, |name| Value::from(name.as_str()).to_string())?;
        write!(out, "\n }},\n \"heapledger\": {}\n}}\n", self.about_json())?;
        out.flush()
    }

    /// The same, gzipped: a `.json.gz`.
    pub fn to_gzip(&self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Memory takes everything.
        let _ = self.write(&mut encoder);
        encoder.finish().unwrap_or_default()
    }

    /// One counter numbers traces, frames and names.
    fn name(&self, id: NameId) -> u32 {
        (self.traces.len() + self.frames.len()) as u32 + id.0
    }

    fn block(&self, group: &Group, size: &Size, carry: &mut f64) -> String {
        let mut text = format!("\"req\": {}", size.requested);
        // A string takes everything.
        let mut add = |key: &str, value: String| text.push_str(&format!(", \"{key}\": {value}"));
        if size.slop > 0 {
            add("slop", size.slop.to_string());
        }
        if let Some(TraceId(trace)) = group.alloc {
            add("alloc", quoted(trace));
        }
        let reports: Vec<_> = group.reports.iter().flatten().collect();
        if !reports.is_empty() {
            let keys: Vec<String> = reports.iter().map(|report| quoted(report.trace.0)).collect();
            add("reps", format!("[{}]", keys.join(", ")));
            if reports.iter().any(|report| report.reporter.is_some()) {
                let name = |name: NameId| quoted(self.name(name));
                let names = reports.iter().map(|report| report.reporter.map_or_else(|| "null".to_owned(), name));
                add("by", format!("[{}]", names.collect::<Vec<_>>().join(", ")));
            }
        }
        let is_sampled = size.variance > 0.0;
        let mut number = size.count;
        if is_sampled {
            // Rounded so that the sum of all is right.
            let exact = size.weight + *carry;
            number = exact.round().max(0.0) as u64;
            *carry = exact - number as f64;
        }
        if number != 1 {
            add("num", number.to_string());
        }
        for (key, name) in [("type", group.type_name), ("context", group.context)] {
            if let Some(name) = name {
                add(key, quoted(self.name(name)));
            }
        }
        if is_sampled {
            add("weight", size.weight.to_string());
            add("variance", size.variance.to_string());
        }
        text
    }

    fn about_json(&self) -> Value {
        let about = &self.about;
        let name = |name: Option<NameId>| name.map(|name| key(self.name(name)));
        let trace = |trace: Option<TraceId>| trace.map(|trace| key(trace.0));
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let modules = about.modules.iter();
        let modules = modules.map(|module| json!({ "path": module.path, "buildId": hex(&module.build_id) }));
        let defects = about.defects.iter().map(|defect| {
            json!({
                "kind": defect.kind.name(),
                "by": name(defect.reporter),
                "addr": format!("{:x}", defect.address),
                "rep": trace(defect.trace),
                "alloc": trace(defect.alloc),
                "measured": defect.measured,
                "usable": defect.usable,
                "num": defect.count,
            })
        });
        json!({
            "program": about.program,
            "pid": about.pid,
            "pauseNs": about.pause_ns,
            "sampling": about.sampling.map(|sampling| json!({ "probability": sampling.probability })),
            "modules": modules.collect::<Vec<_>>(),
            "defects": defects.collect::<Vec<_>>(),
            "defectsCount": about.defects_count,
        })
    }
}

impl DefectKind {
    /// What it is called in files.
    pub fn name(self) -> &'static str {
        match self {
            DefectKind::NoBlock => "no-block",
            DefectKind::Interior => "interior",
            DefectKind::NotHeap => "not-heap",
            DefectKind::Partly => "partly",
            DefectKind::FreedWhileReported => "freed-while-reported",
            DefectKind::Unmarked => "unmarked",
        }
    }
}

fn table<T>(out: &mut impl Write, first: u32, rows: &[T], text: impl Fn(&T) -> String) -> io::Result<()> {
    for (at, row) in (first..).zip(rows) {
        let comma = if at == first { "" } else { "," };
        write!(out, "{comma}\n  {}: {}", quoted(at), text(row))?;
    }
    Ok(())
}

fn quoted(number: u32) -> String {
    format!("\"{}\"", key(number))
}

/// Base 32.
fn key(mut number: u32) -> String {
    const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef";
    let mut text = Vec::new();
    loop {
        text.push(char::from(DIGITS[number as usize % 32]));
        number /= 32;
        if number == 0 {
            return text.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Builder, Mode, Report};

    #[test]
    fn keys_are_in_base_32() {
        assert_eq!([0, 25, 26, 31, 32, 1023, 1024].map(key), ["A", "Z", "a", "f", "BA", "ff", "BAA"]);
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
        let text = String::from_utf8(text).unwrap();
        let expected = r##"{
 "version": 5,
 "invocation": {
  "dmdEnvVar": null,
  "mode": "dark-matter"
 },
 "blockList": [
  {"req": 10, "slop": 6, "alloc": "A", "reps": ["B"], "by": ["E"], "num": 2, "type": "F"},
  {"req": 10, "alloc": "A", "reps": ["B"], "by": ["E"], "num": 3, "type": "F", "weight": 3.4, "variance": 1.5},
  {"req": 10}
 ],
 "traceTable": {
  "A": ["C", "D"],
  "B": ["D"]
 },
 "frameTable": {
  "C": "#00: ???[/a \"b\" +0x10]",
  "D": "#00: main (a.c:1)"
 },
 "nameTable": {
  "E": "explicit/a",
  "F": "T"
 },
"##;
        assert_eq!(text.split(" \"heapledger\"").next().unwrap(), expected);
    }
}
