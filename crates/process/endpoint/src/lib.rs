//! An untracked thread of a program that answers HTTP requests: the sockets for the [`Clients`] of
//! `heapledger-http`.
//!
//! It never waits for a client. It takes none of the program's signals, and what it allocates is in
//! no ledger.
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use heapledger_annotate::untracked_thread;
use heapledger_http::{Clients, Interest, Responder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

/// How long nothing is tried after something has failed for want of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);
/// The number of connections that are accepted at a time, before clients are polled again.
const ACCEPTED_MAX: usize = 64;
/// The time without data from a client that waits for its answer after which the kernel checks
/// whether the client is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Has what can be made again be let go of when there are no clients: given the time since the last
/// of them, it returns how long until it is to be called again; `None`: not before there has been
/// another client.
pub type OnIdle = Box<dyn FnMut(Duration) -> Option<Duration> + Send>;

/// A thread that serves. It ends when this is dropped, and when [`stop`](HttpServer::stop) returns
/// it has ended.
pub struct HttpServer {
    address: SocketAddr,
    /// Shut down, it ends the thread.
    stop: UnixStream,
    thread: Option<untracked_thread::Thread>,
    process: u32,
}

impl HttpServer {
    /// Listens at an address and answers from `responder`, in a thread of this name.
    ///
    /// # Errors
    ///
    /// When the address is taken, or no thread is to be had.
    pub fn start(
        name: &str,
        address: SocketAddr,
        responder: Arc<impl Responder + Send + Sync + 'static>,
        on_idle: OnIdle,
    ) -> io::Result<HttpServer> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        stopped.set_nonblocking(true)?;
        let clients = Clients::new(|stream: &TcpStream| stream.shutdown(Shutdown::Write));
        let server = Loop { listener, stopped, responder, clients, on_idle, accept_after: None };
        let thread = untracked_thread::spawn(name, move || server.run())?;
        Ok(HttpServer { address, stop, thread: Some(thread), process: process::id() })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the thread, and waits until it has. Who waits for an answer that takes time gets it
    /// now.
    pub fn stop(mut self) {
        if self.signal()
            && let Some(thread) = self.thread.take()
        {
            thread.join();
        }
    }

    /// Tells the thread to end. False in a forked child, whose copy has neither the thread nor the
    /// right to stop the parent's.
    fn signal(&self) -> bool {
        // Not by closing it: children have copies.
        self.process == process::id() && self.stop.shutdown(Shutdown::Both).is_ok()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if !self.signal() {
            std::mem::forget(self.thread.take());
        }
    }
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Loop<R> {
    listener: TcpListener,
    stopped: UnixStream,
    responder: Arc<R>,
    clients: Clients<TcpStream>,
    on_idle: OnIdle,
    /// Nobody is accepted before this: there was no descriptor.
    accept_after: Option<Instant>,
}

impl<R: Responder> Loop<R> {
    fn run(mut self) {
        let mut last_client = Instant::now();
        let mut idle_timeout = None;
        while !self.is_stopped() {
            let timeouts = [self.clients.timeout(Instant::now()), idle_timeout, self.accept_after.map(until)];
            // It fails for want of descriptors, say.
            if self.poll_once(timeouts.into_iter().flatten().min()).is_err() {
                thread::sleep(BACK_OFF);
            }
            idle_timeout = if self.clients.is_empty() {
                (self.on_idle)(last_client.elapsed())
            } else {
                last_client = Instant::now();
                None
            };
        }
        self.clients.finish(&*self.responder, Instant::now);
    }

    fn is_stopped(&mut self) -> bool {
        // Nothing is ever written to it: this is its end.
        self.stopped.read(&mut [0]).is_ok()
    }

    /// Waits for something to do for so long, and does it.
    fn poll_once(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.accept_after.is_some_and(|after| Instant::now() >= after) {
            self.accept_after = None;
        }
        let accepts = if self.accept_after.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut descriptors = vec![
            PollFd::from_borrowed_fd(self.stopped.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), accepts),
        ];
        descriptors.extend(self.clients.interests().map(|(stream, interest)| {
            let flags = match interest {
                Interest::Read => PollFlags::IN,
                Interest::Write => PollFlags::OUT,
                Interest::Hangup => PollFlags::RDHUP,
            };
            PollFd::from_borrowed_fd(stream.as_fd(), flags)
        }));
        // Rounded up: not to turn round in the last millisecond.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout + Duration::from_millis(1)).ok());
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let is_ready: Vec<bool> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
        self.clients.process_ready(is_ready[2..].iter().copied(), &*self.responder, Instant::now);
        if is_ready[1] {
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
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error of that connection, or a want of descriptors: that passes, and is not
                // polled for.
                Err(_) => {
                    self.accept_after = Some(Instant::now() + BACK_OFF);
                    return;
                }
            }
        }
    }
}

/// Has the kernel notice a client that is gone without a word. Best effort: a stream without it is
/// closed at its deadline.
fn keep_alive(stream: &TcpStream) {
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE / 3);
}

fn until(moment: Instant) -> Duration {
    moment.saturating_duration_since(Instant::now())
}
