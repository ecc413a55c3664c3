//! `heapledger dmd --who-points-to`: the chains of blocks that lead to one.

use std::fmt::Write as _;

use heapledger_dmd::{Chains, Link, Log, Mode, Options, Referrers, is_alloc_fn};
use heapledger_reports::escape;

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{count, counted};

/// How many blocks are shown.
const LINKS_MAX: usize = 1000;

/// The chains as text.
pub(super) fn show(source: &str, log: &Log, address: u64, options: &Options) -> Result<String> {
    if log.mode != Mode::Scan {
        let what = format!("`{source}` does not say what is in its blocks: it is of mode `{}`", log.mode.name());
        return Err(Failure::new(Exit::Unreadable, what).hint("logs with contents are those of mode `scan`"));
    }
    let Some(chains) = Referrers::of(log).chains(address, LINKS_MAX) else {
        return Err(Failure::new(Exit::Usage, format!("no live block of `{source}` is at 0x{address:x}"))
            .hint("`heapledger dmd` prints the addresses of blocks"));
    };
    let mut text = Text { log, chains: &chains, options, above: above(&chains), out: String::new() };
    text.target(address);
    for link in text.above[0].clone() {
        text.branch(link);
    }
    text.summary();
    Ok(text.out)
}

/// The links that point to each one, the one first with the shortest chain from a root.
fn above(chains: &Chains) -> Vec<Vec<usize>> {
    let links = &chains.links;
    let mut lengths: Vec<usize> =
        links.iter().map(|link| if link.is_root() { link.depth } else { usize::MAX }).collect();
    let mut above = vec![Vec::new(); links.len()];
    // What points to a link comes after it.
    for (at, link) in links.iter().enumerate().skip(1).rev() {
        lengths[link.to] = lengths[link.to].min(lengths[at]);
        above[link.to].push(at);
    }
    for list in &mut above {
        list.sort_by_key(|at| (lengths[*at], *at));
    }
    above
}

struct Text<'a> {
    log: &'a Log,
    chains: &'a Chains,
    options: &'a Options,
    above: Vec<Vec<usize>>,
    out: String,
}

impl Text<'_> {
    /// The block itself. Writing to a `String` cannot fail.
    fn target(&mut self, address: u64) {
        let target = &self.chains.links[0];
        let offset = match self.chains.offset {
            0 => String::new(),
            offset => format!(", 0x{address:x} is {} into it", counted(offset, "byte", "bytes")),
        };
        let block = self.block(target);
        let _ = writeln!(self.out, "{block}{offset}");
        for (at, frame) in self.stack(target).iter().enumerate() {
            let _ = writeln!(self.out, "    #{:02}: {frame}", at + 1);
        }
        self.out.push('\n');
    }

    fn branch(&mut self, at: usize) {
        let chains = self.chains;
        let link = &chains.links[at];
        let more = match link.pointers {
            ..=1 => String::new(),
            pointers => format!(" and {} more", count(pointers as u64 - 1)),
        };
        let frame = self.stack(link).into_iter().next().map_or(String::new(), |frame| format!(": {frame}"));
        let note = match (link.is_root(), link.elsewhere) {
            (true, _) => " [root]".to_owned(),
            (false, 0) => String::new(),
            (false, elsewhere) => {
                format!(" [{} elsewhere in this tree]", counted(elsewhere as u64, "other is", "others are"))
            }
        };
        let (indent, block, offset) = ("  ".repeat(link.depth - 1), self.block(link), link.at);
        let _ = writeln!(self.out, "{indent}<- {block} at byte {offset}{more}{frame}{note}");
        for above in self.above[at].clone() {
            self.branch(above);
        }
    }

    fn summary(&mut self) {
        let links = &self.chains.links;
        if links[0].is_root() {
            self.out.push_str("No other block points to it.\n");
            return;
        }
        let roots = links.iter().filter(|link| link.is_root()).count() as u64;
        let blocks = counted(links.len() as u64 - 1, "block leads", "blocks lead");
        let roots = match roots {
            0 => "none of them a root: they point to each other in a cycle".to_owned(),
            roots => format!("from {}: no other block points to a root", counted(roots, "root", "roots")),
        };
        let _ = writeln!(self.out, "\n{blocks} to it, {roots}.");
        if self.chains.is_cut {
            let _ = writeln!(self.out, "There are more: the nearest {} are shown.", count(LINKS_MAX as u64 - 1));
        }
    }

    fn block(&self, link: &Link) -> String {
        let block = &self.log.scanned.blocks[link.block];
        let type_name = self.log.groups[block.group as usize].type_name.map(|name| escape(self.log.name(name)));
        let type_name = type_name.map_or(String::new(), |name| format!(", {name}"));
        format!("0x{:x} ({}{type_name})", block.address, counted(block.requested, "byte", "bytes"))
    }

    /// Where it was allocated, without functions that allocate.
    fn stack(&self, link: &Link) -> Vec<String> {
        let block = &self.log.scanned.blocks[link.block];
        let Some(trace) = self.log.groups[block.group as usize].alloc else { return Vec::new() };
        let frames = self.log.trace(trace).iter().map(|frame| self.log.frame(*frame));
        let frames = frames.skip_while(|frame| is_alloc_fn(frame)).take(self.options.max_frames);
        frames.map(|frame| escape(frame).into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use heapledger_dmd::{Block, Builder};

    use super::*;

    #[test]
    fn chains_from_the_shortest_on() {
        let mut builder = Builder::new(Mode::Scan);
        let type_name = Some(builder.name("Node"));
        let blocks: [(u64, &[u64]); 5] = [
            (0x1000, &[0, 0]),
            (0x2000, &[0, 0x1008]),
            (0x3000, &[0x2000, 0x1000]),
            (0x4000, &[0x1000, 0x1000, 0x1000]),
            (0x5000, &[0x2008]),
        ];
        for (at, (address, words)) in blocks.into_iter().enumerate() {
            let frames = ["malloc (m.c:1)".to_owned(), format!("make{at} (a.c:{at})")].map(|text| builder.frame(&text));
            let block = Block {
                requested: 8 * words.len() as u64,
                slop: 0,
                count: 1,
                weight: 1.0,
                variance: 0.0,
                alloc: Some(builder.trace(&frames)),
                reports: [None; 2],
                type_name: type_name.filter(|_| at == 0),
                context: None,
            };
            builder.add_scanned(&block, address, words);
        }
        let log = builder.finish();
        let text = show("scan.json", &log, 0x1004, &Options::default()).unwrap();
        assert_eq!(
            text,
            "0x1000 (16 bytes, Node), 0x1004 is 4 bytes into it\n    #01: make0 (a.c:0)\n\n\
             <- 0x3000 (16 bytes) at byte 8: make2 (a.c:2) [root]\n\
             <- 0x4000 (24 bytes) at byte 0 and 2 more: make3 (a.c:3) [root]\n\
             <- 0x2000 (16 bytes) at byte 8: make1 (a.c:1) [1 other is elsewhere in this tree]\n  \
             <- 0x5000 (8 bytes) at byte 0: make4 (a.c:4) [root]\n\n\
             4 blocks lead to it, from 3 roots: no other block points to a root.\n"
        );
        let text = show("scan.json", &log, 0x4000, &Options::default()).unwrap();
        assert!(text.ends_with("No other block points to it.\n"), "{text}");
        assert!(show("scan.json", &log, 0x1010, &Options::default()).is_err());
    }
}
