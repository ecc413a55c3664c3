//! The text form of breakdowns.
//!
//! The rules are those of the engine, which reads properties of JavaScript objects: values are
//! converted as JavaScript does, unknown properties are ignored, and properties are read in a fixed
//! order, which decides which of several errors is reported.

use std::fmt::Write;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

use super::{Breakdown, BreakdownError, By, CoarseTypes};

impl Breakdown {
    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON (or nested more than 128 levels deep), if a `by` is missing or
    /// unknown, if a word is within itself, or if a breakdown is `null`.
    pub fn from_json(text: &str) -> Result<Breakdown, BreakdownError> {
        let value: Value = serde_json::from_str(text).map_err(|error| BreakdownError::Json(error.to_string()))?;
        Breakdown::from_value(&value)
    }

    /// Reads the text form, which has been parsed.
    ///
    /// # Errors
    ///
    /// Fails as [`from_json`](Breakdown::from_json) does.
    pub fn from_value(value: &Value) -> Result<Breakdown, BreakdownError> {
        read(Some(value), &mut Vec::new())
    }
}

/// Reads one breakdown, which is within the words of `path`.
fn read(value: Option<&Value>, path: &mut Vec<By>) -> Result<Breakdown, BreakdownError> {
    let Some(value) = value else { return Ok(Breakdown::count()) };
    match value {
        Value::Null => return Err(BreakdownError::Null),
        Value::Array(list) => {
            let all: Result<Vec<_>, _> = list.iter().map(|item| read(Some(item), path)).collect();
            return Ok(Breakdown::All(all?));
        }
        _ => {}
    }
    let by = by_of(value)?;
    if path.contains(&by) {
        return Err(BreakdownError::Nested(quoted(by.name())));
    }
    path.push(by);
    let breakdown = read_children(by, value, path)?;
    path.pop();
    Ok(breakdown)
}

fn by_of(value: &Value) -> Result<By, BreakdownError> {
    match value.get("by") {
        Some(by) => string_of(by).parse(),
        None => Err(BreakdownError::Unrecognized(quoted("undefined"))),
    }
}

fn read_children(by: By, value: &Value, path: &mut Vec<By>) -> Result<Breakdown, BreakdownError> {
    let mut child = |name| read(value.get(name), path);
    let mut boxed = |name| child(name).map(Box::new);
    Ok(match by {
        By::Count => Breakdown::Count {
            count: value.get("count").is_none_or(is_true),
            bytes: value.get("bytes").is_none_or(is_true),
            label: value.get("label").map(string_of),
        },
        By::Bucket => Breakdown::Bucket,
        By::ObjectClass => Breakdown::ObjectClass { then: boxed("then")?, other: boxed("other")? },
        By::CoarseType => Breakdown::CoarseType(Box::new(CoarseTypes {
            objects: child("objects")?,
            scripts: child("scripts")?,
            strings: child("strings")?,
            other: child("other")?,
            dom_node: child("domNode")?,
        })),
        By::InternalType => Breakdown::InternalType { then: boxed("then")? },
        By::DescriptiveType => Breakdown::DescriptiveType { then: boxed("then")?, other: boxed("other")? },
        By::AllocationStack => Breakdown::AllocationStack { then: boxed("then")?, no_stack: boxed("noStack")? },
        By::Filename => Breakdown::Filename { then: boxed("then")?, no_filename: boxed("noFilename")? },
    })
}

/// Converts a value as JavaScript's `ToString` does.
///
/// Numbers that JavaScript writes with an exponent are written without one.
fn string_of(value: &Value) -> String {
    match value {
        Value::Null => String::from("null"),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => float.to_string(),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let items: Vec<_> =
                list.iter().map(|item| if item.is_null() { String::new() } else { string_of(item) }).collect();
            items.join(",")
        }
        Value::Object(_) => String::from("[object Object]"),
    }
}

/// Converts a value as JavaScript's `ToBoolean` does.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// Quotes a text as the engine does in messages: everything except printable ASCII is escaped.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for unit in text.encode_utf16() {
        let named = match unit {
            0x08 => Some('b'),
            0x09 => Some('t'),
            0x0a => Some('n'),
            0x0b => Some('v'),
            0x0c => Some('f'),
            0x0d => Some('r'),
            0x22 => Some('"'),
            0x5c => Some('\\'),
            _ => None,
        };
        // Writing to a string does not fail.
        let _ = match (named, unit) {
            (Some(letter), _) => write!(quoted, "\\{letter}"),
            (None, 0x20..=0x7e) => write!(quoted, "{}", char::from(unit.to_le_bytes()[0])),
            (None, 0..=0xff) => write!(quoted, "\\x{unit:02X}"),
            (None, _) => write!(quoted, "\\u{unit:04X}"),
        };
    }
    quoted.push('"');
    quoted
}

/// Writes the text form with every child, so that it is complete without the defaults.
impl Serialize for Breakdown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Breakdown::All(list) = self {
            let mut array = serializer.serialize_seq(Some(list.len()))?;
            for breakdown in list {
                array.serialize_element(breakdown)?;
            }
            return array.end();
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("by", self.by().map_or("", By::name))?;
        match self {
            Breakdown::Count { count, bytes, label } => {
                map.serialize_entry("count", count)?;
                map.serialize_entry("bytes", bytes)?;
                if let Some(label) = label {
                    map.serialize_entry("label", label)?;
                }
            }
            Breakdown::Bucket | Breakdown::All(_) => {}
            Breakdown::ObjectClass { then, other } | Breakdown::DescriptiveType { then, other } => {
                map.serialize_entry("then", then)?;
                map.serialize_entry("other", other)?;
            }
            Breakdown::CoarseType(types) => {
                map.serialize_entry("objects", &types.objects)?;
                map.serialize_entry("scripts", &types.scripts)?;
                map.serialize_entry("strings", &types.strings)?;
                map.serialize_entry("other", &types.other)?;
                map.serialize_entry("domNode", &types.dom_node)?;
            }
            Breakdown::InternalType { then } => map.serialize_entry("then", then)?,
            Breakdown::AllocationStack { then, no_stack } => {
                map.serialize_entry("then", then)?;
                map.serialize_entry("noStack", no_stack)?;
            }
            Breakdown::Filename { then, no_filename } => {
                map.serialize_entry("then", then)?;
                map.serialize_entry("noFilename", no_filename)?;
            }
        }
        map.end()
    }
}
