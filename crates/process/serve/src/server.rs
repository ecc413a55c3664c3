//! One thread that listens on the loopback and answers from a [`Handler`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heapledger_context::quiet;
use heapledger_page::{Connection, Handler};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A browser opens six for one page.
const CONNECTIONS_MAX: usize = 32;
/// A request must be whole after this long, and an answer taken.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long after the last answer the connection is closed, if the other side does not do it.
const DRAINING: Duration = Duration::from_secs(2);
/// After this long without a question, what can be made again is let go of.
const IDLE: Duration = Duration::from_secs(60);

/// Listens until its half of `stop` is closed.
pub(crate) fn start(port: u16, handler: Arc<Handler>) -> io::Result<(SocketAddr, UnixStream, JoinHandle<()>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (stop, stopped) = UnixStream::pair()?;
    let thread = quiet::thread("heapledger-serve", move || {
        let mut server = Loop { listener, stopped, handler, clients: Vec::new(), asked: Instant::now() };
        // A poll that fails for good leaves nothing to do.
        while let Ok(true) = server.turn() {}
    })?;
    Ok((address, stop, thread))
}

struct Loop {
    listener: TcpListener,
    stopped: UnixStream,
    handler: Arc<Handler>,
    clients: Vec<Client>,
    /// When somebody last asked for something.
    asked: Instant,
}

struct Client {
    stream: TcpStream,
    connection: Connection,
    /// When it last began to wait for us, or we for it.
    since: Instant,
    /// It has its last answer. What it still sends is thrown away: to close before that would take the answer from it.
    is_draining: bool,
}

impl Loop {
    /// Waits for something to do, and does it. `false` at the end.
    fn turn(&mut self) -> io::Result<bool> {
        let can_accept = self.clients.len() < CONNECTIONS_MAX;
        let mut descriptors = vec![
            PollFd::from_borrowed_fd(self.stopped.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(
                self.listener.as_fd(),
                if can_accept { PollFlags::IN } else { PollFlags::empty() },
            ),
        ];
        descriptors.extend(self.clients.iter().map(Client::interest));
        let has_to_wake = !self.clients.is_empty() || !self.handler.is_tidy();
        let timeout = has_to_wake.then_some(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        let is_ready: Vec<bool> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
        if is_ready[0] {
            return Ok(false);
        }
        let now = Instant::now();
        let mut ready = is_ready[2..].iter();
        let (handler, asked) = (&self.handler, &mut self.asked);
        self.clients.retain_mut(|client| {
            let is_ready = ready.next().copied().unwrap_or_default();
            let is_over = now.duration_since(client.since) >= if client.is_draining { DRAINING } else { PATIENCE };
            if !is_ready || (client.is_draining && is_over) {
                return !is_over;
            }
            if !client.is_draining {
                client.since = now;
            }
            *asked = now;
            client.exchange(handler).is_ok()
        });
        if is_ready[1] {
            self.accept(now);
        }
        if self.clients.is_empty() && now.duration_since(self.asked) > IDLE {
            self.handler.tidy();
        }
        Ok(true)
    }

    fn accept(&mut self, now: Instant) {
        // An error is of the connection that was to be, or passes (no descriptors): there will be others.
        if let Ok((stream, _)) = self.listener.accept()
            && stream.set_nonblocking(true).is_ok()
            && stream.set_nodelay(true).is_ok()
        {
            self.clients.push(Client { stream, connection: Connection::new(), since: now, is_draining: false });
        }
    }
}

impl Client {
    fn interest(&self) -> PollFd<'_> {
        let flags = if self.is_draining || self.connection.wants_input() { PollFlags::IN } else { PollFlags::OUT };
        let descriptor: BorrowedFd<'_> = self.stream.as_fd();
        PollFd::from_borrowed_fd(descriptor, flags)
    }

    /// Reads and writes as much as there is. An error ends the connection.
    fn exchange(&mut self, handler: &Handler) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        loop {
            let moved = if self.is_draining || self.connection.wants_input() {
                self.stream.read(&mut bytes)
            } else {
                self.stream.write(self.connection.output())
            };
            match moved {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                // Who never stops sending is closed when its time is over.
                Ok(_) if self.is_draining => return Ok(()),
                Ok(count) if self.connection.wants_input() => self.connection.receive(&bytes[..count], handler),
                Ok(count) => self.connection.sent(count, handler),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.connection.is_over() {
                self.is_draining = true;
                self.stream.shutdown(Shutdown::Write)?;
            }
        }
    }
}
