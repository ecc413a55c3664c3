//! Results as JSON.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeTuple, Serializer};

use super::{Census, CensusValue, Figures, ReportFrame, ReportFrames, StackKey};

/// Writes the value alone, as `takeCensus` returns it.
impl Serialize for Census {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.in_json(&self.frames).serialize(serializer)
    }
}

impl CensusValue {
    /// Returns the form in which a value is written. The frames are those of its result.
    pub fn in_json<'a>(&'a self, frames: &'a ReportFrames) -> impl Serialize + use<'a> {
        JsonValue { value: self, frames }
    }
}

/// A value with the frames of its stacks.
struct JsonValue<'a> {
    value: &'a CensusValue,
    frames: &'a ReportFrames,
}

impl JsonValue<'_> {
    fn child<'a>(&'a self, value: &'a CensusValue) -> JsonValue<'a> {
        JsonValue { value, frames: self.frames }
    }
}

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            CensusValue::Count(figures) => figures.serialize(serializer),
            CensusValue::Bucket(ids) => serializer.collect_seq(ids.iter().map(|id| id.0)),
            CensusValue::Groups { groups, rest } => {
                let mut map = serializer.serialize_map(None)?;
                let rest_key = rest.as_ref().map(|(key, _)| *key);
                for (key, value) in groups {
                    map.serialize_entry(&*unlike(key, rest_key), &self.child(value))?;
                }
                if let Some((key, value)) = rest {
                    map.serialize_entry(key, &self.child(value))?;
                }
                map.end()
            }
            CensusValue::Stacks(groups) => serializer
                .collect_seq(groups.iter().map(|(key, value)| Pair(JsonKey(*key, self.frames), self.child(value)))),
            CensusValue::All(values) => serializer.collect_seq(values.iter().map(|value| self.child(value))),
        }
    }
}

/// Returns a key that differs from that of the rest. (The engine replaces such a group by the
/// rest.)
fn unlike<'a>(key: &'a str, rest: Option<&str>) -> Cow<'a, str> {
    if Some(key) == rest { Cow::Owned(format!("{key} (name)")) } else { Cow::Borrowed(key) }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(count) = self.count {
            map.serialize_entry("count", &count)?;
        }
        if let Some(bytes) = self.bytes {
            map.serialize_entry("bytes", &bytes)?;
        }
        if let Some(label) = &self.label {
            map.serialize_entry("label", &**label)?;
        }
        map.end()
    }
}

/// A group by stack.
struct Pair<'a>(JsonKey<'a>, JsonValue<'a>);

impl Serialize for Pair<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pair = serializer.serialize_tuple(2)?;
        pair.serialize_element(&self.0)?;
        pair.serialize_element(&self.1)?;
        pair.end()
    }
}

/// The key of a group by stack.
struct JsonKey<'a>(StackKey, &'a ReportFrames);

impl Serialize for JsonKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            StackKey::Stack(stack) => {
                let mut frames = serializer.serialize_seq(None)?;
                for frame in self.1.stack(stack) {
                    frames.serialize_element(&frame)?;
                }
                frames.end()
            }
            StackKey::Empty => serializer.serialize_none(),
            StackKey::NoStack => serializer.serialize_str("noStack"),
        }
    }
}

/// Writes a frame with the property names of a `SavedFrame`, without its caller.
impl Serialize for ReportFrame<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("source", self.source.unwrap_or(""))?;
        map.serialize_entry("line", &self.line)?;
        map.serialize_entry("column", &self.column)?;
        map.serialize_entry("functionDisplayName", &self.function)?;
        map.end()
    }
}
