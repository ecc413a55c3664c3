//! An untracked thread of a program that answers HTTP requests: it runs [`serve`] of
//! `heapledger-http`.
//!
//! It takes none of the program's signals, and what it allocates is in no ledger.
#![forbid(unsafe_code)]

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use heapledger_annotate::untracked_thread;
use heapledger_http::{Responder, serve, stop_serving};

/// A thread that serves. It ends when this is dropped, and when [`stop`](HttpServer::stop) returns
/// it has ended.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    /// A copy of the thread's, to stop it.
    listener: TcpListener,
    thread: Option<untracked_thread::Thread>,
    process: u32,
}

impl HttpServer {
    /// Listens at an address and answers from `responder`, in a thread of this name. `on_idle` is
    /// that of [`serve`].
    ///
    /// # Errors
    ///
    /// An error if the address is taken, or no thread can be made.
    pub fn start(
        name: &str,
        address: SocketAddr,
        responder: Arc<impl Responder + Send + Sync + 'static>,
        on_idle: impl FnMut(Duration) -> Option<Duration> + Send + 'static,
    ) -> io::Result<HttpServer> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (address, copy) = (listener.local_addr()?, listener.try_clone()?);
        let thread = untracked_thread::spawn(name, move || serve(&copy, &*responder, on_idle))?;
        Ok(HttpServer { address, listener, thread: Some(thread), process: process::id() })
    }

    /// Returns the address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the thread, and waits until it has ended. Clients that wait for an answer that takes
    /// time get it now.
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
        self.process == process::id() && stop_serving(&self.listener).is_ok()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if !self.signal() {
            std::mem::forget(self.thread.take());
        }
    }
}
