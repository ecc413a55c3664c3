//! `about:memory` of a program, in a browser.
//!
//! ```
//! # use heapledger_serve as serve;
//! let page = serve::PageServer::start(serve::PageServerOptions::default())?;
//! eprintln!("about:memory at {}", page.url());
//! # assert!(page.url().starts_with("http://127.0.0.1:"));
//! # page.stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`PageServer`] is a thread that listens on the loopback, under a path that cannot be guessed.
//! `PageService`, with the feature `tower`, is the same page in a web server that the program
//! already has. `docs/about-memory.md` of the project describes what the page does, and who can see
//! it.

#[cfg(feature = "tower")]
mod page_service;
mod program;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use heapledger_annotate::untracked;
use heapledger_core::Bytes;
use heapledger_endpoint::HttpServer;
pub use heapledger_http::random_token;
use heapledger_reporters::{Collector, Kind, ReporterRegistration, Unit, register};
pub use heapledger_web::{
    Capabilities, Handler, Hosts, HttpRequest, HttpResponse, MeasureOptions, PageOptions, Responder, Source,
};

#[cfg(feature = "tower")]
pub use page_service::PageService;
pub use program::{Program, minimise, on_minimise};

/// The time without a client after which data that can be made again is freed.
const IDLE: Duration = Duration::from_secs(60);

/// The options of a [`PageServer`].
#[derive(Clone, Debug, Default)]
pub struct PageServerOptions {
    /// The port on the loopback to listen at; 0 for any free port.
    pub port: u16,
    /// A secret part of the path; by default 32 random digits. Set it only to have the same address
    /// each time, to a text that others cannot guess.
    pub token: Option<String>,
}

/// A thread that serves the page of this program. It ends when this is dropped.
#[derive(Debug)]
pub struct PageServer {
    url: String,
    server: HttpServer,
    _registration: ReporterRegistration,
}

impl PageServer {
    /// Serves this program's page on a loopback address.
    ///
    /// # Errors
    ///
    /// An error if the port is taken, or if no thread or random number can be had.
    pub fn start(options: PageServerOptions) -> io::Result<PageServer> {
        PageServer::of(Program { children: true }, options)
    }

    /// Serves a page of another source.
    ///
    /// # Errors
    ///
    /// As [`PageServer::start`].
    pub fn of(source: impl Source + 'static, options: PageServerOptions) -> io::Result<PageServer> {
        untracked::scope(|| PageServer::begin(source, options))
    }

    fn begin(source: impl Source + 'static, options: PageServerOptions) -> io::Result<PageServer> {
        let token = options.token.map_or_else(random_token, Ok)?;
        let base = format!("/{token}");
        let handler = Handler::new(source, heapledger_web::PageOptions { base: base.clone(), ..Default::default() });
        let handler = Arc::new(handler);
        let registration = report(&handler);
        let idle_handler = Arc::clone(&handler);
        let on_idle = move |idle: Duration| {
            if !idle_handler.has_no_views() && idle >= IDLE {
                idle_handler.clear_views();
            }
            (!idle_handler.has_no_views()).then(|| IDLE.saturating_sub(idle))
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
        let server = HttpServer::start("heapledger-serve", address, handler, on_idle)?;
        let url = format!("http://{}{base}/", server.address());
        Ok(PageServer { url, server, _registration: registration })
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
fn report(handler: &Arc<Handler>) -> ReporterRegistration {
    let handler = Arc::downgrade(handler);
    register("explicit/heapledger", move |collector: &mut Collector| {
        let _untracked = untracked::enter();
        let Some(handler) = handler.upgrade() else { return };
        // The thread's blocks are in no ledger: where `heap-allocated` is the ledger's, they are
        // not in it.
        let kind = if heapledger_inprocess::control::is_running() { Kind::NonHeap } else { Kind::Heap };
        let bytes = Bytes(handler.cached_bytes() as u64);
        let description = "Measurements that the page keeps to be shown and compared. Computed.";
        collector.report("page", kind, Unit::Bytes, bytes.0 as i64, description);
    })
}
