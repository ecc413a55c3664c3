//! The page with its answers in one HTML file, which needs no server.
//!
//! The script and the style stand in the page. Answers are blocks that no browser runs:
//!
//! ```text
//! <script type="application/octet-stream" id="saved">BASE64</script>     the session, the questions, stacks
//! <script type="application/octet-stream" id="saved-0">BASE64</script>   an answer
//! ```
//!
//! Each is compressed by gzip. Nothing from a file stands in the page in any other way, so a name
//! cannot become markup. The policy in the page allows its own script and style, by their hashes,
//! and nothing that is fetched.

mod ask;
mod prune;
mod stacks;

use std::collections::HashMap;
use std::io::{self, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzEncoder;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use self::stacks::Stacks;
use crate::answer::AnswerError;
use crate::assets;
use crate::question::Question;

/// The page with its answers.
#[derive(Debug)]
pub struct SavedPage {
    session: Box<RawValue>,
    answers: Vec<SavedAnswer>,
    /// The compressed answers, as base64.
    blocks: Vec<String>,
    known: HashMap<[u8; 32], usize>,
    stacks: Stacks,
    cut: SavedCut,
}

/// The data that a file lacks because of its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SavedCut {
    /// The least share of the whole that a node of a tree has, from 0 to 1. The amounts of smaller
    /// ones count for their callers. 0 if nothing is cut.
    pub share: f64,
    /// The number of answers that are left out.
    pub answers: usize,
}

/// A question with its answer.
#[derive(Debug, Serialize)]
struct SavedAnswer {
    verb: String,
    options: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(flatten)]
    result: SavedResult,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum SavedResult {
    /// The number of the block with the answer.
    Block(usize),
    Error {
        code: String,
        message: String,
        causes: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
}

/// The first block.
#[derive(Serialize)]
struct Manifest<'p> {
    version: u32,
    session: &'p RawValue,
    answers: &'p [SavedAnswer],
    stacks: &'p Stacks,
    cut: SavedCut,
}

impl SavedPage {
    /// Returns the number of questions that have an answer.
    pub fn answers(&self) -> usize {
        self.answers.iter().filter(|answer| matches!(answer.result, SavedResult::Block(_))).count()
    }

    /// Returns what the bound of the size has cost.
    pub fn cut(&self) -> SavedCut {
        self.cut
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// If `out` fails, or there is no memory to compress the list of questions.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let manifest = base64(&packed(&serde_json::to_vec(&self.manifest())?)?);
        let (script, style) = (asset("app.js"), asset("app.css"));
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; img-src data: blob:; base-uri 'none'; \
             form-action 'none'; require-trusted-types-for 'script'",
            hash(script),
            hash(style)
        );
        let page = asset("");
        let [head, scripts, body] =
            parts(page).ok_or_else(|| io::Error::other("the page has no places for its files"))?;
        write!(
            out,
            "{head}<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n<style>{style}</style>"
        )?;
        write!(out, "{scripts}{body}")?;
        write_block(out, "saved", &manifest)?;
        for (number, block) in self.blocks.iter().enumerate() {
            write_block(out, &format!("saved-{number}"), block)?;
        }
        let licences = include_str!("assets/licences.txt");
        writeln!(out, "<script type=\"text/plain\" id=\"licences\">\n{licences}</script>")?;
        write!(out, "<script>{script}</script>\n</body>\n</html>\n")
    }

    fn manifest(&self) -> Manifest<'_> {
        Manifest { version: 1, session: &self.session, answers: &self.answers, stacks: &self.stacks, cut: self.cut }
    }

    /// Adds a question that has no answer.
    fn fail(&mut self, verb: &str, question: &Question, error: AnswerError, notes: Vec<String>) {
        let AnswerError { code, message, causes, hint, .. } = error;
        self.push(verb, question, notes, SavedResult::Error { code, message, causes, hint });
    }

    /// Adds an answer that is compressed. Equal answers are one block.
    fn keep(&mut self, verb: &str, question: &Question, packed: &[u8], notes: Vec<String>) {
        let blocks = &mut self.blocks;
        let block = *self.known.entry(Sha256::digest(packed).into()).or_insert_with(|| {
            blocks.push(base64(packed));
            blocks.len() - 1
        });
        self.push(verb, question, notes, SavedResult::Block(block));
    }

    fn push(&mut self, verb: &str, question: &Question, notes: Vec<String>, result: SavedResult) {
        let (verb, options) = (verb.to_owned(), question.options.clone());
        self.answers.push(SavedAnswer { verb, options, notes, result });
    }
}

/// Returns a file of the page as text.
fn asset(path: &str) -> &'static str {
    assets::find(path).and_then(|asset| str::from_utf8(asset.bytes).ok()).unwrap_or_default()
}

/// Splits the page where its style is named, behind where its script is, and where its body ends.
fn parts(page: &str) -> Option<[&str; 3]> {
    let (head, rest) = page.split_once("<link rel=\"stylesheet\" href=\"app.css\">")?;
    let (between, rest) = rest.split_once("<script src=\"app.js\" defer></script>\n")?;
    let (body, _) = rest.split_once("</body>")?;
    Some([head, between, body])
}

/// Returns the hash by which a policy knows a script or a style.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

fn write_block(out: &mut dyn Write, id: &str, block: &str) -> io::Result<()> {
    writeln!(out, "<script type=\"application/octet-stream\" id=\"{id}\">{block}</script>")
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Compresses by gzip.
fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = Vec::new();
    GzEncoder::new(bytes, Compression::default()).read_to_end(&mut packed)?;
    Ok(packed)
}

#[cfg(test)]
mod tests;
