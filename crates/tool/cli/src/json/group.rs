//! The names of groups of sites, for JSON.

use heapledger_analysis::{Key, Rank, Stacks};
use serde::Serialize;

use crate::json::names::{FrameJson, GroupNameJson, OwnerJson};
use crate::label::Labels;

/// The names of a group, for JSON. The names that are present depend on the property by which sites
/// are grouped.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GroupJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    /// The full name of the type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_name: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    frame: Option<FrameJson>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerJson>,
    #[serde(flatten)]
    declared: GroupNameJson,
}

impl GroupJson {
    /// Returns the names of a group, whose sites are in these stacks.
    pub(crate) fn new(labels: &mut Labels<'_, '_>, stacks: &Stacks, rank: &Rank) -> GroupJson {
        let names = &labels.names;
        let module = match rank.key {
            Key::Module(module) => Some(names.module_path(module)),
            _ => None,
        };
        let type_name = match rank.key {
            Key::Type(_) => Some(names.function(rank.frame.function).full.to_string()),
            _ => None,
        };
        let frame = has_frame(rank.key).then(|| labels.frame(&rank.frame));
        let owner = frame.is_some().then(|| OwnerJson::new(labels, stacks, rank.largest));
        GroupJson { module, type_name, frame, owner, declared: GroupNameJson::new(labels, stacks, rank.key) }
    }
}

/// True if a frame names the group.
fn has_frame(key: Key) -> bool {
    match key {
        Key::Owner(_) | Key::Line(_) | Key::File(_) | Key::Site(_) | Key::Function(_) => true,
        Key::Context(_) | Key::Scope(_) | Key::Task(_) | Key::Heap(_) | Key::Part(_) => false,
        Key::Module(_) | Key::Type(_) => false,
    }
}
