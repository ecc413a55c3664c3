//! A small HTTP/1.1 server for a program that is asked now and then: bytes in, bytes out.
//!
//! - [`HttpRequest`] and [`HttpResponse`], and the [`Responder`] that answers one with the other.
//! - [`Connection`]: the bytes of a connection, for the owner of a socket. Bounded, whatever comes.
//! - [`Clients`]: the connections of a server, with deadlines.
//! - [`Hosts`]: keeps other pages in the same browser from making requests.
//! - [`HttpUrl`]: the address of a server, for its clients.
//!
//! Pure: it opens no socket and reads no clock; streams and the time are passed in.
#![forbid(unsafe_code)]

mod access;
mod clients;
mod connection;
mod message;
mod url;

pub use access::{Hosts, strip_base};
pub use clients::{Clients, Interest};
pub use connection::{Connection, DeferredAnswer, Responder};
pub use message::{HttpRequest, HttpResponse};
pub use url::{HttpUrl, HttpUrlError};
