//! Rows as CSV, from their JSON.

use std::fmt;
use std::io::{self, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Writes the rows of a document, which is JSON: a column for each name in any of them.
pub(super) fn write(document: &[u8], rows: &str, out: &mut dyn Write) -> io::Result<()> {
    let Cell::Object(fields) = serde_json::from_slice(document)? else { return Ok(()) };
    let rows = fields.into_iter().find(|(name, _)| name == rows);
    let Some((_, Cell::List(rows))) = rows else { return Ok(()) };
    let rows: Vec<Vec<(String, String)>> = rows.into_iter().map(Cell::columns).collect();
    let mut names: Vec<&str> = Vec::new();
    for row in &rows {
        let mut after = 0;
        for (name, _) in row {
            after = match names.iter().position(|known| known == name) {
                Some(at) => at + 1,
                None => {
                    names.insert(after, name);
                    after + 1
                }
            };
        }
    }
    // An object that is missing in some rows needs no column, if its fields have columns.
    let outer: Vec<String> = names.iter().filter_map(|name| Some(name.rsplit_once('.')?.0.to_owned())).collect();
    names.retain(|name| !outer.iter().any(|outer| outer == name));
    if names.is_empty() {
        return Ok(());
    }
    let mut table = csv::Writer::from_writer(out);
    let write = |table: &mut csv::Writer<_>, cells: &[&str]| table.write_record(cells).map_err(io::Error::from);
    write(&mut table, &names)?;
    for row in &rows {
        let cell = |name: &&str| row.iter().find(|(known, _)| known == name).map_or("", |(_, cell)| cell);
        write(&mut table, &names.iter().map(cell).collect::<Vec<_>>())?;
    }
    table.flush()
}

/// A value of JSON whose names keep their order.
enum Cell {
    Plain(String),
    List(Vec<Cell>),
    Object(Vec<(String, Cell)>),
}

impl Cell {
    /// Returns the names and values in an object. Objects in it have columns of their own, such as
    /// `outer.inner`; lists of functions become lists of their names.
    fn columns(self) -> Vec<(String, String)> {
        let Cell::Object(fields) = self else { return Vec::new() };
        let mut columns = Vec::new();
        for (name, cell) in fields {
            match cell {
                Cell::Plain(text) => columns.push((name, text)),
                Cell::Object(_) => {
                    columns.extend(cell.columns().into_iter().map(|(inner, text)| (format!("{name}.{inner}"), text)));
                }
                Cell::List(cells) if cells.is_empty() => {}
                Cell::List(cells) => {
                    let words: Option<Vec<String>> = cells.into_iter().map(Cell::word).collect();
                    columns.extend(words.map(|words| (name, words.join(";"))));
                }
            }
        }
        columns
    }

    /// Returns its text in a list: the value itself, or the name of a function.
    fn word(self) -> Option<String> {
        match self {
            Cell::Plain(text) => Some(text),
            Cell::List(_) => None,
            Cell::Object(fields) => fields.into_iter().find(|(name, _)| name == "function")?.1.word(),
        }
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cell, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Cell, E> {
        Ok(Cell::Plain(String::new()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Cell, E> {
        Ok(Cell::Plain(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Cell, E> {
        Ok(Cell::Plain(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Cell, E> {
        Ok(Cell::Plain(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Cell, E> {
        Ok(Cell::Plain(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Cell, E> {
        Ok(Cell::Plain(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cell, A::Error> {
        let mut cells = Vec::new();
        while let Some(cell) = list.next_element()? {
            cells.push(cell);
        }
        Ok(Cell::List(cells))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Cell::Object(fields))
    }
}
