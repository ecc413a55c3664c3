//! `about:memory` of a program, in a browser.
//!
//! ```
//! # use heapledger_serve as serve;
//! let page = serve::Server::start(serve::Options::default())?;
//! eprintln!("about:memory at {}", page.url());
//! # assert!(page.url().starts_with("http://127.0.0.1:"));
//! # page.stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`Server`] is a thread that listens on the loopback, under a path that nobody can guess. `Mount`, with the feature `tower`,
//! is the same page in a web server that the program has anyway. `docs/about-memory.md` of the project says what the page
//! does, and who can see it.

#[cfg(feature = "tower")]
mod mount;
mod program;
mod server;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use heapledger_core::Bytes;
pub use heapledger_page::Options as PageOptions;
pub use heapledger_page::{Abilities, Handler, Hosts, Request, Responder, Response, Source, Wish};
use heapledger_report::{Collector, Kind, Registration, Unit, register};

#[cfg(feature = "tower")]
pub use mount::Mount;
pub use program::{Program, minimise, on_minimise};

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
    _registration: Registration,
}

impl Server {
    /// Serves this program's page on a loopback address.
    ///
    /// # Errors
    ///
    /// When the port is taken, or no thread or random number is to be had.
    pub fn start(options: Options) -> io::Result<Server> {
        Server::of(Program { children: true }, options)
    }

    /// The same for a page of something else.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn of(source: impl Source + 'static, options: Options) -> io::Result<Server> {
        let token = options.token.map_or_else(random_token, Ok)?;
        let base = format!("/{token}");
        let handler = Handler::new(source, heapledger_page::Options { base: base.clone(), ..Default::default() });
        let handler = Arc::new(handler);
        let registration = report(&handler);
        let (address, stop, thread) = server::start(options.port, handler)?;
        let url = format!("http://{address}{base}/");
        Ok(Server { url, stop: Some(stop), thread: Some(thread), _registration: registration })
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
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

/// What the page keeps is Heapledger's, not the program's.
fn report(handler: &Arc<Handler>) -> Registration {
    let handler = Arc::downgrade(handler);
    register("explicit/heapledger", move |collector: &mut Collector| {
        let Some(handler) = handler.upgrade() else { return };
        // The thread's blocks are in no ledger: where `heap-allocated` is the ledger's, they are not in it.
        let kind = if heapledger_resident::control::is_running() { Kind::NonHeap } else { Kind::Heap };
        let bytes = Bytes(handler.kept_bytes() as u64);
        let description = "Measurements that the page keeps to be shown and compared. Computed.";
        collector.report("page", kind, Unit::Bytes, bytes.0 as i64, description);
    })
}

/// 128 bits that nobody can guess, as 32 digits: what makes a path a secret.
///
/// # Errors
///
/// When the system has no random numbers.
pub fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
