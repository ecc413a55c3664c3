//! An [`Endpoint`] on a port of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heapledger_context::quiet;
use heapledger_http::{Connection, Hosts};

use crate::endpoint::{Endpoint, EndpointOptions};
use crate::names::Names;

/// Connections at once. One that comes then is closed.
const CONNECTIONS_MAX: usize = 16;
/// A request must be whole after this long, and an answer taken.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most that is read of what nobody asked for.
const DRAINED_MAX: usize = 64 << 10;

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

/// Threads that serve the program's profiles until this is dropped. They are quiet: they take none of the program's signals,
/// and what they allocate is in no profile.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    url: String,
    endpoint: Endpoint,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    ///
    /// When the address is taken, or no thread is to be had.
    pub fn start(options: ServerOptions) -> io::Result<Server> {
        let listener = TcpListener::bind(options.address)?;
        let address = listener.local_addr()?;
        let default_hosts = if address.ip().is_loopback() { Hosts::Loopback } else { Hosts::Any };
        let base = options.token.map_or_else(String::new, |token| format!("/{token}")) + "/debug/pprof";
        let endpoint = Endpoint::new(EndpointOptions {
            base: base.clone(),
            hosts: options.hosts.unwrap_or(default_hosts),
            names: options.names,
        });
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (of_thread, stopped) = (endpoint.clone(), Arc::clone(&is_stopped));
        let thread = quiet::thread("heapledger-profile", move || accept(&listener, &of_thread, &stopped))?;
        let url = format!("http://{address}{base}");
        Ok(Server { address, url, endpoint, is_stopped, thread: Some(thread), process: std::process::id() })
    }

    /// The address below which profiles are: with `/heap` and `/allocs`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens no more; waits until the thread has ended.
    pub fn stop(self) {}

    /// Serves for as long as the program runs.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A forked child's copy has neither the threads nor the right to stop the parent's.
        if self.process != std::process::id() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.is_stopped.store(true, Ordering::Release);
        self.endpoint.stop();
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) });
        }
        // It wakes the thread. If nobody can connect, it is not waited for.
        if TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}

fn accept(listener: &TcpListener, endpoint: &Endpoint, is_stopped: &AtomicBool) {
    let connections = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if is_stopped.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Of the connection that was to be, or for want of descriptors: that passes.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            connections.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (endpoint, of_thread) = (endpoint.clone(), Arc::clone(&connections));
        let served = quiet::thread("heapledger-pprof", move || {
            let _counted = Counted(of_thread);
            // Whoever does not take the answer goes without it.
            let _ = serve(stream, &endpoint);
        });
        if served.is_err() {
            connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// One of the connections, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(mut stream: TcpStream, endpoint: &Endpoint) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut connection = Connection::new();
    let mut bytes = [0; 16 << 10];
    let mut since = Instant::now();
    while !connection.is_over() {
        if connection.wants_input() {
            if since.elapsed() > PATIENCE {
                return Err(ErrorKind::TimedOut.into());
            }
            let count = stream.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            connection.receive(&bytes[..count], endpoint);
            if !connection.is_in_request() {
                since = Instant::now();
            }
        } else {
            match stream.write(connection.output()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => connection.sent(count, endpoint),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    // To close while something is unread would take the answer from the other side.
    stream.shutdown(Shutdown::Write)?;
    let mut drained = 0;
    while drained < DRAINED_MAX {
        match stream.read(&mut bytes)? {
            0 => break,
            count => drained += count,
        }
    }
    Ok(())
}
