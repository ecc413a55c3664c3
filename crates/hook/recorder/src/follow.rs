//! Asks the recorder to follow this process into another program.

use heapledger_core::sandbox;
use heapledger_wire::session::{Request, RequestKind};

use crate::connect::{Address, Refusal, RequestArguments, Socket, Timeout, has_free_descriptors, message};
use crate::session;

/// The process that executes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// The calling process.
    Caller,
    /// A child that the calling thread is about to make by vfork(2), as posix_spawn(3) does.
    Child,
}

/// A recorder that traces a process until it has executed another program.
#[derive(Debug)]
pub struct Follower {
    socket: Socket,
    address: Address,
    executor: Executor,
}

/// Asks the recorder to follow a process into the program with the NUL-terminated path at this
/// address, which it is about to execute. An error has the number of the
/// [`Obstacle`](heapledger_core::program::Obstacle); 0 if it is not known.
pub fn follow(path: u64, executor: Executor) -> Result<Follower, u16> {
    if !session::is_on() {
        return Err(0);
    }
    follow_from(*session::address(), path, executor)
}

/// Does the same for a process that has not joined the session with this address yet.
pub fn follow_from(address: Address, path: u64, executor: Executor) -> Result<Follower, u16> {
    let page = session::known_page();
    let is_off = page.is_some_and(|page| page.is_stalled() || page.is_over());
    if sandbox::is_entered() || is_off || !has_free_descriptors(1) {
        return Err(0);
    }
    let ask = || {
        let mut timeout = Timeout::new(&address, page);
        let socket = Socket::connect(&address, &mut timeout)?;
        socket.send(&request(&address, path, executor), &mut timeout)?;
        let (answer, _) = socket.receive(&mut timeout)?;
        Ok::<_, Refusal>((socket, answer))
    };
    match ask() {
        Ok((socket, answer)) if answer.refused == 0 => Ok(Follower { socket, address, executor }),
        Ok((_, answer)) => Err(answer.image as u16),
        Err(_) => Err(0),
    }
}

fn request(address: &Address, path: u64, executor: Executor) -> Request {
    let fork = u32::from(executor == Executor::Child);
    let arguments = RequestArguments { kind: RequestKind::Follow, image: 0, fork, node_base: 0 };
    Request { thunk: path, ..message(address, arguments) }
}

impl Follower {
    /// Ends it: returns when nobody traces the calling process any more. Call if the program was
    /// not executed; and always after a child was to be made. A child that was made is traced until
    /// it has executed its program, or has ended.
    pub fn stop(self) {
        let mut timeout = Timeout::new(&self.address, session::known_page());
        if self.socket.send(&request(&self.address, 0, self.executor), &mut timeout).is_ok() {
            // An error means that the recorder is gone, and with it the tracer.
            let _ = self.socket.receive(&mut timeout);
        }
    }
}
