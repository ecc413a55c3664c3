//! A small HTTP/1.1 server for a program that is asked now and then, and a client: bytes in, bytes
//! out.
//!
//! - [`HttpRequest`] and [`HttpResponse`], and the [`Responder`] that answers one with the other.
//! - [`Connection`]: the bytes of a connection, for the owner of a socket. Bounded, whatever comes.
//! - [`Clients`]: the connections of a server, with deadlines.
//! - [`Hosts`]: keeps other pages in the same browser from making requests.
//! - [`HttpUrl`]: the address of a server, and [`HttpAnswer`], for its clients.
//!
//! Pure: these open no socket and read no clock; streams and the time are passed in. The feature
//! `sockets` adds the code that does:
//!
//! - `serve`: the loop of a server, with the sockets for its [`Clients`].
//! - `send_request`: a request on a connection of its own.
//! - `random_token`: a secret for a server's path.
#![forbid(unsafe_code)]

mod access;
mod answer;
#[cfg(feature = "sockets")]
mod client;
mod clients;
mod connection;
mod message;
#[cfg(feature = "sockets")]
mod server;
mod url;

#[cfg(feature = "sockets")]
pub use access::random_token;
pub use access::{Hosts, strip_base};
pub use answer::HttpAnswer;
#[cfg(feature = "sockets")]
pub use client::{Timeouts, send_request};
pub use clients::{Clients, Interest};
pub use connection::{Connection, DeferredAnswer, Responder};
pub use message::{HttpRequest, HttpResponse};
#[cfg(feature = "sockets")]
pub use server::{serve, stop_serving};
pub use url::{HttpUrl, HttpUrlError};
