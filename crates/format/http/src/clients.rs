//! The caller has the sockets, waits for them and passes the time. So this is pure, and every
//! deadline can be tested.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::connection::{Connection, Responder};
use crate::message::HttpResponse;

/// The most clients at once. A browser opens six for one page.
const CLIENTS_MAX: usize = 64;
/// The most clients that may wait for an answer that takes time.
const WAITING_MAX: usize = 16;
/// The time in which a request must be complete, and in which an answer must be taken.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time from the last answer until the connection is closed, if the other side does not close
/// it.
const DRAINING: Duration = Duration::from_secs(2);
/// The most buffers that are read from, or written to, one client before the next has its turn.
const BUFFERS_MAX: usize = 64;

/// The event that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// The socket is readable.
    Read,
    /// The socket is writable.
    Write,
    /// Only the other side's hangup, because the answer takes time. Ending only its writing counts
    /// as a hangup.
    Hangup,
}

/// The clients of a server, over streams that do not block.
#[derive(Debug)]
pub struct Clients<S> {
    all: Vec<Client<S>>,
    end_writing: fn(&S) -> io::Result<()>,
}

#[derive(Debug)]
struct Client<S> {
    stream: S,
    connection: Connection,
    /// The time at which it began to read a request, to write an answer, to wait or to drain.
    since: Instant,
    /// True if it has its last answer. Further input is discarded: closing before that could lose
    /// the answer.
    is_draining: bool,
}

impl<S: Read + Write> Clients<S> {
    /// Creates an empty set of clients. `end_writing` shuts down the writing side of a stream.
    pub fn new(end_writing: fn(&S) -> io::Result<()>) -> Clients<S> {
        Clients { all: Vec::new(), end_writing }
    }

    /// True if there are no clients.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a client. If there are too many, the one that has been without a whole request for the
    /// longest time is dropped; if all have one, the new client is not taken.
    pub fn push(&mut self, stream: S, now: Instant) {
        if self.all.len() >= CLIENTS_MAX {
            let idle = self.all.iter().enumerate().filter(|(_, client)| client.interest() == Interest::Read);
            let Some((oldest, _)) = idle.min_by_key(|(_, client)| client.since) else { return };
            self.all.swap_remove(oldest);
        }
        self.all.push(Client { stream, connection: Connection::new(), since: now, is_draining: false });
    }

    /// Returns the streams, and the event that each waits for.
    pub fn interests(&self) -> impl Iterator<Item = (&S, Interest)> {
        self.all.iter().map(|client| (&client.stream, client.interest()))
    }

    /// Returns the time for which there is nothing to do unless a stream is ready. `None`: for
    /// ever.
    pub fn timeout(&self, now: Instant) -> Option<Duration> {
        self.all.iter().map(|client| client.deadline().saturating_duration_since(now)).min()
    }

    /// Reads, answers and writes what can be, for each stream of [`interests`](Clients::interests)
    /// that is `ready`, in that order; and drops the clients whose time is over.
    pub fn process_ready(
        &mut self,
        ready: impl IntoIterator<Item = bool>,
        responder: &impl Responder,
        clock: impl Fn() -> Instant,
    ) {
        let waiting = self.all.iter().filter(|client| client.connection.answer_delay().is_some()).count();
        let mut room = WAITING_MAX.saturating_sub(waiting);
        let mut ready = ready.into_iter();
        let end_writing = self.end_writing;
        self.all.retain_mut(|client| {
            let is_ready = ready.next().unwrap_or_default();
            if client.connection.answer_delay().is_some() {
                if is_ready {
                    room += 1;
                    return false;
                }
                if clock() < client.deadline() {
                    return true;
                }
                client.connection.finish();
                client.since = clock();
                return client.exchange(responder, end_writing, &clock, &mut room).is_ok();
            }
            if is_ready && client.exchange(responder, end_writing, &clock, &mut room).is_err() {
                return false;
            }
            // Checked afterwards, because a whole request may have been waiting for us.
            client.connection.answer_delay().is_some() || clock() < client.deadline()
        });
    }

    /// Makes the pending answers now, at the end of the server, and writes as much as clients take
    /// at once.
    pub fn finish(&mut self, responder: &impl Responder, clock: impl Fn() -> Instant) {
        let end_writing = self.end_writing;
        for client in &mut self.all {
            if client.connection.answer_delay().is_some() {
                client.connection.finish();
                // A client that does not take its answer goes without it.
                let _ = client.exchange(responder, end_writing, &clock, &mut 0);
            }
        }
        self.all.clear();
    }
}

impl<S: Read + Write> Client<S> {
    fn interest(&self) -> Interest {
        match () {
            () if self.is_draining || self.connection.wants_input() => Interest::Read,
            () if self.connection.answer_delay().is_some() => Interest::Hangup,
            () => Interest::Write,
        }
    }

    fn deadline(&self) -> Instant {
        let timeout = if self.is_draining { DRAINING } else { TIMEOUT };
        self.since + self.connection.answer_delay().unwrap_or(timeout)
    }

    /// Reads and writes as much as there is. An error ends the connection.
    fn exchange(
        &mut self,
        responder: &impl Responder,
        end_writing: fn(&S) -> io::Result<()>,
        clock: &impl Fn() -> Instant,
        room: &mut usize,
    ) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        for _ in 0..BUFFERS_MAX {
            let before = self.interest();
            let moved = match before {
                Interest::Read => self.stream.read(&mut bytes),
                Interest::Write => self.stream.write(self.connection.output()),
                Interest::Hangup => return Ok(()),
            };
            match moved {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) if self.is_draining => {}
                Ok(count) if before == Interest::Read => self.connection.receive(&bytes[..count], responder),
                Ok(count) => self.connection.sent(count, responder),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.interest() != before {
                self.since = clock();
            }
            if self.interest() == Interest::Hangup && before != Interest::Hangup {
                match room.checked_sub(1) {
                    Some(left) => *room = left,
                    None => {
                        self.connection.refuse(&HttpResponse::text(503, "too many wait for an answer that takes time"))
                    }
                }
            }
            if self.connection.is_over() && !self.is_draining {
                self.is_draining = true;
                self.since = clock();
                end_writing(&self.stream)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
