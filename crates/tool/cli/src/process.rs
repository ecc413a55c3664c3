//! Requests to a running process, which answers over a socket of its own:
//! `format/report-format/src/request.rs`, `format/dmd/src/request.rs`.

use std::io;
use std::path::Path;
use std::time::Duration;

use heapledger_collect::ask;
use heapledger_report_format::ask::{ListedSocket, is_impostor};
use heapledger_report_format::request::SOCKET_PREFIX;

use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// The longest time that each of the process's reporters may take.
pub(crate) const REPORTER_DEADLINE: Duration = Duration::from_secs(5);
/// The longest time that all reporters together may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// The longest time that the process may be silent during any request.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the pid that a source means, if it means one: a number that is not the name of a file.
pub(crate) fn number(source: &str) -> Option<u32> {
    source.parse().ok().filter(|_| !Path::new(source).exists())
}

/// Returns the sockets that may be a process's, judging by their names. It answers if one is.
pub(crate) fn sockets_of(pid: u32) -> io::Result<Vec<ListedSocket>> {
    Ok(ListedSocket::of(&ListedSocket::all(SOCKET_PREFIX)?, pid))
}

/// Returns a process's answer to a request line, of at most `bytes_max` bytes. `None` if the
/// process closed the connection without an answer, because it does not know the request.
pub(crate) fn ask(pid: u32, line: &str, wanted: &str, bytes_max: usize) -> Result<Option<Vec<u8>>> {
    let is_there = || Path::new(&format!("/proc/{pid}")).exists();
    if !is_there() {
        return Err(Failure::new(Exit::Unreadable, format_args!("there is no process {pid}"))
            .hint("`pgrep NAME` tells the numbers of the processes of a name"));
    }
    let cannot = |error: io::Error| {
        Failure::caused(Exit::Unreadable, format_args!("cannot read {wanted} of process {pid}"), error)
            .hint("it answers processes of its own user, and root's, in the same network namespace")
    };
    let listed = sockets_of(pid).map_err(cannot)?;
    if listed.is_empty() {
        return Err(Failure::new(Exit::Unreadable, format_args!("process {pid} does not answer")).hint(LISTEN));
    }
    match ask::ask(listed, Some(pid), line, bytes_max, TIMEOUT) {
        Ok((_, answer)) => Ok(Some(answer)),
        Err(error) if is_impostor(&error) => {
            let what = format_args!("process {pid} does not answer, and others in its place are not believed");
            Err(Failure::caused(Exit::Unreadable, what, error).code(Code::Impostor).hint(LISTEN))
        }
        // The connection is also closed when the process has ended.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && is_there() => Ok(None),
        Err(error) => Err(cannot(error)),
    }
}

const LISTEN: &str = "a program answers once it has called `heapledger::reports::listen()`, or in C and C++ \
                      `heapledger_listen()`; see docs/reporters.md";
