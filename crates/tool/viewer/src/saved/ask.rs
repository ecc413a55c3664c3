//! Asks the questions whose answers are saved.

use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use flate2::read::GzDecoder;

use super::prune::pruned;
use super::{SavedCut, SavedPage, packed};
use crate::answer::{Answer, AnswerError, Memory};
use crate::columns::ColumnTree;
use crate::jobs::UNEXPECTED;
use crate::question::Question;
use crate::work::Work;

/// The verb of questions that are answered by a call tree as columns.
pub(super) const COLUMNS: &str = "columns";

/// The maximum number of questions that are asked at once, as in the server.
const THREADS_MAX: usize = 4;

/// The first share of the whole below which nodes are cut off, if there are too many; and the last.
const CUT_FIRST: f64 = 1e-7;
const CUT_LAST: f64 = 0.1;

/// The part of the bound that the answers in JSON may take together; the rest is for trees.
const JSON_PART: f64 = 0.6;

/// The maximum size of an answer in JSON before it is compressed, in bytes: a browser has all of it
/// in memory when it is looked at.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// The part of base64 that is data.
const BASE64: f64 = 0.75;

/// An answer before it has its place in the file.
enum Got {
    /// Compressed, because there are many.
    Json(Vec<u8>),
    TooLarge,
    Tree(ColumnTree),
}

type Outcome = (Result<Got, AnswerError>, Vec<String>);

impl SavedPage {
    /// Asks questions, and keeps their answers, also those that are errors. `columns` are answered
    /// by a call tree. Questions that matter more stand before others.
    ///
    /// The answers take at most `bytes_max`; the page itself takes about a third of a megabyte. If
    /// they are more, the last ones are left out, and the small nodes of trees: see
    /// [`SavedPage::cut`]. An answer of more than 32 MiB is left out, too. `progress` gets the
    /// number of answers that are there.
    ///
    /// # Errors
    ///
    /// If the session or an answer is not JSON, or there is no memory to compress one.
    pub fn ask(
        answer: &dyn Answer,
        questions: &[Question],
        bytes_max: u64,
        progress: &mut dyn FnMut(usize),
    ) -> io::Result<SavedPage> {
        let session = serde_json::from_slice(&answer.session(&Memory::default()))?;
        let mut page = SavedPage {
            session,
            answers: Vec::new(),
            blocks: Vec::new(),
            known: Default::default(),
            stacks: Default::default(),
            cut: SavedCut::default(),
        };
        let outcomes = ask_all(answer, questions, progress);
        let data_max = bytes_max as f64 * BASE64;
        let mut trees = Vec::new();
        let mut json_bytes = 0;
        for (question, (got, notes)) in questions.iter().zip(outcomes) {
            match got {
                Ok(Got::Json(answer)) => {
                    let answer = packed(&page.stacks.replace(&unpacked(&answer)?))?;
                    let blocks = page.blocks.len();
                    if json_bytes as f64 + answer.len() as f64 > data_max * JSON_PART {
                        page.cut.answers += 1;
                        continue;
                    }
                    page.keep(&question.verb, question, &answer, notes);
                    json_bytes += if page.blocks.len() > blocks { answer.len() } else { 0 };
                }
                Ok(Got::TooLarge) => page.cut.answers += 1,
                Ok(Got::Tree(tree)) => trees.push((question, tree, notes)),
                Err(error) => page.fail(&question.verb, question, error, notes),
            }
        }
        let stacks = packed(&serde_json::to_vec(&page.stacks)?)?.len();
        page.keep_trees(trees, data_max - (json_bytes + stacks) as f64)?;
        Ok(page)
    }

    /// Keeps trees, and cuts all of them alike until they take at most so many bytes.
    fn keep_trees(&mut self, trees: Vec<(&Question, ColumnTree, Vec<String>)>, bytes_max: f64) -> io::Result<()> {
        let mut share = 0.0;
        let packed_trees = loop {
            let trees = trees.iter().map(|(_, tree, _)| match share {
                0.0 => pack_tree(tree),
                share => pack_tree(&pruned(tree, share)),
            });
            let packed: Vec<Vec<u8>> = trees.collect::<io::Result<_>>()?;
            let mut lengths: Vec<&Vec<u8>> = packed.iter().collect();
            lengths.sort();
            lengths.dedup();
            let bytes: usize = lengths.iter().map(|packed| packed.len()).sum();
            if bytes as f64 <= bytes_max || share >= CUT_LAST {
                break packed;
            }
            share = if share == 0.0 { CUT_FIRST } else { share * 10.0 };
        };
        self.cut.share = share;
        for ((question, _, notes), packed) in trees.into_iter().zip(packed_trees) {
            self.keep(COLUMNS, question, &packed, notes);
        }
        Ok(())
    }
}

fn unpacked(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

fn pack_tree(tree: &ColumnTree) -> io::Result<Vec<u8>> {
    packed(&tree.to_bytes().map_err(|error| io::Error::other(error.to_string()))?)
}

/// Returns the outcomes in the order of their questions.
fn ask_all(answer: &dyn Answer, questions: &[Question], progress: &mut dyn FnMut(usize)) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let mut outcomes: Vec<Option<Outcome>> = Vec::new();
    outcomes.resize_with(questions.len(), || None);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                // Each number is taken by one thread, and nothing else is passed on with it.
                while let Some((at, question)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    questions.get(at).map(|question| (at, question))
                } {
                    if sender.send((at, ask_one(answer, question))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (done, (at, outcome)) in receiver.iter().enumerate() {
            outcomes[at] = Some(outcome);
            progress(done + 1);
        }
    });
    outcomes.into_iter().flatten().collect()
}

fn ask_one(answer: &dyn Answer, question: &Question) -> Outcome {
    let work = Work::default();
    let got = match &*question.verb {
        COLUMNS => answer.columns(question, &work).map(Got::Tree),
        _ => answer.ask(question, &work).and_then(|json| {
            if json.len() > ANSWER_BYTES_MAX {
                return Ok(Got::TooLarge);
            }
            let packed = packed(&json).map_err(|error| AnswerError::new(500, UNEXPECTED, error.to_string()))?;
            Ok(Got::Json(packed))
        }),
    };
    (got, work.take_notes())
}
