//! All advice on a log, in the order of its worth.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use super::{Advice, Adviser};
use crate::analysis::{Analysis, DmdOptions, KindName};
use crate::log::Log;
use crate::text::{counted, number, percent};

/// The steps to take, those with the most bytes first in each list. As text, a section of the
/// detector's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps about unreported blocks.
    pub unreported: Vec<Step>,
    /// The steps about blocks that are reported twice.
    pub twice: Vec<Step>,
    /// Unreported bytes, whether there is advice on them or not.
    pub unreported_bytes: i64,
    /// Bytes that are reported twice.
    pub twice_bytes: i64,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The advice, for the largest part.
    pub advice: Advice,
    /// Usable bytes of the blocks that this is about.
    pub bytes: i64,
    /// The number of these blocks.
    pub blocks: i64,
    /// The parts of these blocks, the one with the most bytes first.
    pub parts: Vec<Part>,
}

/// Blocks that one function allocates, of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The function, and its place in the source.
    pub location: String,
    /// Their type, if it is known.
    pub type_name: Option<String>,
    /// Their usable bytes.
    pub bytes: i64,
    /// The number of these blocks.
    pub blocks: i64,
}

/// The most steps, and parts of a step, that the text shows.
const STEPS_SHOWN: usize = 10;
const PARTS_SHOWN: usize = 4;

impl Plan {
    /// Groups the advice by the place where it is to be followed. The analysis must be that of the
    /// adviser.
    pub fn of(analysis: &Analysis, adviser: &Adviser) -> Plan {
        let mut plan = Plan::default();
        for kind in &analysis.kinds {
            let (steps, total) = match kind.name {
                KindName::Unreported => (&mut plan.unreported, &mut plan.unreported_bytes),
                KindName::TwiceReported => (&mut plan.twice, &mut plan.twice_bytes),
                KindName::OnceReported | KindName::Live | KindName::Cumulative => continue,
            };
            *total = kind.total.bytes;
            let mut parts: HashMap<String, Vec<(Advice, Part)>> = HashMap::new();
            for record in &kind.records {
                let Some(advice) = adviser.record(kind.name, record) else { continue };
                let location = adviser.owner(&record.alloc).as_ref().map(ToString::to_string).unwrap_or_default();
                let parts = parts.entry(key(&advice)).or_default();
                parts.extend(record.types.iter().map(|share| {
                    let type_name = share.name.as_ref().map(ToString::to_string);
                    let part = Part { location: location.clone(), type_name, bytes: share.bytes, blocks: share.blocks };
                    (advice.clone(), part)
                }));
            }
            *steps = sorted(parts);
        }
        plan
    }

    /// Returns the plan for a log, whose frames should have the names of functions. `estimate` is
    /// that of [`DmdOptions`].
    pub fn of_log(log: &Log, estimate: Option<f64>) -> Plan {
        let analysis = Analysis::of(log, &DmdOptions { max_frames: usize::MAX, estimate, ..DmdOptions::default() });
        Plan::of(&analysis, &Adviser::of(&analysis))
    }
}

/// Returns the key of the place where advice is to be followed.
fn key(advice: &Advice) -> String {
    match advice {
        Advice::Register { owner, .. } => owner.subject().to_owned(),
        Advice::Extend { owner, reporter, .. } => format!("{reporter}\0{}", owner.subject()),
        Advice::LeaveOut { reporter, keeper, owner, .. } => format!("{reporter}\0{keeper}\0{}", owner.subject()),
        Advice::ReportOnce { .. } | Advice::Choose { .. } => advice.to_string(),
    }
}

fn sorted(steps: HashMap<String, Vec<(Advice, Part)>>) -> Vec<Step> {
    let mut steps: Vec<(String, Step)> = steps
        .into_iter()
        .map(|(key, parts)| {
            let mut together: HashMap<(String, Option<String>), (Advice, Part)> = HashMap::new();
            for (advice, part) in parts {
                let location = (part.location.clone(), part.type_name.clone());
                match together.get_mut(&location) {
                    Some((_, same)) => {
                        same.bytes += part.bytes;
                        same.blocks += part.blocks;
                    }
                    None => _ = together.insert(location, (advice, part)),
                }
            }
            let mut parts: Vec<(Advice, Part)> = together.into_values().collect();
            parts.sort_by(|(_, one), (_, other)| {
                let names = |part: &Part| (part.location.clone(), part.type_name.clone());
                other.bytes.cmp(&one.bytes).then_with(|| names(one).cmp(&names(other)))
            });
            let advice = parts[0].0.clone();
            let parts: Vec<Part> = parts.into_iter().map(|(_, part)| part).collect();
            let bytes = parts.iter().map(|part| part.bytes).sum();
            (key, Step { advice, bytes, blocks: parts.iter().map(|part| part.blocks).sum(), parts })
        })
        .collect();
    steps.sort_by(|(key, one), (other_key, other)| other.bytes.cmp(&one.bytes).then_with(|| key.cmp(other_key)));
    steps.into_iter().map(|(_, step)| step).collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Advice {{")?;
        if self.unreported.is_empty() && self.twice.is_empty() {
            writeln!(f, "  none")?;
        }
        let mut lists = [
            (&self.unreported, self.unreported_bytes, "unreported", "Unreported"),
            (&self.twice, self.twice_bytes, "twice-reported", "Twice-reported"),
        ];
        lists.sort_by_key(|(steps, ..)| Reverse(steps.first().map(|step| step.bytes)));
        for (steps, total, kind, heading) in lists {
            if !steps.is_empty() {
                writeln!(f, "  {heading}:")?;
            }
            for (position, step) in (1..=STEPS_SHOWN).zip(steps) {
                let share = percent(step.bytes, total);
                let (bytes, blocks) = (number(step.bytes), counted(step.blocks.unsigned_abs(), "block", "blocks"));
                writeln!(f, "  {position}. {bytes} bytes ({share:.2}% of {kind}) in {blocks}")?;
                writeln!(f, "     {}", step.advice)?;
                for part in step.parts.iter().take(PARTS_SHOWN) {
                    let type_name = part.type_name.as_ref().map(|name| format!(", of type {name}")).unwrap_or_default();
                    let (bytes, blocks) = (number(part.bytes), counted(part.blocks.unsigned_abs(), "block", "blocks"));
                    writeln!(f, "       {bytes} bytes in {blocks} by {}{type_name}", part.location)?;
                }
                if step.parts.len() > PARTS_SHOWN {
                    writeln!(f, "       and {} more", step.parts.len() - PARTS_SHOWN)?;
                }
            }
            if steps.len() > STEPS_SHOWN {
                writeln!(f, "  and {} more about {kind} memory", steps.len() - STEPS_SHOWN)?;
            }
        }
        writeln!(f, "}}")
    }
}
