//! `about:memory` of a program, in a browser.

mod program;
mod quiet;
mod server;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use heapledger_page::Handler;
pub use heapledger_page::{Abilities, Hosts, Source, Wish};

pub use program::Program;

/// How the page is served.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where to listen on the loopback; 0 is any port that is free.
    pub port: u16,
    /// A part of the path that nobody else knows; by default 32 random digits. Give one only to have the same address
    /// each time, and one that others cannot guess.
    pub token: Option<String>,
}

/// A thread that serves the page of this program. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    url: String,
    /// Dropping it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves this program's page on a loopback address.
    ///
    /// # Errors
    ///
    /// When the port is taken, or no thread or random number is to be had.
    pub fn start(options: Options) -> io::Result<Server> {
        Server::of(Program::default(), options)
    }

    /// The same for a page of something else.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn of(source: impl Source + 'static, options: Options) -> io::Result<Server> {
        let token = options.token.map_or_else(token, Ok)?;
        let base = format!("/{token}");
        let handler = Handler::new(source, heapledger_page::Options { base: base.clone(), ..Default::default() });
        let (address, stop, thread) = server::start(options.port, Arc::new(handler))?;
        Ok(Server { url: format!("http://{address}{base}/"), stop: Some(stop), thread: Some(thread) })
    }

    /// The page's address. Who knows it can see the page.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends the thread, and waits until it has.
    pub fn stop(mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }

    /// Serves for as long as the program runs.
    pub fn keep(mut self) {
        self.stop.take().map(std::mem::forget);
    }
}

/// 128 bits that nobody can guess.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
