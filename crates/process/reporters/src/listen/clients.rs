//! The processes that ask: several at once, each with deadlines, so that none holds up another.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use heapledger_report_format::request::REQUEST_BYTES_MAX;

use crate::socket;

/// Clients at once; a further one displaces the one that has been without a request for the longest
/// time.
const CLIENTS_MAX: usize = 64;
/// A request must be whole after this long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer, or the next part of it, must be taken after this long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long nothing is tried after something has failed for want of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Answers who asks until the listener, which does not block, is shut down. A line that is no
/// request is not answered.
pub(super) fn serve(listener: &UnixListener, answer: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let mut clients: Vec<Client> = Vec::new();
    let mut accept_after: Option<Instant> = None;
    loop {
        let now = Instant::now();
        accept_after = accept_after.filter(|&after| now < after);
        let mut polled = vec![libc::pollfd {
            fd: listener.as_raw_fd(),
            events: if accept_after.is_none() { libc::POLLIN } else { 0 },
            revents: 0,
        }];
        polled.extend(clients.iter().map(Client::interest));
        let ends = clients.iter().map(Client::deadline).chain(accept_after);
        let timeout = ends.min().map(|end| end.saturating_duration_since(now));
        if socket::poll(&mut polled, timeout).is_err() {
            thread::sleep(BACK_OFF);
        }
        // It has been shut down: accept(2) would only say that there is nobody.
        if polled[0].revents & libc::POLLHUP != 0 {
            return;
        }
        let mut ready = polled[1..].iter();
        clients.retain_mut(|client| {
            let revents = ready.next().map_or(0, |polled| polled.revents);
            let is_there = revents == 0 || client.exchange(revents).is_ok();
            // Looked at afterwards: a request may have been waiting for us.
            is_there && (client.is_whole() || Instant::now() < client.deadline())
        });
        // One, and then all are looked at again: an answer may take seconds, in which clients come
        // and go.
        if let Some(at) = clients.iter().position(Client::is_whole) {
            match answer(&clients[at].line) {
                Some(answer) => clients[at].begin(answer),
                None => drop(clients.swap_remove(at)),
            }
        }
        if polled[0].revents != 0 {
            match accept(listener, &mut clients) {
                Ok(()) => {}
                // An error of that connection, or a want of descriptors: that passes.
                Err(_) => accept_after = Some(Instant::now() + BACK_OFF),
            }
        }
    }
}

/// Takes all that have connected.
fn accept(listener: &UnixListener, clients: &mut Vec<Client>) -> io::Result<()> {
    for _ in 0..CLIENTS_MAX {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let user = socket::peer(&socket)?.user;
        if (user != socket::own_user() && user != 0) || socket.set_nonblocking(true).is_err() {
            continue;
        }
        if clients.len() >= CLIENTS_MAX {
            let silent = clients.iter().enumerate().filter(|(_, client)| client.is_silent());
            let Some((oldest, _)) = silent.min_by_key(|(_, client)| client.since) else { continue };
            clients.swap_remove(oldest);
        }
        clients.push(Client { socket, line: Vec::new(), answer: None, since: Instant::now() });
    }
    Ok(())
}

struct Client {
    socket: UnixStream,
    line: Vec<u8>,
    /// The bytes, and how many of them the client has taken.
    answer: Option<(Vec<u8>, usize)>,
    /// When it came, or last took a part of the answer.
    since: Instant,
}

impl Client {
    fn is_whole(&self) -> bool {
        self.answer.is_none() && (self.line.ends_with(b"\n") || self.line.len() >= REQUEST_BYTES_MAX)
    }

    fn is_silent(&self) -> bool {
        self.answer.is_none() && !self.is_whole()
    }

    fn interest(&self) -> libc::pollfd {
        let events = match () {
            () if self.answer.is_some() => libc::POLLOUT,
            () if self.is_whole() => 0,
            () => libc::POLLIN,
        };
        libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 }
    }

    fn deadline(&self) -> Instant {
        self.since + if self.answer.is_some() { ANSWER_TIMEOUT } else { REQUEST_TIMEOUT }
    }

    /// Answers from now on.
    fn begin(&mut self, answer: Vec<u8>) {
        self.answer = Some((answer, 0));
        self.since = Instant::now();
    }

    /// Reads or writes what there is. An error, such as that all is said, ends it; so does a client
    /// that does not wait for its answer any more.
    fn exchange(&mut self, revents: libc::c_short) -> io::Result<()> {
        if revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let result = if self.answer.is_some() { self.write() } else { self.read() };
        match result {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            result => result,
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; REQUEST_BYTES_MAX];
        while self.is_silent() {
            let room = REQUEST_BYTES_MAX - self.line.len();
            match self.socket.read(&mut bytes[..room])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => {
                    // Bytes after the line are ignored.
                    let end = bytes[..count].iter().position(|&byte| byte == b'\n').map_or(count, |at| at + 1);
                    self.line.extend_from_slice(&bytes[..end]);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        while let Some((bytes, taken)) = &mut self.answer {
            if *taken == bytes.len() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let count = self.socket.write(&bytes[*taken..])?;
            *taken += count;
            self.since = Instant::now();
        }
        Ok(())
    }
}
