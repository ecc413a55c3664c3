//! The page about:memory as JSON.

use heapledger_report_format::Unit;
use heapledger_report_format::about::{Node, Page, Section};
use serde::Serialize;

use crate::json::document::Document;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PageJson<'p> {
    total_resident: &'p str,
    processes: Vec<SectionJson<'p>>,
}

impl Document for PageJson<'_> {
    const SCHEMA: &'static str = "reports";
    const ROWS: Option<&'static str> = None;
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SectionJson<'p> {
    process: &'p str,
    warnings: &'p [String],
    invalid: &'p [String],
    explicit: Option<NodeJson<'p>>,
    others: Vec<NodeJson<'p>>,
    degenerates: Vec<NodeJson<'p>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NodeJson<'p> {
    name: &'p str,
    path: &'p str,
    unit: &'static str,
    amount: i64,
    value: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<&'p str>,
    description: &'p str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<NodeJson<'p>>,
}

impl<'p> From<&'p Page> for PageJson<'p> {
    fn from(page: &'p Page) -> PageJson<'p> {
        PageJson { total_resident: &page.total_resident, processes: page.sections.iter().map(Into::into).collect() }
    }
}

impl<'p> From<&'p Section> for SectionJson<'p> {
    fn from(section: &'p Section) -> SectionJson<'p> {
        SectionJson {
            process: &section.process,
            warnings: &section.warnings,
            invalid: &section.invalid,
            explicit: section.explicit.as_ref().map(Into::into),
            others: section.others.iter().map(Into::into).collect(),
            degenerates: section.degenerates.iter().map(Into::into).collect(),
        }
    }
}

impl<'p> From<&'p Node> for NodeJson<'p> {
    fn from(node: &'p Node) -> NodeJson<'p> {
        NodeJson {
            name: &node.name,
            path: &node.path,
            unit: match node.unit {
                Unit::Bytes => "bytes",
                Unit::Count => "count",
                Unit::CountCumulative => "cumulative count",
                Unit::Percentage => "hundredths of a percent",
            },
            amount: node.amount,
            value: &node.value,
            percent: node.percent.as_deref(),
            description: &node.description,
            notes: node.notes.iter().map(|note| note.text()).collect(),
            children: node.children.iter().map(Into::into).collect(),
        }
    }
}
