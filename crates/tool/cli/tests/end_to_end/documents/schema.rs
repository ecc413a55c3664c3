//! The part of JSON Schema (2020-12) that the schemas of docs/json use. Any other keyword is an
//! error, so that nothing passes unchecked. `.ci/schemas` has a Python library read the same
//! schemas.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

/// A schema of docs/json.
pub(super) struct Schema {
    root: Value,
}

/// The names of an object's fields that a schema covers.
type Known = BTreeSet<String>;

impl Schema {
    /// Reads the schema with this name. A field that it does not name is an error, because it would
    /// be undocumented.
    pub(super) fn read(name: &str) -> Schema {
        let path = format!("{}/../../../docs/json/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("no schema of `{name}`: {error}"));
        let mut root: Value = serde_json::from_str(&text).unwrap();
        root.get_mut("$defs")
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
            .for_each(|(_, schema)| close(schema));
        close(&mut root);
        Schema { root }
    }

    /// Returns the errors in a document, each with its location.
    pub(super) fn problems(&self, document: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        self.check(&self.root, document, "", &mut problems);
        problems
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, problems: &mut Vec<String>) -> Known {
        let mut known = Known::new();
        let keywords = match schema {
            Value::Bool(true) => return known,
            Value::Object(keywords) => keywords,
            _ => panic!("{at}: no schema: {schema}"),
        };
        let mut wrong = |what: String| problems.push(format!("{at}: {what}: {value:.100}"));
        for (keyword, told) in keywords {
            let texts = || told.as_array().into_iter().flatten().map(|text| text.as_str().unwrap());
            match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "format" | "default" => {}
                "type" => {
                    let is_one = told.as_str().map_or_else(|| texts().any(|it| is(value, it)), |it| is(value, it));
                    if !is_one {
                        wrong(format!("no {told}"));
                    }
                }
                "const" if value != told => wrong(format!("not {told}")),
                "enum" if !told.as_array().unwrap().contains(value) => wrong(format!("none of {told}")),
                "minimum" if value.is_number() && value.as_f64() < told.as_f64() => wrong(format!("less than {told}")),
                "maximum" if value.is_number() && value.as_f64() > told.as_f64() => wrong(format!("more than {told}")),
                "minItems" if value.as_array().is_some_and(|it| (it.len() as u64) < told.as_u64().unwrap()) => {
                    wrong(format!("fewer than {told}"));
                }
                "maxItems" if value.as_array().is_some_and(|it| it.len() as u64 > told.as_u64().unwrap()) => {
                    wrong(format!("more than {told}"));
                }
                "uniqueItems" => {
                    let items = value.as_array().map_or(&[][..], Vec::as_slice);
                    if items.iter().enumerate().any(|(index, item)| items[..index].contains(item)) {
                        wrong("something twice".to_owned());
                    }
                }
                "required" => {
                    let missing = texts().filter(|name| value.as_object().is_some_and(|it| !it.contains_key(*name)));
                    missing.for_each(|name| wrong(format!("no field `{name}`")));
                }
                "const" | "enum" | "minimum" | "maximum" | "minItems" | "maxItems" => {}
                // Keywords that apply other schemas.
                "$ref"
                | "properties"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "items"
                | "prefixItems"
                | "anyOf"
                | "oneOf"
                | "allOf" => {}
                _ => panic!("{at}: the keyword {keyword} is not known here"),
            }
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let referred = self.root.pointer(reference.strip_prefix('#').unwrap()).expect(reference);
            known.extend(self.check(referred, value, at, problems));
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            known.extend(self.check(part, value, at, problems));
        }
        for (keyword, most) in [("anyOf", usize::MAX), ("oneOf", 1)] {
            let Some(parts) = schema[keyword].as_array() else { continue };
            let mut passed = 0;
            for part in parts {
                let mut of_part = Vec::new();
                let known_to_part = self.check(part, value, at, &mut of_part);
                if of_part.is_empty() {
                    passed += 1;
                    known.extend(known_to_part);
                }
            }
            if passed == 0 || passed > most {
                problems.push(format!("{at}: {passed} of {keyword}: {value:.100}"));
            }
        }
        self.check_fields(schema, value, at, &mut known, problems);
        self.check_items(schema, value, at, problems);
        known
    }

    fn check_fields(&self, schema: &Value, value: &Value, at: &str, known: &mut Known, problems: &mut Vec<String>) {
        for (name, field) in value.as_object().into_iter().flatten() {
            let at = format!("{at}/{name}");
            let others = schema.get("additionalProperties");
            let others = others.or_else(|| schema.get("unevaluatedProperties").filter(|_| !known.contains(name)));
            match (schema["properties"].get(name), others) {
                (Some(of_field), _) => drop(self.check(of_field, field, &at, problems)),
                (None, Some(Value::Bool(false))) => {
                    problems.push(format!("{at}: not in the schema"));
                    continue;
                }
                (None, Some(of_field)) => drop(self.check(of_field, field, &at, problems)),
                (None, None) => continue,
            }
            known.insert(name.clone());
        }
    }

    fn check_items(&self, schema: &Value, value: &Value, at: &str, problems: &mut Vec<String>) {
        let first = schema["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            let Some(of_item) = first.get(index).or_else(|| schema.get("items")) else { break };
            self.check(of_item, item, &format!("{at}/{index}"), problems);
        }
    }
}

/// Makes every field that the schema does not name an error.
fn close(schema: &mut Value) {
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema["unevaluatedProperties"] = false.into();
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => panic!("no type: {kind}"),
    }
}

#[test]
fn what_is_wrong_is_found() {
    let problems = |schema: Value, value: Value| Schema { root: schema }.problems(&value).len();
    use serde_json::json;
    let pair =
        json!({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "maxItems": 2});
    assert_eq!(problems(pair.clone(), json!([1, "a"])), 0);
    assert_eq!(problems(pair, json!(["a", 1, "a"])), 3);
    let one = json!({"oneOf": [{"const": 1}, {"minimum": 1, "type": "integer"}]});
    assert_eq!((problems(one.clone(), json!(2)), problems(one.clone(), json!(1)), problems(one, json!(0))), (0, 1, 1));
    let parts = json!({"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"], "unevaluatedProperties": false,
        "anyOf": [{"$ref": "#/$defs/B"}, {"type": "object"}],
        "$defs": {"B": {"properties": {"b": {"enum": ["x"]}}, "required": ["b"]}}});
    assert_eq!(problems(parts.clone(), json!({"a": null, "b": "x"})), 0);
    // Only the part with that name covers `b`.
    assert_eq!(problems(parts.clone(), json!({"a": "", "b": "y"})), 1);
    assert_eq!(problems(parts, json!({"b": "x", "c": 1})), 2);
    assert_eq!(problems(json!({"additionalProperties": {"type": "boolean"}}), json!({"a": true, "b": 0})), 1);
    assert_eq!(problems(json!({"uniqueItems": true}), json!([1, 2, 1])), 1);
}
