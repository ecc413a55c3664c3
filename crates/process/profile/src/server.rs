//! An [`Endpoint`] on a port of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use heapledger_context::untracked;
use heapledger_http::Hosts;
use heapledger_server::HttpServer;

use crate::endpoint::{Endpoint, EndpointOptions};
use crate::names::Names;

/// Where and to whom profiles are served.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where to listen. Whoever can connect there can ask: on an address of the network that should be a network of scrapers.
    pub address: SocketAddr,
    /// Who may be asked for. `None`: on a loopback address the loopback, on others whatever name the program has.
    pub hosts: Option<Hosts>,
    /// A part of the path that nobody else knows, in front of `/debug/pprof`.
    pub token: Option<String>,
    /// Whether frames have names.
    pub names: Names,
}

impl Default for ServerOptions {
    /// Any port of the loopback that is free; no token; names.
    fn default() -> ServerOptions {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        ServerOptions { address, hosts: None, token: None, names: Names::Known }
    }
}

/// A thread that serves the program's profiles until this is dropped. It is quiet: it takes none of the program's signals, and
/// what it allocates is in no profile.
///
/// It waits for nobody: a request has to be whole, and an answer taken, within 30 seconds. Differences (`?seconds=N`) that
/// nobody waits for any more are given up, and 16 of them are waited for at a time.
#[derive(Debug)]
pub struct Server {
    url: String,
    server: HttpServer,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    ///
    /// When the address is taken, or no thread is to be had.
    pub fn start(options: ServerOptions) -> io::Result<Server> {
        untracked::scope(|| Server::begin(options))
    }

    fn begin(options: ServerOptions) -> io::Result<Server> {
        let default_hosts = if options.address.ip().is_loopback() { Hosts::Loopback } else { Hosts::Any };
        let base = options.token.map_or_else(String::new, |token| format!("/{token}")) + "/debug/pprof";
        let endpoint = Endpoint::new(EndpointOptions {
            base: base.clone(),
            hosts: options.hosts.unwrap_or(default_hosts),
            names: options.names,
        });
        let server = HttpServer::start("heapledger-profile", options.address, Arc::new(endpoint), Box::new(|_| None))?;
        let url = format!("http://{}{base}", server.address());
        Ok(Server { url, server })
    }

    /// The address below which profiles are: with `/heap` and `/allocs`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Listens no more; waits until the thread has ended. Differences that are waited for end now.
    pub fn stop(self) {
        self.server.stop();
    }

    /// Serves for as long as the program runs.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}
