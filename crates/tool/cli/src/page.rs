//! The page that programs serve about themselves, here for the files that this command has read.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use heapledger_web::{Clients, Files, Handler, Interest, PageOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::messages::notify;

/// The pause after a failure for want of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Serves a page to this machine until the command is interrupted. `fill` gives the handler its
/// contents.
pub(crate) fn serve(title: String, fill: impl FnOnce(&Handler)) -> Result<()> {
    let cannot = |error: io::Error| Failure::caused(Exit::Unexpected, "cannot serve a page", error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let base = format!("/{}", token().map_err(cannot)?);
    let handler = Handler::new(Files(title), PageOptions { base: base.clone(), ..PageOptions::default() });
    fill(&handler);
    notify(format_args!("about:memory at http://{}{base}/, until Ctrl-C", listener.local_addr().map_err(cannot)?));
    let mut clients = Clients::new(|stream: &TcpStream| stream.shutdown(Shutdown::Write));
    loop {
        // A failure for want of descriptors, for example, is temporary, and `poll` cannot wait for
        // its end.
        if turn(&listener, &mut clients, &handler).is_err() {
            thread::sleep(BACK_OFF);
        }
    }
}

/// Waits for connections and requests, and handles them.
fn turn(listener: &TcpListener, clients: &mut Clients<TcpStream>, handler: &Handler) -> io::Result<()> {
    let mut descriptors = vec![PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
    descriptors.extend(clients.interests().map(|(stream, interest)| {
        let flags = match interest {
            Interest::Read => PollFlags::IN,
            Interest::Write => PollFlags::OUT,
            Interest::Hangup => PollFlags::RDHUP,
        };
        PollFd::from_borrowed_fd(stream.as_fd(), flags)
    }));
    // Rounded up, so as not to spin during the last millisecond.
    let timeout = clients.timeout(Instant::now()).map(|timeout| timeout + Duration::from_millis(1));
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut descriptors, timeout.as_ref()) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let is_ready: Vec<bool> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
    clients.process_ready(is_ready[1..].iter().copied(), handler, Instant::now);
    if !is_ready[0] {
        return Ok(());
    }
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            clients.push(stream, Instant::now());
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns 128 random bits in hexadecimal.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
