//! The loop of a server: the sockets for its [`Clients`].

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, sockopt};

use crate::clients::{Clients, Interest};
use crate::connection::Responder;

/// The pause after a failure for want of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);
/// The number of connections that are accepted at a time, before clients are polled again.
const ACCEPTED_MAX: usize = 64;
/// The time without data from a client that waits for its answer after which the kernel checks
/// whether the client is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Answers requests of clients that connect, from `responder`, until [`stop_serving`] is called.
/// Clients that wait for an answer that takes time get it then. `listener` must not block: this
/// waits for all clients at once, never for one of them.
///
/// `on_idle` frees data that can be made again. It is called when there are no clients, with the
/// time since the last one, and returns the time after which it is to be called again; `None`: not
/// before there has been another client.
pub fn serve(
    listener: &TcpListener,
    responder: &impl Responder,
    mut on_idle: impl FnMut(Duration) -> Option<Duration>,
) {
    let clients = Clients::new(|stream: &TcpStream| stream.shutdown(Shutdown::Write));
    let mut server = Server { listener, clients, accept_after: None };
    let mut last_client = Instant::now();
    let mut idle_timeout = None;
    while sockopt::socket_acceptconn(listener).unwrap_or_default() {
        let accept_timeout = server.accept_after.map(|after| after.saturating_duration_since(Instant::now()));
        let timeouts = [server.clients.timeout(Instant::now()), idle_timeout, accept_timeout];
        // A failure for want of memory, for example, is temporary, and `poll` cannot wait for its
        // end.
        if server.poll_once(timeouts.into_iter().flatten().min(), responder).is_err() {
            thread::sleep(BACK_OFF);
        }
        idle_timeout = if server.clients.is_empty() {
            on_idle(last_client.elapsed())
        } else {
            last_client = Instant::now();
            None
        };
    }
    server.clients.finish(responder, Instant::now);
}

/// Ends the listening, and so [`serve`] with this listener or a copy of it.
///
/// # Errors
///
/// An error if the listening has ended before.
pub fn stop_serving(listener: &TcpListener) -> io::Result<()> {
    // Closing it would not be enough: children of the process have copies.
    Ok(net::shutdown(listener, net::Shutdown::Both)?)
}

struct Server<'a> {
    listener: &'a TcpListener,
    clients: Clients<TcpStream>,
    /// No connection is accepted before this time: there was no descriptor for the last one.
    accept_after: Option<Instant>,
}

impl Server<'_> {
    /// Waits for connections and requests, at most for `timeout`, and handles them.
    fn poll_once(&mut self, timeout: Option<Duration>, responder: &impl Responder) -> io::Result<()> {
        if self.accept_after.is_some_and(|after| Instant::now() >= after) {
            self.accept_after = None;
        }
        // Without flags, `poll` still returns when the listening has ended.
        let accepts = if self.accept_after.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut descriptors = vec![PollFd::from_borrowed_fd(self.listener.as_fd(), accepts)];
        descriptors.extend(self.clients.interests().map(|(stream, interest)| {
            let flags = match interest {
                Interest::Read => PollFlags::IN,
                Interest::Write => PollFlags::OUT,
                Interest::Hangup => PollFlags::RDHUP,
            };
            PollFd::from_borrowed_fd(stream.as_fd(), flags)
        }));
        // Rounded up, so as not to spin during the last millisecond.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout + Duration::from_millis(1)).ok());
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let is_ready: Vec<bool> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
        self.clients.process_ready(is_ready[1..].iter().copied(), responder, Instant::now);
        if is_ready[0] {
            self.accept();
        }
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
                        keep_alive(&stream);
                        self.clients.push(stream, Instant::now());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An error of that connection, or a want of descriptors, is temporary, and `poll`
                // cannot wait for its end.
                Err(_) => {
                    self.accept_after = Some(Instant::now() + BACK_OFF);
                    return;
                }
            }
        }
    }
}

/// Lets the kernel notice a client that has disappeared without closing its connection. Best
/// effort: a stream without this is closed at its deadline.
fn keep_alive(stream: &TcpStream) {
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE / 3);
}
