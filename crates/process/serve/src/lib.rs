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
//! [`Server`] is a thread that listens on the loopback, under a path that cannot be guessed.
//! `Mount`, with the feature `tower`, is the same page in a web server that the program already
//! has. `docs/about-memory.md` of the project describes what the page does, and who can see it.

#[cfg(feature = "tower")]
mod mount;
mod program;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use heapledger_context::untracked;
use heapledger_core::Bytes;
pub use heapledger_page::Options as PageOptions;
pub use heapledger_page::{Abilities, Handler, Hosts, Request, Responder, Response, Source, Wish};
use heapledger_report::{Collector, Kind, Registration, Unit, register};
use heapledger_server::HttpServer;

#[cfg(feature = "tower")]
pub use mount::Mount;
pub use program::{Program, minimise, on_minimise};

/// The time without a client after which data that can be made again is freed.
const IDLE: Duration = Duration::from_secs(60);

/// The options of a [`Server`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The port on the loopback to listen at; 0 for any free port.
    pub port: u16,
    /// A secret part of the path; by default 32 random digits. Set it only to have the same address
    /// each time, to a text that others cannot guess.
    pub token: Option<String>,
}

/// A thread that serves the page of this program. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    url: String,
    server: HttpServer,
    _registration: Registration,
}

impl Server {
    /// Serves this program's page on a loopback address.
    ///
    /// # Errors
    ///
    /// An error if the port is taken, or if no thread or random number can be had.
    pub fn start(options: Options) -> io::Result<Server> {
        Server::of(Program { children: true }, options)
    }

    /// Serves a page of another source.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn of(source: impl Source + 'static, options: Options) -> io::Result<Server> {
        untracked::scope(|| Server::begin(source, options))
    }

    fn begin(source: impl Source + 'static, options: Options) -> io::Result<Server> {
        let token = options.token.map_or_else(random_token, Ok)?;
        let base = format!("/{token}");
        let handler = Handler::new(source, heapledger_page::Options { base: base.clone(), ..Default::default() });
        let handler = Arc::new(handler);
        let registration = report(&handler);
        let tidy_handler = Arc::clone(&handler);
        let tidy = move |idle: Duration| {
            if !tidy_handler.is_tidy() && idle >= IDLE {
                tidy_handler.tidy();
            }
            (!tidy_handler.is_tidy()).then(|| IDLE.saturating_sub(idle))
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
        let server = HttpServer::start("heapledger-serve", address, handler, Box::new(tidy))?;
        let url = format!("http://{}{base}/", server.address());
        Ok(Server { url, server, _registration: registration })
    }

    /// Returns the page's address. Everyone who knows the address can see the page.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends the thread, and waits until it has ended.
    pub fn stop(self) {
        self.server.stop();
    }

    /// Serves for as long as the program runs.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

/// Registers a reporter for the memory that the page keeps: it is Heapledger's, not the program's.
fn report(handler: &Arc<Handler>) -> Registration {
    let handler = Arc::downgrade(handler);
    register("explicit/heapledger", move |collector: &mut Collector| {
        let _untracked = untracked::enter();
        let Some(handler) = handler.upgrade() else { return };
        // The thread's blocks are in no ledger: where `heap-allocated` is the ledger's, they are
        // not in it.
        let kind = if heapledger_resident::control::is_running() { Kind::NonHeap } else { Kind::Heap };
        let bytes = Bytes(handler.kept_bytes() as u64);
        let description = "Measurements that the page keeps to be shown and compared. Computed.";
        collector.report("page", kind, Unit::Bytes, bytes.0 as i64, description);
    })
}

/// Returns 128 random bits as 32 digits, which make a path a secret.
///
/// # Errors
///
/// An error if the system has no random numbers.
pub fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
