//! The server of a process that answers: several clients at once, each with deadlines, so that none
//! delays another.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use super::line::REQUEST_BYTES_MAX;
use super::peer::PeerOf;

/// The most clients at once. A further one displaces the one that has been without a request for
/// the longest time.
const CLIENTS_MAX: usize = 64;
/// The time in which a request must be complete.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The time in which an answer, or the next part of it, must be taken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a failure for want of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Listens at a name that is this prefix, the process's pid, a dot, and random digits.
///
/// # Errors
///
/// An error if there is no descriptor for the socket.
pub fn listen(prefix: &str) -> io::Result<UnixListener> {
    let mut random = [0_u8; 16];
    // Up to 256 bytes are returned whole once the kernel's pool is initialised; until then the call
    // waits.
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    let name = format!("{prefix}{}.{:032x}", process::id(), u128::from_ne_bytes(random));
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers processes of the same user and of root until [`stop_serving`] is called. `answer`
/// returns `None` if a line is not a request: then the connection is closed.
pub fn serve(listener: &UnixListener, peer_of: PeerOf, answer: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let mut clients: Vec<Client> = Vec::new();
    let mut accept_after: Option<Instant> = None;
    loop {
        let now = Instant::now();
        accept_after = accept_after.filter(|&after| now < after);
        let accepts = if accept_after.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut polled = vec![PollFd::new(listener, accepts)];
        polled.extend(clients.iter().map(|client| PollFd::new(&client.stream, client.interest())));
        let end = clients.iter().map(Client::deadline).chain(accept_after).min();
        let timeout = end.and_then(|end| Timespec::try_from(end.saturating_duration_since(now)).ok());
        if poll(&mut polled, timeout.as_ref()).is_err_and(|error| error != Errno::INTR) {
            thread::sleep(BACK_OFF);
        }
        let events: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        // The listening has ended; accept(2) would only report that nobody is waiting.
        if events[0].contains(PollFlags::HUP) {
            return;
        }
        let mut of_clients = events[1..].iter();
        clients.retain_mut(|client| {
            let is_there = of_clients.next().is_none_or(|&events| client.exchange(events).is_ok());
            // Checked afterwards, because a whole request may have been waiting for us.
            is_there && (client.is_complete() || Instant::now() < client.deadline())
        });
        // One request, and then all clients are polled again, because an answer may take seconds,
        // in which clients come and go.
        if let Some(at) = clients.iter().position(Client::is_complete) {
            match answer(&clients[at].line) {
                Some(answer) => clients[at].begin(answer),
                None => drop(clients.swap_remove(at)),
            }
        }
        if !events[0].is_empty() && accept(listener, peer_of, &mut clients).is_err() {
            // An error of that connection, or no descriptors: both pass.
            accept_after = Some(Instant::now() + BACK_OFF);
        }
    }
}

/// Ends the listening, and so [`serve`] with this listener.
///
/// # Errors
///
/// An error if the listening has ended before.
pub fn stop_serving(listener: &UnixListener) -> io::Result<()> {
    // Closing it would not be enough: children of the process have copies.
    Ok(rustix::net::shutdown(listener, Shutdown::Both)?)
}

/// Accepts all connections that are waiting.
fn accept(listener: &UnixListener, peer_of: PeerOf, clients: &mut Vec<Client>) -> io::Result<()> {
    for _ in 0..CLIENTS_MAX {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let user = peer_of(stream.as_fd())?.user;
        if (user != geteuid().as_raw() && user != 0) || stream.set_nonblocking(true).is_err() {
            continue;
        }
        if clients.len() >= CLIENTS_MAX {
            let silent = clients.iter().enumerate().filter(|(_, client)| client.interest() == PollFlags::IN);
            let Some((oldest, _)) = silent.min_by_key(|(_, client)| client.since) else { continue };
            clients.swap_remove(oldest);
        }
        clients.push(Client { stream, line: Vec::new(), answer: None, since: Instant::now() });
    }
    Ok(())
}

struct Client {
    stream: UnixStream,
    line: Vec<u8>,
    /// The answer, and the number of its bytes that the client has taken.
    answer: Option<(Vec<u8>, usize)>,
    /// The time at which it connected, or last took a part of the answer.
    since: Instant,
}

impl Client {
    /// True if the request is complete and not answered.
    fn is_complete(&self) -> bool {
        self.answer.is_none() && (self.line.ends_with(b"\n") || self.line.len() >= REQUEST_BYTES_MAX)
    }

    /// Returns the event to wait for. A hangup is always reported.
    fn interest(&self) -> PollFlags {
        match () {
            () if self.answer.is_some() => PollFlags::OUT,
            () if self.is_complete() => PollFlags::empty(),
            () => PollFlags::IN,
        }
    }

    /// Returns the time until which there is nothing to do without an event.
    fn deadline(&self) -> Instant {
        match () {
            () if self.answer.is_some() => self.since + ANSWER_TIMEOUT,
            () if self.is_complete() => self.since,
            () => self.since + REQUEST_TIMEOUT,
        }
    }

    /// Answers from now on.
    fn begin(&mut self, answer: Vec<u8>) {
        self.answer = Some((answer, 0));
        self.since = Instant::now();
    }

    /// Reads or writes as much as there is. An error ends the connection, as does the end of the
    /// answer, and a client that does not wait for its answer any more.
    fn exchange(&mut self, events: PollFlags) -> io::Result<()> {
        if events.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let result = match () {
            () if events.is_empty() => Ok(()),
            () if self.answer.is_some() => self.write(),
            () => self.read(),
        };
        match result {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            result => result,
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; REQUEST_BYTES_MAX];
        while self.interest() == PollFlags::IN {
            let room = REQUEST_BYTES_MAX - self.line.len();
            match self.stream.read(&mut bytes[..room])? {
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
            // A client that has gone raises no SIGPIPE in the program.
            *taken += send(&self.stream, &bytes[*taken..], SendFlags::NOSIGNAL)?;
            self.since = Instant::now();
        }
        Ok(())
    }
}
