//! The memory that making a log takes as text, as the detector in Firefox shows it with
//! `--show-dump-stats=yes`.

use std::fmt::Write;

use crate::log::Log;
use crate::text::number;

impl Log {
    /// Returns what making the log took as text: a block in the layout of the detector in Firefox,
    /// with the names of our own data structures. Memory is left out of a log that does not say it.
    pub fn dump_stats_text(&self) -> String {
        let mut text = String::from("Execution measurements {\n");
        if let Some(stats) = &self.about.dump {
            let kept = [
                ("Register of live blocks:", stats.register),
                ("Stacks:", stats.stacks),
                ("Unwind rules:", stats.rules),
                ("Threads:", stats.threads),
                ("Sampled events:", stats.events),
            ];
            group(&mut text, "Data structures that persist after the dump", &kept, " bytes");
            let freed = [("Copy of the register:", stats.copy)];
            group(&mut text, "Data structures that are destroyed after the dump", &freed, " bytes");
        }
        let sizes = self.groups.iter().flat_map(|group| &group.sizes);
        let counts = [
            ("Blocks:", sizes.map(|size| size.count).fold(0, u64::saturating_add)),
            ("Stacks:", self.traces.len() as u64),
            ("Frames:", self.frames.len() as u64),
        ];
        group(&mut text, "Counts", &counts, "");
        text.push_str("}\n");
        text
    }
}

fn group(text: &mut String, title: &str, lines: &[(&str, u64)], unit: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "  {title} {{");
    for (name, amount) in lines {
        let amount = number(i64::try_from(*amount).unwrap_or(i64::MAX));
        let _ = writeln!(text, "    {name:<24} {amount:>14}{unit}");
    }
    text.push_str("  }\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::log::{Block, DumpStats, Mode};

    #[test]
    fn a_dump_says_what_it_took() {
        let mut builder = Builder::new(Mode::Live);
        let frames = ["f (a.c:1)", "main (a.c:2)"].map(|text| builder.frame(text));
        let alloc = Some(builder.trace(&frames));
        let block = Block {
            requested: 8,
            slop: 8,
            count: 1_234,
            weight: 1.0,
            variance: 0.0,
            alloc,
            reports: [None; 2],
            type_name: None,
            context: None,
        };
        builder.add(&block);
        let [register, stacks, rules, threads, events, copy] = [1 << 20, 4_096, 0, 77, 5, 2_000];
        builder.about().dump = Some(DumpStats { register, stacks, rules, threads, events, copy });
        let log = builder.finish();
        let expected = "\
Execution measurements {
  Data structures that persist after the dump {
    Register of live blocks:      1,048,576 bytes
    Stacks:                           4,096 bytes
    Unwind rules:                         0 bytes
    Threads:                             77 bytes
    Sampled events:                       5 bytes
  }
  Data structures that are destroyed after the dump {
    Copy of the register:             2,000 bytes
  }
  Counts {
    Blocks:                           1,234
    Stacks:                               1
    Frames:                               2
  }
}
";
        assert_eq!(log.dump_stats_text(), expected);
        let mut file = Vec::new();
        log.write(&mut file).unwrap();
        let again = Log::read(&*file).unwrap();
        assert_eq!(again.about.dump, log.about.dump);
        let unknown = Log { about: Default::default(), ..again }.dump_stats_text();
        assert!(unknown.starts_with("Execution measurements {\n  Counts {\n"), "{unknown}");
    }
}
