//! `heapledger doctor`: checks what will work and what not, on this machine and for a program, and
//! says what to do.

mod allocators;
mod linking;
mod machine;
mod program;
mod self_test;

use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::args::Doctor;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::document::{Document, Form};
use crate::output::Output;
use crate::target::{Effect, Finding};

pub(crate) use self::self_test::be_the_self_test;

/// The result of one check.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Check {
    subject: String,
    state: State,
    text: String,
    code: Option<String>,
    hint: Option<String>,
}

/// The state of the thing that was checked, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum State {
    Good,
    /// It works, and could be better.
    Note,
    /// A part of it will not work.
    Warning,
    /// It will not work.
    Bad,
}

impl Check {
    fn good(subject: impl Into<String>, text: impl Into<String>) -> Check {
        Check { subject: subject.into(), state: State::Good, text: text.into(), code: None, hint: None }
    }

    fn problem(
        subject: impl Into<String>,
        state: State,
        code: Code,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Check {
        let (code, hint) = (Some(code.to_string()), Some(hint.into()));
        Check { subject: subject.into(), state, text: text.into(), code, hint }
    }

    fn of(subject: impl Into<String>, finding: &Finding) -> Check {
        let state = match finding.effect {
            Effect::Refused | Effect::Unrecorded => State::Bad,
            Effect::Partial => State::Warning,
        };
        Check::problem(subject, state, finding.code, &finding.text, &finding.hint)
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DoctorJson<'a> {
    verdict: State,
    machine: &'a [Check],
    program: Option<&'a program::Program>,
}

impl Document for DoctorJson<'_> {
    const SCHEMA: &'static str = "doctor";
    const ROWS: Option<&'static str> = Some("machine");
}

pub(crate) fn run(arguments: &Doctor, out: &mut Output) -> Result<Exit> {
    let command = arguments.command.first();
    let program = command.map(|command| program::look(command));
    if let Some(program) = program.as_ref().filter(|program| program.file.is_none()) {
        return Err(Failure::new(Exit::NotFound, format_args!("{}: command not found", program.command)));
    }
    let machine = machine::checks();
    let all = machine.iter().chain(program.iter().flat_map(|program| &program.checks));
    let verdict = all.map(|check| check.state).max().unwrap_or(State::Good);
    if arguments.json {
        out.document(&DoctorJson { verdict, machine: &machine, program: program.as_ref() }, Form::Json)?;
    } else {
        print("this machine", &machine, out)?;
        if let Some(program) = &program {
            out.line("")?;
            print(&program.title(), &program.checks, out)?;
            program.print_modules(out)?;
        }
        out.line("")?;
        let is_script = program.as_ref().is_some_and(|program| program.is_shell_script);
        out.line(match verdict {
            State::Good | State::Note if is_script => {
                "The shell and its script can be recorded; each program that it starts is judged when it starts."
            }
            _ => sentence(verdict, program.is_some()),
        })?;
    }
    Ok(if verdict == State::Bad { Exit::NotStarted } else { Exit::Ok })
}

fn print(title: &str, checks: &[Check], out: &mut Output) -> Result<()> {
    out.title(title)?;
    let mut table = Tree::new(["", ""]);
    for check in checks {
        let mark = match check.state {
            State::Good => "ok",
            State::Note => "note",
            State::Warning => "WARNING",
            State::Bad => "NO",
        };
        let mut row = Row::new(check.text.clone()).note(check.code.clone().unwrap_or_default());
        for line in check.hint.iter().flat_map(|hint| hint.lines()) {
            row = row.line(format!("hint: {line}"), "");
        }
        table.push(0, row.cells([mark.to_owned(), check.subject.clone()]));
    }
    Ok(out.tree(&table)?)
}

fn sentence(verdict: State, has_program: bool) -> &'static str {
    match (verdict, has_program) {
        (State::Good | State::Note, true) => "This program can be recorded, all of it.",
        (State::Good | State::Note, false) => "Programs can be recorded here.",
        (State::Warning, true) => {
            "This program can be recorded, but see the warnings. `heapledger explain CODE` says more."
        }
        (State::Warning, false) => {
            "Programs can be recorded here, but see the warnings. `heapledger explain CODE` says more."
        }
        (State::Bad, true) => "This program cannot be recorded. `heapledger explain CODE` says more.",
        (State::Bad, false) => "Programs cannot be recorded here. `heapledger explain CODE` says more.",
    }
}
