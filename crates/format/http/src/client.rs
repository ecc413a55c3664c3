//! One request to a server, on a connection of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::answer::HttpAnswer;
use crate::url::HttpUrl;

/// The timeout for connecting, shared by the addresses that are tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of addresses that are tried: a name may have many.
const ADDRESSES_MAX: usize = 2;

/// The timeouts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For each read and each write.
    pub step: Duration,
    /// From connecting until the body of the answer has been read.
    pub total: Duration,
}

/// Sends a request to the server at an address, and reads the head of the answer. `head` is the
/// request line and the headers, with the empty line after them.
///
/// # Errors
///
/// As [`HttpAnswer::read`], and if the server cannot be reached or a timeout passes.
pub fn send_request(
    url: &HttpUrl,
    head: &str,
    body: &[u8],
    timeouts: Timeouts,
) -> io::Result<HttpAnswer<impl Read + use<>>> {
    let began = Instant::now();
    let mut stream = TimedStream { stream: connect(url)?, timeouts, began };
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    HttpAnswer::read(stream)
}

fn connect(url: &HttpUrl) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = (&*url.host, url.port).to_socket_addrs()?.take(ADDRESSES_MAX).collect();
    let mut last = io::Error::new(ErrorKind::NotFound, "there is no such host");
    for address in &addresses {
        match TcpStream::connect_timeout(address, CONNECT_TIMEOUT / addresses.len() as u32) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A stream on which an operation fails when a timeout has passed.
struct TimedStream {
    stream: TcpStream,
    timeouts: Timeouts,
    began: Instant,
}

impl TimedStream {
    /// Returns the timeout of the next operation.
    fn timeout(&self) -> io::Result<Option<Duration>> {
        match self.timeouts.total.saturating_sub(self.began.elapsed()).min(self.timeouts.step) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            timeout => Ok(Some(timeout)),
        }
    }
}

impl Read for TimedStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.timeout()?)?;
        self.stream.read(to)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.timeout()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
