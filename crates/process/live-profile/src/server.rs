//! An [`Endpoint`] on a port of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use heapledger_annotate::untracked;
use heapledger_endpoint::HttpServer;
use heapledger_http::Hosts;

use crate::endpoint::{Endpoint, EndpointOptions};
use crate::names::FrameNames;

/// The options of a [`ProfileServer`].
#[derive(Clone, Debug)]
pub struct ProfileServerOptions {
    /// The address to listen at. Every client that can connect to it can fetch profiles: an address
    /// in a network should be in one for scrapers only.
    pub address: SocketAddr,
    /// The host names that requests may use. `None`: on a loopback address the loopback names, on
    /// others any name.
    pub hosts: Option<Hosts>,
    /// A secret part of the path, in front of `/debug/pprof`.
    pub token: Option<String>,
    /// The names that frames have.
    pub names: FrameNames,
}

impl Default for ProfileServerOptions {
    /// Any free port of the loopback; no token; names.
    fn default() -> ProfileServerOptions {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        ProfileServerOptions { address, hosts: None, token: None, names: FrameNames::Known }
    }
}

/// A thread that serves the program's profiles until this is dropped. The thread takes none of the
/// program's signals, and its allocations are in no profile.
///
/// Slow clients do not block it: a request has to be whole, and an answer taken, within 30 seconds.
/// A difference (`?seconds=N`) is given up if its client disconnects, and at most 16 of them are
/// waited for at a time.
#[derive(Debug)]
pub struct ProfileServer {
    url: String,
    server: HttpServer,
}

impl ProfileServer {
    /// Starts to serve.
    ///
    /// # Errors
    ///
    /// An error if the address is taken, or no thread can be made.
    pub fn start(options: ProfileServerOptions) -> io::Result<ProfileServer> {
        untracked::scope(|| ProfileServer::begin(options))
    }

    fn begin(options: ProfileServerOptions) -> io::Result<ProfileServer> {
        let default_hosts = if options.address.ip().is_loopback() { Hosts::Loopback } else { Hosts::Any };
        let base = options.token.map_or_else(String::new, |token| format!("/{token}")) + "/debug/pprof";
        let endpoint = Endpoint::new(EndpointOptions {
            base: base.clone(),
            hosts: options.hosts.unwrap_or(default_hosts),
            names: options.names,
        });
        let server = HttpServer::start("heapledger-profile", options.address, Arc::new(endpoint), |_| None)?;
        let url = format!("http://{}{base}", server.address());
        Ok(ProfileServer { url, server })
    }

    /// Returns the address below which profiles are: with `/heap` and `/allocs`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address that the server listens at.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Stops listening, ends the differences that are being waited for, and waits until the thread
    /// has ended.
    pub fn stop(self) {
        self.server.stop();
    }

    /// Serves for as long as the program runs.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}
