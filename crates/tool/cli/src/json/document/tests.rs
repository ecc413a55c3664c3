use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::*;
use crate::json::parts::PartJson;
use crate::json::table::{RankJson, TableJson};
use crate::verbs::dmd::referrers::PointersJson;
use crate::verbs::types::json::TypeJson;

/// Returns the JSON Schemas of all documents, by their names.
fn schemas() -> BTreeMap<&'static str, Value> {
    fn add<D: Document + JsonSchema + 'static>(all: &mut BTreeMap<&'static str, Value>) {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let mut schema = settings.into_generator().into_root_schema_for::<Named<'static, D>>().to_value();
        schema["title"] = format!("heapledger/{}", D::SCHEMA).into();
        schema["properties"]["schema"] = serde_json::json!({ "const": schema["title"] });
        schema["properties"]["version"] = serde_json::json!({ "const": D::VERSION });
        if let Some(rows) = D::ROWS {
            assert_eq!(schema["properties"][rows]["type"], "array", "{rows} of {}", D::SCHEMA);
        }
        assert!(all.insert(D::SCHEMA, schema).is_none(), "two documents are called {}", D::SCHEMA);
    }
    let mut all = BTreeMap::new();
    add::<TableJson<PartJson>>(&mut all);
    add::<TableJson<RankJson>>(&mut all);
    add::<TableJson<TypeJson>>(&mut all);
    add::<TableJson<crate::verbs::sizes::GroupJson>>(&mut all);
    add::<crate::verbs::advise::AdviseJson>(&mut all);
    add::<crate::verbs::blocks::BlocksJson>(&mut all);
    add::<crate::verbs::check::FindingsJson<'_>>(&mut all);
    add::<crate::verbs::control::StatusJson>(&mut all);
    add::<crate::verbs::diff::DiffJson>(&mut all);
    add::<crate::verbs::dmd::DmdJson>(&mut all);
    add::<crate::verbs::doctor::DoctorJson<'_>>(&mut all);
    add::<crate::verbs::explain::ExplanationJson>(&mut all);
    add::<crate::verbs::explain::ExplanationsJson>(&mut all);
    add::<crate::verbs::growth::GrowthJson>(&mut all);
    add::<crate::verbs::heap::diff::HeapDiffJson>(&mut all);
    add::<crate::verbs::heap::dominators::HeapDominatorsJson>(&mut all);
    add::<crate::verbs::heap::export::HeapExportJson>(&mut all);
    add::<crate::verbs::heap::find::HeapFindingsJson>(&mut all);
    add::<crate::verbs::heap::node::HeapNodeJson>(&mut all);
    add::<crate::verbs::heap::paths::HeapPathsJson>(&mut all);
    add::<crate::verbs::heap_map::HeapMapJson>(&mut all);
    add::<crate::verbs::heap_map::HeapPagesJson>(&mut all);
    add::<crate::verbs::info::InfoJson>(&mut all);
    add::<crate::verbs::leaks::LeaksJson>(&mut all);
    add::<crate::verbs::library::LibraryJson>(&mut all);
    add::<crate::verbs::live::json::LiveJson<'_>>(&mut all);
    add::<crate::verbs::log::info::LogInfoJson>(&mut all);
    add::<crate::verbs::replay::json::ReplayJson<'_>>(&mut all);
    add::<crate::verbs::log::stats::LogStatsJson>(&mut all);
    add::<crate::verbs::neighbours::NeighboursJson>(&mut all);
    #[cfg(feature = "viewer")]
    add::<crate::verbs::open::session::OpenJson>(&mut all);
    add::<crate::verbs::phc::PhcJson>(&mut all);
    add::<crate::verbs::reallocations::ReallocationsJson>(&mut all);
    add::<crate::verbs::reports::json::PageJson<'_>>(&mut all);
    add::<crate::verbs::rss::RssJson>(&mut all);
    add::<crate::verbs::rss::recorded::RecordedRssJson>(&mut all);
    add::<crate::verbs::summary::selected::SelectedJson>(&mut all);
    add::<crate::verbs::summary::json::SessionJson>(&mut all);
    add::<crate::verbs::timeline::json::TimelineJson>(&mut all);
    add::<crate::views::call_tree::TreeJson>(&mut all);
    add::<PointersJson<'_>>(&mut all);
    all
}

/// The schemas in docs/json are those of the code; `HEAPLEDGER_BLESS=1` writes them anew.
#[test]
fn schemas_are_those_of_the_documentation() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/json");
    let is_blessed = std::env::var_os("HEAPLEDGER_BLESS").is_some_and(|value| value == "1");
    let mut left: Vec<String> = Vec::new();
    for entry in fs::read_dir(&directory).unwrap() {
        left.push(entry.unwrap().file_name().into_string().unwrap());
    }
    for (name, schema) in schemas() {
        let file = format!("{name}.schema.json");
        // The names of types in the code end in `Json`, those in the schemas do not.
        let text = format!("{schema:#}\n").replace("Json\"", "\"").replace("Json2\"", "2\"");
        if is_blessed {
            fs::write(directory.join(&file), &text).unwrap();
        }
        let documented = fs::read_to_string(directory.join(&file)).unwrap_or_default();
        assert!(documented == text, "docs/json/{file} is not what is printed; HEAPLEDGER_BLESS=1 writes it anew");
        left.retain(|one| *one != file);
    }
    assert!(is_blessed || left.is_empty(), "of no document: {left:?}");
}

#[derive(Serialize)]
struct Rows {
    before: u32,
    rows: Vec<Row>,
}

#[derive(Default, Serialize)]
struct Row {
    bytes: u64,
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    via: Option<Function>,
    stack: Vec<Function>,
    sizes: Vec<[u32; 2]>,
    is_rest: bool,
}

#[derive(Serialize)]
struct Function {
    function: &'static str,
    line: Option<i32>,
}

#[test]
fn rows_are_lines_with_the_names_of_all() {
    let function = |function, line| Function { function, line };
    let named = Row {
        bytes: u64::MAX,
        share: 0.5,
        module: Some("a, \"b\"\nc".to_owned()),
        via: Some(function("grow", None)),
        stack: vec![function("f", Some(-1)), function("main", None)],
        sizes: vec![[1, 2]],
        is_rest: false,
    };
    let document = serde_json::to_vec(&Rows { before: 1, rows: vec![Row::default(), named] }).unwrap();
    let mut text = Vec::new();
    rows::write(&document, "rows", &mut text).unwrap();
    let expected = "bytes,share,module,via.function,via.line,stack,is_rest\n\
                    0,0,,,,,false\n\
                    18446744073709551615,0.5,\"a, \"\"b\"\"\nc\",grow,,f;main,false\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}
