//! Asking a process, by the protocol of [`ask`](heapledger_report_format::ask).

use std::io::{self, ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use heapledger_report_format::ask::{Connecting, ListedSocket};

use crate::unix;

/// Asks the first of these sockets that belongs to the process in its name and, if `asked` is
/// given, to that process. Others are skipped. Returns that process's pid, as this process sees it,
/// and its answer; of a longer one than `bytes_max`, one byte more than that. Connecting waits for
/// at most `timeout`, and so does each later read and write.
///
/// # Errors
///
/// If no socket qualifies, the reason of the last one; an impostor takes precedence over all
/// others. `UnexpectedEof` if the answer is empty: the process does not know the request.
pub fn ask(
    sockets: Vec<ListedSocket>,
    asked: Option<u32>,
    line: &str,
    bytes_max: usize,
    timeout: Duration,
) -> io::Result<(u32, Vec<u8>)> {
    let mut connecting = Connecting::new(sockets, asked, Instant::now() + timeout, unix::peer);
    let (mut stream, pid) = loop {
        match connecting.attempt() {
            Some(connected) => break connected?,
            None => thread::sleep(Connecting::PAUSE),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(line.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(bytes_max as u64 + 1).read_to_end(&mut answer)?;
    if answer.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok((pid, answer)) }
}
