//! Saves the page with the answers to the usual questions, as one file.

mod questions;

use std::io;
use std::path::Path;

use heapledger_viewer::{SavedCut, SavedPage};

use super::session::Session;
use crate::args::Open;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::messages::notify;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Progress;

/// The maximum size of the answers in a file, in bytes. The page itself comes to that.
const ANSWERS_BYTES_MAX: u64 = 9_500_000;

/// Saves the page about a session.
pub(super) fn run(session: &Session, path: &Path, arguments: &Open, out: &mut Output) -> Result<()> {
    let inputs: Vec<&Path> = session.paths().collect();
    let target = NewFile::create(path, arguments.force, &inputs)?;
    let questions = questions::all(session);
    let mut progress = Progress::new();
    let count = questions.len() as u64;
    let page = SavedPage::ask(session, &questions, ANSWERS_BYTES_MAX, &mut |done| progress.answers(done as u64, count))
        .map_err(cannot_save)?;
    drop(progress);
    target.write(out.stream(), |out| page.write(out))?;
    for notice in notices(&page) {
        notify(format_args!("heapledger: {notice}"));
    }
    Ok(())
}

/// Returns the sentences about what the file has, and lacks.
fn notices(page: &SavedPage) -> Vec<String> {
    let SavedCut { share, answers } = page.cut();
    let mut notices = vec![format!("the file has {} answers, and opens in any browser", page.answers())];
    if share > 0.0 {
        let percent = format!("{:.5}", share * 100.0);
        let percent = percent.trim_end_matches('0').trim_end_matches('.');
        notices
            .push(format!("to keep it small, functions with less than {percent} % of a tree count for their callers"));
    }
    if answers > 0 {
        notices.push(format!("to keep it small, {answers} answers are left out"));
    }
    notices
}

fn cannot_save(error: io::Error) -> Failure {
    Failure::caused(Exit::Unexpected, "cannot save the page", error)
}
