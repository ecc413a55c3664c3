//! `heapledger dmd --who-points-to`: the chains of blocks whose pointers lead to one block.

use std::fmt::Write as _;

use heapledger_dmd::{Chains, DmdOptions, Link, Log, Mode, Referrers, is_alloc_fn};
use heapledger_report_format::escape;
use serde::Serialize;

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{count, counted};
use crate::json::document::Document;

/// The number of blocks shown.
const LINKS_MAX: usize = 1000;

/// Returns the chains to the block around an address of a log with contents.
pub(super) fn find(source: &str, log: &Log, address: u64) -> Result<Chains> {
    if log.mode != Mode::Scan {
        let what = format!("`{source}` does not say what is in its blocks: it is of mode `{}`", log.mode.name());
        return Err(Failure::new(Exit::Unreadable, what).hint("logs with contents are those of mode `scan`"));
    }
    Referrers::of(log).chains(address, LINKS_MAX).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("no live block of `{source}` is at 0x{address:x}"))
            .hint("`heapledger dmd` prints the addresses of blocks")
    })
}

/// Returns the chains as text.
pub(super) fn text(log: &Log, chains: &Chains, address: u64, options: &DmdOptions) -> String {
    let mut text = Text { log, chains, options, above: above(chains), out: String::new() };
    text.target(address);
    for link in text.above[0].clone() {
        text.branch(link);
    }
    text.summary();
    text.out
}

/// The document that `--json` prints for chains.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PointersJson<'log> {
    /// The address that was asked for, in hexadecimal as all addresses.
    address: String,
    /// The offset of the address in its block.
    offset: u64,
    /// True if chains were left out.
    is_cut: bool,
    /// The blocks, in the order of their distance.
    blocks: Vec<PointingJson<'log>>,
}

impl Document for PointersJson<'_> {
    const SCHEMA: &'static str = "pointers";
    const ROWS: Option<&'static str> = Some("blocks");
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PointingJson<'log> {
    address: String,
    requested: u64,
    #[serde(rename = "type")]
    type_name: Option<&'log str>,
    /// The index of the block that it points to; `null` for the block that was asked for.
    points_to: Option<usize>,
    /// The offsets of the pointers in the block.
    offsets: Vec<u64>,
    depth: usize,
    is_root: bool,
    pointers_to_it: usize,
    others_point_to_it: usize,
    /// The stack that allocated the block, innermost first.
    allocated_at: Vec<&'log str>,
}

/// Returns the chains for JSON.
pub(super) fn to_json<'log>(log: &'log Log, chains: &Chains, address: u64, options: &DmdOptions) -> PointersJson<'log> {
    let link = |(at, link): (usize, &Link)| {
        let block = &log.scanned.blocks[link.block];
        PointingJson {
            address: format!("0x{:x}", block.address),
            requested: block.requested,
            type_name: type_name(log, link),
            points_to: (at > 0).then_some(link.to),
            offsets: link.offsets.clone(),
            depth: link.depth,
            is_root: link.is_root(),
            pointers_to_it: link.referrers,
            others_point_to_it: link.elsewhere,
            allocated_at: stack(log, link, options),
        }
    };
    PointersJson {
        address: format!("0x{address:x}"),
        offset: chains.offset,
        is_cut: chains.is_cut,
        blocks: chains.links.iter().enumerate().map(link).collect(),
    }
}

fn type_name<'log>(log: &'log Log, link: &Link) -> Option<&'log str> {
    let block = &log.scanned.blocks[link.block];
    log.groups[block.group as usize].type_name.map(|name| log.name(name))
}

/// Returns the frames that allocated a block, without functions that allocate.
fn stack<'log>(log: &'log Log, link: &Link, options: &DmdOptions) -> Vec<&'log str> {
    let block = &log.scanned.blocks[link.block];
    let Some(trace) = log.groups[block.group as usize].alloc else { return Vec::new() };
    let frames = log.trace(trace).iter().map(|frame| log.frame(*frame));
    frames.skip_while(|frame| is_alloc_fn(frame)).take(options.max_frames).collect()
}

/// Returns the links that point to each one, sorted by the length of their chains from a root.
fn above(chains: &Chains) -> Vec<Vec<usize>> {
    let links = &chains.links;
    let mut lengths: Vec<usize> =
        links.iter().map(|link| if link.is_root() { link.depth } else { usize::MAX }).collect();
    let mut above = vec![Vec::new(); links.len()];
    // A link comes before those that point to it.
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
    options: &'a DmdOptions,
    above: Vec<Vec<usize>>,
    out: String,
}

impl Text<'_> {
    /// Writes the block itself. Writing to a `String` cannot fail.
    fn target(&mut self, address: u64) {
        let target = &self.chains.links[0];
        let offset = match self.chains.offset {
            0 => String::new(),
            offset => format!(", 0x{address:x} is {} into it", counted(offset, "byte", "bytes")),
        };
        let block = self.block(target);
        let _ = writeln!(self.out, "{block}{offset}");
        for (at, frame) in stack(self.log, target, self.options).into_iter().enumerate() {
            let _ = writeln!(self.out, "    #{:02}: {}", at + 1, escape(frame));
        }
        self.out.push('\n');
    }

    fn branch(&mut self, at: usize) {
        let chains = self.chains;
        let link = &chains.links[at];
        let offsets: Vec<String> = link.offsets.iter().map(u64::to_string).collect();
        let bytes = if offsets.len() == 1 { "byte" } else { "bytes" };
        let frame =
            stack(self.log, link, self.options).first().map_or(String::new(), |frame| format!(": {}", escape(frame)));
        let note = match (link.is_root(), link.elsewhere) {
            (true, _) => " [root]".to_owned(),
            (false, 0) => String::new(),
            (false, elsewhere) => {
                format!(" [{} elsewhere in this tree]", counted(elsewhere as u64, "other is", "others are"))
            }
        };
        let (indent, block, offsets) = ("  ".repeat(link.depth - 1), self.block(link), offsets.join(", "));
        let _ = writeln!(self.out, "{indent}<- {block} at {bytes} {offsets}{frame}{note}");
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
        let type_name = type_name(self.log, link).map_or(String::new(), |name| format!(", {}", escape(name)));
        format!("0x{:x} ({}{type_name})", block.address, counted(block.requested, "byte", "bytes"))
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
        let options = DmdOptions::default();
        let shown = |address| find("scan.json", &log, address).map(|chains| text(&log, &chains, address, &options));
        let text_shown = shown(0x1004).unwrap();
        assert_eq!(
            text_shown,
            "0x1000 (16 bytes, Node), 0x1004 is 4 bytes into it\n    #01: make0 (a.c:0)\n\n\
             <- 0x3000 (16 bytes) at byte 8: make2 (a.c:2) [root]\n\
             <- 0x4000 (24 bytes) at bytes 0, 8, 16: make3 (a.c:3) [root]\n\
             <- 0x2000 (16 bytes) at byte 8: make1 (a.c:1) [1 other is elsewhere in this tree]\n  \
             <- 0x5000 (8 bytes) at byte 0: make4 (a.c:4) [root]\n\n\
             4 blocks lead to it, from 3 roots: no other block points to a root.\n"
        );
        assert!(shown(0x4000).unwrap().ends_with("No other block points to it.\n"));
        assert!(shown(0x1010).is_err());

        let json = to_json(&log, &find("scan.json", &log, 0x1004).unwrap(), 0x1004, &options);
        let json = serde_json::to_value(json).unwrap();
        assert_eq!((&json["address"], &json["offset"], &json["is_cut"]), (&"0x1004".into(), &4.into(), &false.into()));
        let blocks = json["blocks"].as_array().unwrap();
        let links: Vec<String> = blocks
            .iter()
            .map(|block| {
                format!("{} {} {} {}", block["address"], block["points_to"], block["offsets"], block["is_root"])
            })
            .collect();
        assert_eq!(
            links,
            [
                r#""0x1000" null [] false"#,
                r#""0x2000" 0 [8] false"#,
                r#""0x3000" 0 [8] true"#,
                r#""0x4000" 0 [0,8,16] true"#,
                r#""0x5000" 1 [0] true"#,
            ]
        );
        assert_eq!((&blocks[0]["type"], &blocks[0]["allocated_at"][0]), (&"Node".into(), &"make0 (a.c:0)".into()));
    }
}
