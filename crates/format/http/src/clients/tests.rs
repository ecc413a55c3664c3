use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;
use crate::{DeferredAnswer, HttpRequest};

/// A stream whose other side is the test.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Ends>>);

#[derive(Default)]
struct Ends {
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
    /// The number of bytes that are taken.
    room: usize,
    is_closed: bool,
}

impl Wire {
    fn new() -> Wire {
        let wire = Wire::default();
        wire.0.borrow_mut().room = usize::MAX;
        wire
    }

    fn send(&self, text: &str) {
        self.0.borrow_mut().incoming.extend(text.bytes());
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().outgoing.clone()).unwrap()
    }

    fn is_readable(&self) -> bool {
        !self.0.borrow().incoming.is_empty()
    }
}

impl Read for Wire {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut ends = self.0.borrow_mut();
        let count = ends.incoming.len().min(to.len());
        if count == 0 {
            return if ends.is_closed { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        to.iter_mut().zip(ends.incoming.drain(..count)).for_each(|(to, byte)| *to = byte);
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut ends = self.0.borrow_mut();
        let count = bytes.len().min(ends.room);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        ends.room -= count;
        ends.outgoing.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers with the target; for targets below `/later`, after an hour.
struct Echo;

impl Responder for Echo {
    fn admit(&self, _: &HttpRequest<'_>) -> Result<(), HttpResponse> {
        Ok(())
    }

    fn body_bytes_max(&self, _: &HttpRequest<'_>) -> usize {
        0
    }

    fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse {
        HttpResponse::text(200, request.target)
    }

    fn deferred(&self, request: &HttpRequest<'_>) -> Option<DeferredAnswer> {
        let finish = Box::new(|| HttpResponse::text(200, "at last"));
        (request.target == "/later").then_some(DeferredAnswer { after: Duration::from_secs(3600), finish })
    }
}

/// A server whose time the test sets.
struct Server {
    clients: Clients<Wire>,
    now: Cell<Instant>,
}

impl Server {
    fn new() -> Server {
        Server { clients: Clients::new(|_| Ok(())), now: Cell::new(Instant::now()) }
    }

    fn connect(&mut self) -> Wire {
        let wire = Wire::new();
        self.clients.push(wire.clone(), self.now.get());
        wire
    }

    /// Processes after `seconds`, with every stream that is ready.
    fn advance(&mut self, seconds: u64) {
        self.now.set(self.now.get() + Duration::from_secs(seconds));
        let ready: Vec<bool> = self
            .clients
            .interests()
            .map(|(wire, interest)| match interest {
                Interest::Read => wire.is_readable() || wire.0.borrow().is_closed,
                Interest::Write => wire.0.borrow().room > 0,
                Interest::Hangup => wire.0.borrow().is_closed,
            })
            .collect();
        self.clients.process_ready(ready, &Echo, || self.now.get());
    }

    fn count(&self) -> usize {
        self.clients.interests().count()
    }
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const LATER: &str = "GET /later HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_request_has_to_be_whole_in_time_however_it_comes() {
    let mut server = Server::new();
    let (_silent, trickling) = (server.connect(), server.connect());
    for byte in GET.chars().take(15) {
        trickling.send(&byte.to_string());
        server.advance(1);
    }
    assert_eq!(server.count(), 2);
    for _ in 0..15 {
        trickling.send("x");
        server.advance(1);
    }
    assert_eq!((server.count(), server.clients.timeout(server.now.get())), (0, None));
}

#[test]
fn a_whole_request_is_answered_however_late_the_server_is() {
    let mut server = Server::new();
    let client = server.connect();
    client.send(GET);
    server.advance(3600);
    assert!(client.text().ends_with("\r\n\r\n/a\n"), "{}", client.text());
    assert_eq!(server.count(), 1);
}

#[test]
fn an_answer_has_to_be_taken_in_time() {
    let mut server = Server::new();
    let client = server.connect();
    client.0.borrow_mut().room = 10;
    client.send(GET);
    server.advance(29);
    assert_eq!(client.text().len(), 10);
    server.advance(29);
    client.0.borrow_mut().room = 1;
    assert_eq!(server.count(), 1);
    server.advance(1);
    assert_eq!((client.text().len(), server.count()), (11, 0));
}

#[test]
fn idle_clients_make_room() {
    let mut server = Server::new();
    let silent: Vec<Wire> = (0..1000)
        .map(|_| {
            server.advance(0);
            server.connect()
        })
        .collect();
    let client = server.connect();
    client.send(GET);
    server.advance(0);
    assert!(client.text().starts_with("HTTP/1.1 200 OK"), "{}", client.text());
    assert_eq!(server.count(), CLIENTS_MAX);
    drop(silent);
}

#[test]
fn an_answer_that_takes_time_holds_up_nobody() {
    let mut server = Server::new();
    let (waiting, gone, other) = (server.connect(), server.connect(), server.connect());
    waiting.send(LATER);
    gone.send(LATER);
    server.advance(0);
    other.send(GET);
    server.advance(0);
    assert!(other.text().ends_with("/a\n"));
    assert_eq!((server.count(), waiting.text(), gone.text()), (3, String::new(), String::new()));
    // The client that has gone is noticed at once, and the other one is answered at its time.
    gone.0.borrow_mut().is_closed = true;
    server.advance(1);
    assert_eq!(server.count(), 2);
    other.0.borrow_mut().is_closed = true;
    server.advance(3598);
    assert_eq!((server.count(), waiting.text().len()), (1, 0));
    assert_eq!(server.clients.timeout(server.now.get()), Some(Duration::from_secs(1)));
    server.advance(1);
    assert!(waiting.text().ends_with("at last\n"), "{}", waiting.text());
    waiting.send(GET);
    server.advance(0);
    assert!(waiting.text().ends_with("/a\n"), "the connection goes on");
}

#[test]
fn not_all_may_wait() {
    let mut server = Server::new();
    let waiting: Vec<Wire> = (0..CLIENTS_MAX)
        .map(|_| {
            let client = server.connect();
            client.send(LATER);
            server.advance(0);
            client
        })
        .collect();
    let refused = waiting.iter().filter(|client| client.text().starts_with("HTTP/1.1 503 ")).count();
    assert_eq!(refused, CLIENTS_MAX - WAITING_MAX);
    server.clients.finish(&Echo, || server.now.get());
    let answered = waiting.iter().filter(|client| client.text().ends_with("at last\n")).count();
    assert_eq!((answered, server.count()), (WAITING_MAX, 0));
}

#[test]
fn two_hosts_are_refused() {
    let mut server = Server::new();
    let client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    server.advance(0);
    assert!(client.text().starts_with("HTTP/1.1 400 Bad Request\r\n"), "{}", client.text());
    assert!(!client.text().contains("/b"), "{}", client.text());
    // It is dropped two seconds later, if it does not close the connection.
    server.advance(1);
    assert_eq!(server.count(), 1);
    server.advance(1);
    assert_eq!(server.count(), 0);
}
