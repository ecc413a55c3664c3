//! `heapledger dump`: memory dumps of running programs, as a trace.

use std::io;
use std::thread;
use std::time::SystemTime;

use heapledger_profile_formats::chrome::request::DumpRequest;
use heapledger_profile_formats::chrome::{Cut, Guid, HeapFormat, Kind, Level, ProcessDump, Trace};

use crate::args::{Dump, DumpHeaps, DumpLevel};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::process::{self, DEADLINE, REPORTER_DEADLINE};

/// The maximum length of an answer, in bytes.
const DUMP_BYTES_MAX: usize = 1 << 30;

pub(crate) fn run(arguments: &Dump, out: &mut Output) -> Result<()> {
    let target = NewFile::create(&arguments.output, arguments.force, &[])?;
    let first = ask_all(arguments)?;
    let heaps = match arguments.heaps {
        DumpHeaps::Entries => HeapFormat::Entries(Cut::default()),
        DumpHeaps::Aggregated => HeapFormat::Aggregated,
    };
    let mut failure = None;
    let written = target.write(out.stream(), |out| {
        let mut trace = Trace::begin(out, heaps)?;
        let mut write = |(guid, dumps): (Guid, Vec<ProcessDump>)| -> io::Result<()> {
            dumps.iter().try_for_each(|dump| trace.dump(guid, Kind::Explicit, dump))
        };
        write(first)?;
        for _ in 1..arguments.count.get() {
            thread::sleep(arguments.every);
            match ask_all(arguments) {
                Ok(dumps) => write(dumps)?,
                // The program may have ended: the dumps so far are kept.
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        trace.finish().map(drop)
    });
    written.and(failure.map_or(Ok(()), Err))
}

/// Asks all processes at once, for a dump with the same GUID.
fn ask_all(arguments: &Dump) -> Result<(Guid, Vec<ProcessDump>)> {
    let level = match arguments.level {
        DumpLevel::Background => Level::Background,
        DumpLevel::Light => Level::Light,
        DumpLevel::Detailed => Level::Detailed,
    };
    let guid = Guid::of(&format!("{}:{:?}", std::process::id(), SystemTime::now()));
    let (provider_deadline, deadline) = (REPORTER_DEADLINE, DEADLINE);
    let request = DumpRequest { guid, level, kind: Kind::Explicit, provider_deadline, deadline };
    let line = request.to_line();
    let answers: Vec<Result<ProcessDump>> = thread::scope(|scope| {
        let asked: Vec<_> = arguments
            .processes
            .iter()
            .map(|&pid| {
                let line = &line;
                (pid, scope.spawn(move || ask(pid, line)))
            })
            .collect();
        let joined = asked.into_iter().map(|(pid, asked)| {
            asked
                .join()
                .unwrap_or_else(|_| Err(Failure::new(Exit::Unexpected, format_args!("asking process {pid} failed"))))
        });
        joined.collect()
    });
    Ok((guid, answers.into_iter().collect::<Result<_>>()?))
}

fn ask(pid: u32, line: &str) -> Result<ProcessDump> {
    let answer = process::ask(pid, line, "the memory dump", DUMP_BYTES_MAX)?.ok_or_else(|| {
        Failure::new(Exit::Unreadable, format_args!("process {pid} makes no memory dumps")).hint(
            "a program makes them if it has, in Rust, the feature `dump` of `heapledger`, or, in C and C++, \
                 libheapledger; see docs/dumps.md",
        )
    })?;
    let mut dump = ProcessDump::parse(&answer).map_err(|error| {
        Failure::caused(Exit::Unreadable, format_args!("process {pid} gives no memory dump"), error)
            .hint("it may have been built with another version of Heapledger; see docs/dumps.md")
    })?;
    // The answer's own pid is not trusted.
    dump.pid = pid;
    Ok(dump)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use heapledger_report_format::request::SOCKET_PREFIX;

    use super::*;

    #[test]
    fn a_program_without_dumps_is_said_to_have_none() {
        let pid = std::process::id();
        let name = SocketAddr::from_abstract_name(format!("{SOCKET_PREFIX}{pid}.none")).unwrap();
        let listener = UnixListener::bind_addr(&name).unwrap();
        let answering = thread::spawn(move || {
            // A listener that does not know the request closes the connection.
            let (connection, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(connection).read_line(&mut line).unwrap();
            line
        });
        let said = ask(pid, "heapledger-dump id=1\n").unwrap_err().to_string();
        assert_eq!(answering.join().unwrap(), "heapledger-dump id=1\n");
        assert!(said.contains(&format!("process {pid} makes no memory dumps")), "{said}");
    }
}
