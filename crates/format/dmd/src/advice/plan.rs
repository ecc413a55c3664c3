//! All advice on a log, what is most worth doing first.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;

use super::{Advice, Adviser};
use crate::amount::Amount;
use crate::log::Log;

/// What to do, the most bytes first. As text, a section of the detector's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// About what nobody reports.
    pub unreported: Vec<Step>,
    /// About what is reported twice.
    pub twice: Vec<Step>,
    /// Bytes that nobody reports, whether there is advice on them or not.
    pub unreported_bytes: f64,
    /// Bytes that are reported twice.
    pub twice_bytes: f64,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What: for the largest part.
    pub advice: Advice,
    /// Usable bytes of the blocks that this is about.
    pub bytes: f64,
    /// How many there are.
    pub blocks: f64,
    /// What they are made of, the most bytes first.
    pub parts: Vec<Part>,
}

/// Blocks that one function allocates, of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The function, and where it is.
    pub place: String,
    /// Their type, if it is known.
    pub type_name: Option<String>,
    /// Their usable bytes.
    pub bytes: f64,
    /// How many there are.
    pub blocks: f64,
}

/// As text: steps and parts of one, at most.
const STEPS_SHOWN: usize = 10;
const PARTS_SHOWN: usize = 4;

impl Plan {
    /// Puts together what is to be done in one place.
    pub fn of(adviser: &Adviser<impl Deref<Target = Log>>) -> Plan {
        let mut plan = Plan::default();
        let mut unreported: HashMap<String, Vec<(Advice, Part)>> = HashMap::new();
        let mut twice = unreported.clone();
        for group in &adviser.log.groups {
            let (steps, total) = match group.reports {
                [None, _] => (&mut unreported, &mut plan.unreported_bytes),
                [Some(_), None] => continue,
                [Some(_), Some(_)] => (&mut twice, &mut plan.twice_bytes),
            };
            let Amount { usable: bytes, blocks, .. } = adviser.log.estimated(group);
            *total += adviser.log.counted(group).usable;
            let Some(advice) = adviser.group(group) else { continue };
            let place = adviser.owner(group.alloc).map(ToString::to_string).unwrap_or_default();
            let type_name = group.type_name.and_then(|name| adviser.log.names.get(name.0 as usize)).cloned();
            steps.entry(key(&advice)).or_default().push((advice, Part { place, type_name, bytes, blocks }));
        }
        plan.unreported = sorted(unreported);
        plan.twice = sorted(twice);
        plan
    }
}

/// Advice with one key is done in one place.
fn key(advice: &Advice) -> String {
    match advice {
        Advice::Register { owner } => owner.subject().to_owned(),
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
                let place = (part.place.clone(), part.type_name.clone());
                match together.get_mut(&place) {
                    Some((_, same)) => {
                        same.bytes += part.bytes;
                        same.blocks += part.blocks;
                    }
                    None => _ = together.insert(place, (advice, part)),
                }
            }
            let mut parts: Vec<(Advice, Part)> = together.into_values().collect();
            parts.sort_by(|(_, one), (_, other)| {
                let names = |part: &Part| (part.place.clone(), part.type_name.clone());
                other.bytes.total_cmp(&one.bytes).then_with(|| names(one).cmp(&names(other)))
            });
            let advice = parts[0].0.clone();
            let parts: Vec<Part> = parts.into_iter().map(|(_, part)| part).collect();
            let bytes = parts.iter().map(|part| part.bytes).sum();
            (key, Step { advice, bytes, blocks: parts.iter().map(|part| part.blocks).sum(), parts })
        })
        .collect();
    steps.sort_by(|(key, one), (other_key, other)| other.bytes.total_cmp(&one.bytes).then_with(|| key.cmp(other_key)));
    steps.into_iter().map(|(_, step)| step).collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Advice {{")?;
        if self.unreported.is_empty() && self.twice.is_empty() {
            writeln!(f, "  none")?;
        }
        let lists = [
            (&self.unreported, self.unreported_bytes, "unreported"),
            (&self.twice, self.twice_bytes, "twice-reported"),
        ];
        for (steps, total, kind) in lists {
            for (number, step) in (1..=STEPS_SHOWN).zip(steps) {
                let share = if total > 0.0 { step.bytes / total * 100.0 } else { 0.0 };
                let (bytes, blocks) = (grouped(step.bytes), counted(step.blocks));
                writeln!(f, "  {number}. {bytes} bytes ({share:.2}% of {kind}) in {blocks}")?;
                writeln!(f, "     {}", step.advice)?;
                for part in step.parts.iter().take(PARTS_SHOWN) {
                    let type_name = part.type_name.as_ref().map(|name| format!(", of type {name}")).unwrap_or_default();
                    let (bytes, blocks) = (grouped(part.bytes), counted(part.blocks));
                    writeln!(f, "       {bytes} bytes in {blocks} by {}{type_name}", part.place)?;
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

fn counted(blocks: f64) -> String {
    let number = grouped(blocks);
    format!("{number} {}", if number == "1" { "block" } else { "blocks" })
}

/// A number with commas.
fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for (at, digit) in digits[first..].chars().enumerate() {
        if at % 3 == 0 && !text.is_empty() {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
