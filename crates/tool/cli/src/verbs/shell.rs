//! `heapledger completions`, `help` and `man`, all generated from one tree of commands.

use std::fs::{self, DirEntry};
use std::io::Write;

use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{self, Completions, Help};
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::near::nearest;
use crate::new_file::NewFile;
use crate::output::Output;

pub(crate) fn completions(arguments: &Completions, out: &mut Output) -> Result<()> {
    let script = match arguments.shell {
        Shell::Bash => include_bytes!("shell/heapledger.bash").to_vec(),
        Shell::Zsh => include_bytes!("shell/heapledger.zsh").to_vec(),
        Shell::Fish => include_bytes!("shell/heapledger.fish").to_vec(),
        other => {
            // Into memory first: clap_complete does not return errors of the stream.
            let mut script = Vec::new();
            clap_complete::generate(other, &mut args::command(), "heapledger", &mut script);
            script
        }
    };
    out.stream().write_all(&script)?;
    Ok(())
}

/// Prints the manual of a verb, as `--help` does.
pub(crate) fn help(arguments: &Help, out: &mut Output) -> Result<()> {
    let mut root = args::command();
    root.build();
    let mut command = &mut root;
    for word in &arguments.verb {
        let verbs: Vec<String> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(|verb| verb.get_name().to_owned())
            .collect();
        let name = command.get_bin_name().unwrap_or_default().to_owned();
        let Some(verb) = command.find_subcommand_mut(word) else {
            let what = format_args!("`{name}` has no verb `{word}`");
            let near = nearest(word, verbs.iter().map(String::as_str));
            let hint = match near.first() {
                Some(near) => format!("did you mean `heapledger help {near}`?"),
                None => "`heapledger help` lists the verbs".to_owned(),
            };
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        };
        command = verb;
    }
    let words = ["heapledger"].into_iter().chain(arguments.verb.iter().map(String::as_str)).chain(["--help"]);
    // Help is among clap's errors.
    if let Err(help) = args::command().try_get_matches_from(words) {
        let text = help.render();
        if out.has_colors() { write!(out.stream(), "{}", text.ansi()) } else { write!(out.stream(), "{text}") }?;
    }
    Ok(())
}

pub(crate) fn man(arguments: &args::Man, out: &mut Output) -> Result<()> {
    let command = args::command();
    let Some(directory) = &arguments.dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        out.stream().write_all(&with_examples(&page))?;
        return Ok(());
    };
    let cannot = |error| {
        let what = format_args!("cannot write to `{}`", directory.display());
        Failure::caused(Exit::Unexpected, what, error).code(Code::CannotWrite)
    };
    let pages = tempfile::tempdir().map_err(cannot)?;
    clap_mangen::generate_to(command, pages.path()).map_err(cannot)?;
    fs::create_dir_all(directory).map_err(cannot)?;
    let mut pages: Vec<_> = fs::read_dir(pages.path()).and_then(Iterator::collect).map_err(cannot)?;
    pages.sort_by_key(DirEntry::file_name);
    // No page is written if any of them exists already.
    let begin = |page: &DirEntry| NewFile::create(&directory.join(page.file_name()), arguments.force, &[]);
    let targets = pages.iter().map(begin).collect::<Result<Vec<_>>>()?;
    for (page, target) in pages.iter().zip(targets) {
        let text = fs::read(page.path()).map_err(cannot)?;
        target.quiet().write(out.stream(), |file| file.write_all(&with_examples(&text)))?;
    }
    Ok(())
}

/// The number of columns by which indented lines of a manual page begin further to the left.
const INDENT_LESS: usize = 3;

/// Keeps the indented lines of a manual page as they are: examples and tables. All of a page is
/// indented already.
fn with_examples(page: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut is_example = false;
    for line in page.split_inclusive(|&byte| byte == b'\n') {
        let was_example = std::mem::replace(&mut is_example, line.starts_with(b"  "));
        match (was_example, is_example) {
            (false, true) => text.extend(b".nf\n"),
            (true, false) => text.extend(b".fi\n"),
            _ => {}
        }
        let indent = line.iter().take_while(|&&byte| byte == b' ').count();
        text.extend(&line[indent.saturating_sub(1).min(INDENT_LESS)..]);
    }
    text
}
