//! Asks the recorder to follow this process into another program.

use heapledger_core::sandbox;
use heapledger_wire::session::{Request, RequestKind, SessionPage};

use crate::connect::{Address, Refusal, RequestArguments, Socket, Timeout, has_free_descriptors, message};
use crate::session;

/// A recorder that traces this process until it has executed another program.
#[derive(Debug)]
pub struct Follower(Socket);

/// Asks the recorder to follow the calling process into the program with the NUL-terminated path at
/// this address, which it is about to execute. An error has the number of the
/// [`Obstacle`](heapledger_core::program::Obstacle); 0 if it is not known.
pub fn follow(path: u64) -> Result<Follower, u16> {
    let page = session::known_page();
    let is_stalled = page.is_some_and(SessionPage::is_stalled);
    if sandbox::is_entered() || !session::is_on() || is_stalled || !has_free_descriptors(1) {
        return Err(0);
    }
    let address = session::address();
    let ask = || {
        let mut timeout = Timeout::new(address, page);
        let socket = Socket::connect(address, &mut timeout)?;
        socket.send(&request(address, path), &mut timeout)?;
        let (answer, _) = socket.receive(&mut timeout)?;
        Ok::<_, Refusal>((socket, answer))
    };
    match ask() {
        Ok((socket, answer)) if answer.refused == 0 => Ok(Follower(socket)),
        Ok((_, answer)) => Err(answer.image as u16),
        Err(_) => Err(0),
    }
}

fn request(address: &Address, path: u64) -> Request {
    let arguments = RequestArguments { kind: RequestKind::Follow, image: 0, fork: 0, node_base: 0 };
    Request { thunk: path, ..message(address, arguments) }
}

impl Follower {
    /// Ends it, since the program was not executed: returns when nobody traces this process any
    /// more.
    pub fn stop(self) {
        let mut timeout = Timeout::new(session::address(), session::known_page());
        if self.0.send(&request(session::address(), 0), &mut timeout).is_ok() {
            // An error means that the recorder is gone, and with it the tracer.
            let _ = self.0.receive(&mut timeout);
        }
    }
}
