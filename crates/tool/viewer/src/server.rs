//! The server: where it listens, and what it keeps.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::available_parallelism;

use heapledger_http::random_token;

use crate::answer::Answer;
use crate::connections;
use crate::jobs::Jobs;
use crate::router::Router;

/// The options of a [`Viewer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewerOptions {
    /// The port on the loopback to listen at; 0 for any free port.
    pub port: u16,
    /// The maximum size of all answers that are kept, in bytes. Large ones are kept compressed.
    pub kept_bytes_max: usize,
    /// The maximum number of questions at work at once.
    pub threads_max: usize,
}

impl Default for ViewerOptions {
    /// Any free port, 256 MiB of answers, and as many threads as the machine has, up to 4: each may
    /// replay a recording.
    fn default() -> Self {
        let threads_max = available_parallelism().map_or(2, |threads| threads.get().clamp(2, 4));
        ViewerOptions { port: 0, kept_bytes_max: 256 << 20, threads_max }
    }
}

/// A server that listens, and does not answer yet.
#[derive(Debug)]
pub struct Viewer {
    listener: TcpListener,
    base: String,
    once: String,
    options: ViewerOptions,
}

impl Viewer {
    /// Listens at 127.0.0.1, under a path of 128 random bits.
    ///
    /// # Errors
    ///
    /// An error if the port is taken or not allowed, or if the system has no random numbers.
    pub fn listen(options: ViewerOptions) -> io::Result<Viewer> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, options.port)))?;
        let secret = || Ok::<_, io::Error>(format!("/{}", random_token()?));
        Ok(Viewer { listener, base: secret()?, once: secret()?, options })
    }

    /// Returns the address of the page. Everybody on this machine who knows it can see the page.
    ///
    /// # Errors
    ///
    /// Only if the system does not tell the port.
    pub fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}{}/", self.listener.local_addr()?, self.base))
    }

    /// Returns an address that leads to the page the first time that it is asked for, and to
    /// nothing afterwards. It is for the command line of a browser, which all users of the machine
    /// can see.
    ///
    /// # Errors
    ///
    /// As [`Viewer::url`].
    pub fn url_once(&self) -> io::Result<String> {
        Ok(format!("http://{}{}/", self.listener.local_addr()?, self.once))
    }

    /// Serves the page for as long as the program runs. All connections are served by this thread;
    /// each question has another one.
    ///
    /// # Errors
    ///
    /// An error if the system gives no way to wait for connections.
    pub fn serve(self, answer: Arc<dyn Answer>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let jobs = Arc::new(Jobs::new(answer, self.options.threads_max, self.options.kept_bytes_max));
        let router = Router { base: self.base, once: Mutex::new(Some(self.once)), jobs };
        runtime.block_on(connections::serve(self.listener, Arc::new(router)))
    }
}

#[cfg(test)]
mod tests;
